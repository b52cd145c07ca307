"""A pool of worker processes that replaces any that die or hang; only their probes are lost."""

from __future__ import annotations

import multiprocessing
import pickle
from collections import deque
from collections.abc import Iterable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import TYPE_CHECKING

from ..methods.rule import Points, some_of
from .engine import Answers, TooManyFailures, chunk_size
from .task import FLUSH, Done, Task, kill_group, serve

if TYPE_CHECKING:  # some systems lack some of these
    from multiprocessing.context import ForkServerContext, SpawnContext

_PATIENCE = 1.0  # seconds that idle workers get to exit
_SLACK = 0.05  # seconds that a message may take, on top of `timeout`
_STARTS = 3  # processes in a row that may fail to start


class _Worker:
    """One process, the rows it evaluates, and when it last answered."""

    def __init__(self, context: SpawnContext | ForkServerContext, payload: bytes) -> None:
        self.connection: Connection
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=serve, args=(theirs, payload))
        self.process.start()
        theirs.close()
        self.ready = False
        self.rows: deque[int] = deque()
        self.heard = monotonic()

    def kill(self) -> None:
        """Kill the process and everything it has started."""
        if self.process.pid is not None:
            kill_group(self.process.pid)
        self.process.kill()  # in case it has not created its group yet
        self.process.join()
        self.connection.close()


class Pool:
    """`count` processes, started when they are first needed.

    The workers are forked from a clean server process if the system has one, otherwise spawned:
    forking this process would copy its threads' locks. So `fun` must be importable, and a script
    needs ``if __name__ == "__main__":``.
    """

    elsewhere = True

    def __init__(self, task: Task, count: int, timeout: float | None) -> None:
        try:
            self._payload = pickle.dumps(task)
        except Exception as error:
            raise ValueError(
                f"workers={count} sends fun and args to other processes, which failed: "
                f"{error}; define fun at the top level of a module, or use workers=1"
            ) from None
        forkserver = "forkserver" in multiprocessing.get_all_start_methods()
        self._context: SpawnContext | ForkServerContext = (
            multiprocessing.get_context("forkserver")
            if forkserver
            else multiprocessing.get_context("spawn")
        )
        if forkserver:
            # The server imports modules once for all workers.
            self._context.set_forkserver_preload([serve.__module__])
        self.count, self._timeout = count, timeout
        self._workers: list[_Worker] = []
        self._culprits: dict[int, _Worker] = {}  # who failed a row: another worker retries it
        self._seconds = 0.0  # of one evaluation, from the latest answer
        self._failed_starts = 0
        self._started = False

    def run(self, points: Points, rows: Iterable[int], answers: Answers, alone: bool) -> None:
        """Evaluate some rows; each result goes to `answers` as it arrives."""
        queue = deque(rows)
        if not alone:
            self._culprits.clear()
        while queue or any(worker.rows for worker in self._workers):
            if self._failed_starts >= _STARTS and not self._workers:
                raise TooManyFailures(f"{_STARTS} worker processes in a row could not be started")
            # A second try needs one more worker: the one that failed may be the only one.
            self._hire(len(queue) + sum(bool(w.rows) for w in self._workers) + alone)
            self._assign(points, queue, alone, answers)
            self._listen(answers)
            self._kill_overdue(answers)

    def close(self) -> None:
        """End all processes: close the connections of idle ones and kill the others."""
        idle = [worker for worker in self._workers if worker.ready and not worker.rows]
        for worker in idle:
            worker.connection.close()
        deadline = monotonic() + _PATIENCE
        for worker in idle:
            worker.process.join(max(0.0, deadline - monotonic()))
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    # --- one round -----------------------------------------------------------------------------

    def _hire(self, count: int) -> None:
        while len(self._workers) < min(count, self.count) and self._failed_starts < _STARTS:
            try:
                self._workers.append(_Worker(self._context, self._payload))
            except (EOFError, OSError):  # the server is gone; the next start launches another
                self._failed_starts += 1

    def _assign(self, points: Points, queue: deque[int], alone: bool, answers: Answers) -> None:
        for worker in self._workers:
            if not (queue and worker.ready and not worker.rows):
                continue
            size = 1 if alone else chunk_size(self._seconds, len(queue), self.count)
            taken = self._take(queue, size, worker)
            if not taken:
                continue
            worker.rows.extend(taken)
            worker.heard = monotonic()
            try:
                worker.connection.send(some_of(points, taken))
            except OSError:  # the worker has died; `_listen` will notice
                continue

    def _take(self, queue: deque[int], size: int, worker: _Worker) -> list[int]:
        """Rows for a worker, except those it has failed if another worker can take them."""
        taken: list[int] = []
        for _ in range(len(queue)):
            row = queue.popleft()
            if self.count > 1 and self._culprits.get(row) is worker:
                queue.append(row)
            else:
                taken.append(row)
            if len(taken) == size:
                break
        return taken

    def _listen(self, answers: Answers) -> None:
        heard = wait([w.connection for w in self._workers], self._next_deadline())
        for worker in [w for w in self._workers if w.connection in heard]:
            try:
                message = worker.connection.recv()
            except Exception:  # the connection is closed, perhaps in the middle of a message
                self._dismiss(worker, answers, None)
                continue
            worker.heard = monotonic()
            if isinstance(message, Done):
                self._seconds = message.seconds / len(message.answers)
                for answer in message.answers:
                    row = worker.rows.popleft()
                    if isinstance(answer, str):
                        self._culprits[row] = worker
                    answers.put(row, answer)
            elif message:
                raise ValueError(
                    f"workers={self.count}: fun cannot be rebuilt in another process ({message}); "
                    "define it at the top level of an importable module, or use workers=1"
                )
            else:
                worker.ready, self._started, self._failed_starts = True, True, 0

    def _dismiss(self, worker: _Worker, answers: Answers, why: str | None) -> None:
        """Remove a worker that has died or must be killed; its rows are lost."""
        self._workers.remove(worker)
        if why is None:
            worker.process.join(_PATIENCE)
        code = worker.process.exitcode
        worker.kill()
        if not worker.ready:
            self._failed_starts += 1
            if not self._started:
                raise ValueError(
                    f"workers={self.count}: a worker process ended while starting (exit code "
                    f'{code}); a script must call minimize under if __name__ == "__main__":'
                )
        if worker.rows:
            self._culprits.update(dict.fromkeys(worker.rows, worker))
            answers.lost(list(worker.rows), why or f"a worker died (exit code {code})")

    # --- time ----------------------------------------------------------------------------------

    def _deadline(self, worker: _Worker) -> float:
        assert self._timeout is not None
        return worker.heard + self._timeout + FLUSH + _SLACK

    def _next_deadline(self) -> float | None:
        busy = [worker for worker in self._workers if worker.rows]
        if self._timeout is None or not busy:
            return None
        return max(0.0, min(map(self._deadline, busy)) - monotonic())

    def _kill_overdue(self, answers: Answers) -> None:
        if self._timeout is None:
            return
        now = monotonic()
        for worker in [w for w in self._workers if w.rows and self._deadline(w) < now]:
            self._dismiss(worker, answers, f"no answer within timeout={self._timeout:g} s")
