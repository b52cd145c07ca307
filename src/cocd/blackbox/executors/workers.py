"""Engines that evaluate points: in this process, in others, on executors or through a `map`.

The cost of a failure depends on the engine. With `workers` as an int or a futures executor, an
exception, a NaN, a dead process or an exceeded `timeout` costs only that probe, after a second try
on another worker. With other map-like callables, an exception or NaN in the function costs that
probe, an exception in the callable costs the batch, and nothing stops a callable that hangs.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from time import monotonic
from typing import Any, Protocol

import numpy as np

from ..methods.rule import Points, Probes, some_of
from .engine import Answers, Engine, TooManyFailures, chunk_size
from .pool import Pool
from .task import Done, Failure, Task

_NUMBERS = 1 << 22  # the most in an array for a vectorized function: 32 MB
_STARTUP = 60.0  # seconds that an executor's processes may take before the first answer
_LOOK = 0.5  # seconds between checks that the executor still works
_POLL = 0.05  # seconds between checks whether a future has begun to run

Map = Callable[..., Iterable[object]]  # called like the builtin


class HasMap(Protocol):
    """A pool, or the client of a cluster."""

    @property
    def map(self) -> Map: ...


Workers = int | Executor | HasMap | Map


class InProcess:
    """Evaluates points sequentially in this process, where a retry would fail again."""

    elsewhere = False
    count = 1

    def __init__(self, task: Task) -> None:
        self._task = task

    def run(self, points: Points, rows: Iterable[int], answers: Answers, alone: bool) -> None:
        """Evaluate some rows."""
        if not self._task.vectorized:
            one, put = self._task.one, answers.put
            # Copy each point, so that a function which writes to its argument changes nothing here.
            made = points if isinstance(points, Probes) else np.array(points)
            for row in rows:
                put(row, one(made[row]))
            return
        rows = list(rows)
        size = max(1, _NUMBERS // points.shape[1])
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            for row, answer in zip(part, self._task.many(some_of(points, part)), strict=True):
                answers.put(row, answer)

    def close(self) -> None:
        """Nothing was started."""


class OnExecutor:
    """Evaluates points on any `concurrent.futures.Executor`, and never shuts it down.

    If the executor breaks because one of its processes died, or if all its workers hang, a `Pool`
    replaces it for the rest of the run.
    """

    elsewhere = True

    def __init__(self, executor: Executor, task: Task, count: int | None, timeout: float | None):
        known = count or getattr(executor, "_max_workers", None)
        self._capacity = known if isinstance(known, int) else None
        self.count = self._capacity or os.cpu_count() or 1
        self._executor, self._task, self._timeout = executor, task, timeout
        self._seconds = 0.0
        self._hanging: set[Future[Done]] = set()
        self._out: dict[Future[Done], list[int]] = {}
        self._instead: Pool | None = None
        self._worked = False

    def run(self, points: Points, rows: Iterable[int], answers: Answers, alone: bool) -> None:
        """Evaluate some rows."""
        queue = deque(rows)
        if self._instead is not None:
            self._instead.run(points, queue, answers, alone)
            return
        running: dict[Future[Done], float] = {}  # since when
        while queue or self._out:
            if not self._submit(points, queue, alone):
                self._replace(queue, answers, "the executor takes no more work")
                return
            done = wait(self._out, self._wait(running), FIRST_COMPLETED).done
            # `wait` does not report futures that a shutdown cancels.
            for future in done | {future for future in self._out if future.cancelled()}:
                if not self._collect(future, answers):
                    self._replace(queue, answers, "the executor broke or was shut down")
                    return
            self._drop_overdue(running, answers)

    def close(self) -> None:
        """Cancel evaluations that have not begun."""
        for future in [*self._out, *self._hanging]:
            future.cancel()
        self._out.clear()
        if self._instead is not None:
            self._instead.close()

    def _free(self) -> int:
        if self._timeout is None or self._capacity is None:
            return 1  # submissions are unlimited
        # Submit only what can begin at once, so that its time can be measured.
        self._hanging = {future for future in self._hanging if not future.done()}
        return self._capacity - len(self._hanging) - len(self._out)

    def _submit(self, points: Points, queue: deque[int], alone: bool) -> bool:
        while queue and self._free() > 0:
            size = 1 if alone else chunk_size(self._seconds, len(queue), self.count)
            part = [queue.popleft() for _ in range(size)]
            try:
                self._out[self._executor.submit(self._task, some_of(points, part))] = part
            except Exception as error:
                queue.extendleft(reversed(part))
                if self._worked or isinstance(error, BrokenExecutor):
                    return False
                raise ValueError(f"workers: the executor refuses work: {error}") from error
        return bool(self._out) or not queue

    def _collect(self, future: Future[Done], answers: Answers) -> bool:
        """Pass on the answers; return False if the executor is broken."""
        part = self._out.pop(future)
        try:
            done = future.result()
        except (BrokenExecutor, CancelledError):
            self._out[future] = part  # `_replace` retries it with the others
            return False
        except Exception as error:
            if not self._worked:
                raise ValueError(
                    f"workers: the executor cannot evaluate fun: {Failure.of(error)}"
                ) from error
            answers.lost(part, Failure.of(error))
            return True
        self._worked = True
        self._seconds = done.seconds / len(part)
        for row, answer in zip(part, done.answers, strict=True):
            answers.put(row, answer)
        return True

    def _wait(self, running: dict[Future[Done], float]) -> float:
        if self._timeout is None:
            return _LOOK
        now = monotonic()
        for future in self._out:
            if future not in running and (self._capacity is not None or future.running()):
                running[future] = now
        if len([f for f in self._out if f in running]) < len(self._out):
            return _POLL
        left = min(running[f] for f in self._out) + self._patience - now
        return min(_LOOK, max(0.0, left))

    @property
    def _patience(self) -> float:
        assert self._timeout is not None
        return self._timeout + (0.0 if self._worked else _STARTUP)

    def _drop_overdue(self, running: dict[Future[Done], float], answers: Answers) -> None:
        if self._timeout is None:
            return
        now = monotonic()
        for future in [f for f in self._out if now - running.get(f, now) >= self._patience]:
            if not future.cancel():
                self._hanging.add(future)
            self._worked = True  # the executor itself works
            answers.lost(self._out.pop(future), f"no answer within timeout={self._timeout:g} s")

    def _replace(self, queue: deque[int], answers: Answers, why: str) -> None:
        """Replace a failed executor by a pool; unanswered rows are lost and get a second try."""
        rows = sorted([*queue, *(row for part in self._out.values() for row in part)])
        self._out.clear()
        answers.lost(rows, why)
        try:
            self._instead = Pool(self._task, self.count, self._timeout)
        except ValueError as error:  # threads can evaluate what cannot be sent to processes
            raise TooManyFailures(f"{why}, and it cannot be replaced: {error}") from None


class ThroughMap:
    """Evaluates points through a callable with the signature of `map`."""

    elsewhere = True

    def __init__(self, map_: Map, task: Task) -> None:
        self._map, self._task = map_, task
        self.count = os.cpu_count() or 1
        self._worked = False

    def run(self, points: Points, rows: Iterable[int], answers: Answers, alone: bool) -> None:
        """Evaluate some rows."""
        rows = list(rows)
        size = -(-len(rows) // self.count) if self._task.vectorized and not alone else 1
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        try:
            results = gather(self._map(self._task, [some_of(points, part) for part in parts]))
            if len(results) != len(parts):
                raise ValueError(f"{len(results)} results for {len(parts)} arguments")
        except Exception as error:
            if not self._worked:
                raise ValueError(
                    f"workers: the map-like callable failed: {Failure.of(error)}; it is called as "
                    "map(f, points) and must give one result for each point"
                ) from error
            answers.lost(rows, Failure.of(error))
            return
        self._worked = True
        for part, done in zip(parts, results, strict=True):
            for row, answer in zip(part, done.answers, strict=True):
                answers.put(row, answer)

    def close(self) -> None:
        """Leave the callable alone: it belongs to the caller."""


def gather(results: Iterable[object]) -> list[Any]:
    """Collect the results of a map; wait for futures and Ray references."""
    found: list[Any] = list(results)
    if found and type(found[0]).__name__ == "ObjectRef":
        import ray

        return list(ray.get(found))
    return [result.result() if hasattr(result, "result") else result for result in found]


def engine(workers: Workers, task: Task, timeout: float | None) -> Engine:
    """The engine that `workers` names."""
    if isinstance(workers, int) and not isinstance(workers, bool):
        return _own(workers, task, timeout)
    owner = getattr(workers, "__self__", workers) if _is_map(workers) else workers
    if isinstance(owner, Executor):
        # mpi4py stores its number of workers under another name than the standard library.
        return OnExecutor(owner, task, getattr(owner, "num_workers", None), timeout)
    if hasattr(owner, "get_executor") and hasattr(owner, "nthreads"):  # a Dask client
        # By default Dask caches identical calls, which would be wrong for a noisy function.
        threads = sum(owner.nthreads().values())
        return OnExecutor(owner.get_executor(pure=False), task, threads, timeout)
    map_ = workers if callable(workers) else getattr(workers, "map", None)
    if not callable(map_):
        raise ValueError(
            "workers must be a number of processes, -1 for one on each core, an executor, a pool "
            f"or a map-like callable, got {workers!r}"
        )
    if timeout is not None:
        raise ValueError(
            f"timeout={timeout:g} needs workers that can be given up: a number of processes or a "
            f"futures executor, got {workers!r}"
        )
    return ThroughMap(map_, task)


def _is_map(workers: object) -> bool:
    return getattr(workers, "__name__", None) == "map" and hasattr(workers, "__self__")


def _own(workers: int, task: Task, timeout: float | None) -> Engine:
    if workers == -1:
        cores = getattr(os, "sched_getaffinity", None)
        workers = len(cores(0)) if cores else os.cpu_count() or 1
    if workers < 1:
        raise ValueError(f"workers must be at least 1, or -1 for one on each core, got {workers}")
    if workers == 1 and timeout is None:
        return InProcess(task)
    return Pool(task, workers, timeout)
