"""The worker's side of an evaluation: what is sent anywhere, and what comes back."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..methods.rule import Points, Vector

FLUSH = 5e-3  # seconds of work that are worth a message


class Failure(str):
    """What went wrong, in one line; `error` is the exception if there was one.

    An exception need not survive pickling, so that another process gets its traceback as text.
    """

    error: BaseException | None = None

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        r"""An exception in one line.

        >>> Failure.of(ValueError("the mesh\nis bad"))
        'ValueError: the mesh is bad'
        """
        try:
            text = str(error)
        except Exception:  # its __str__ has a mistake of its own
            text = "(no message: its __str__ raises)"
        failure = cls(" ".join(f"{type(error).__name__}: {text}".split())[:200])
        failure.error = error
        return failure

    @classmethod
    def elsewhere(cls, text: str, where: str) -> Failure:
        """One that another process has sent."""
        failure = cls(text)
        failure.error = RuntimeError(f"in another process:\n\n{where}") if where else None
        return failure

    def __reduce__(self) -> tuple[object, ...]:
        where = ""
        if self.error is not None:
            try:
                where = "".join(traceback.format_exception(self.error))
            except Exception:
                where = str(self)
        return Failure.elsewhere, (str(self), where)


class Misuse(Failure):
    """The function is not what `vectorized` says: no evaluation of it can be trusted."""

    def __reduce__(self) -> tuple[object, ...]:
        return Misuse, (str(self),)


Answer = float | Failure  # the value, or what went wrong


class Done(NamedTuple):
    """Answers for some points, in their order, and how long they took."""

    answers: list[Answer]
    seconds: float


class Task:
    """The function with everything it needs; goes to processes and clusters by pickle."""

    def __init__(
        self,
        fun: Callable[..., object],
        args: tuple[object, ...],
        shape: tuple[int, ...],
        vectorized: bool,
    ) -> None:
        self.fun, self.args, self.shape, self.vectorized = fun, args, shape, vectorized

    def __call__(self, points: Points) -> Done:
        """Evaluate points; nothing that the function does wrong gets out as an exception."""
        start = perf_counter()
        answers = self.many(points) if self.vectorized else [self.one(point) for point in points]
        return Done(answers, perf_counter() - start)

    def one(self, point: Vector) -> Answer:
        """One point, which the function may keep or write to."""
        if self.vectorized:
            return self.many(point[None])[0]
        try:
            return scalar(self.fun(point.reshape(self.shape), *self.args))
        except Exception as error:
            return Failure.of(error)

    def many(self, points: Points) -> list[Answer]:
        """All points in one call; each alone if that call fails."""
        columns = np.array(points).T
        try:
            values = unmasked(self.fun(columns, *self.args))
            if values.size == len(points):
                return [scalar(value) for value in values.ravel()]
            text = (
                f"a vectorized fun must return {len(points)} values for an array of shape "
                f"{columns.shape}, got shape {values.shape}; return one for each column, or leave "
                "vectorized out"
            )
            # One NaN may be how a whole call fails; one number is a sum over points.
            if values.size != 1 or np.isfinite(values.astype(np.float64)).all():
                return [Misuse(text)] * len(points)
            raise ValueError(text)
        except Exception as error:
            if len(points) == 1:
                return [Failure.of(error)]
            return [self.one(point) for point in np.array(points)]


def unmasked(values: object) -> NDArray[Any]:
    """As an array, NaN where a masked array has no value.

    >>> unmasked(np.ma.masked), unmasked(np.ma.array([1, 2], mask=[False, True]))
    (array(nan), array([ 1., nan]))
    """
    if not np.ma.isMaskedArray(values):
        return np.asarray(values)
    return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))


def scalar(value: object) -> Answer:
    """A function's value as a finite float, or a word on what it is instead.

    >>> scalar(np.array([2.0])), scalar(np.nan), scalar([1, 2]), scalar(None)
    (2.0, 'fun returned nan', 'fun returned an array of shape (2,)', 'fun returned None')
    >>> scalar(np.ma.masked)
    'fun returned a masked value'
    """
    if type(value) is not float:
        if np.ma.is_masked(value):
            return Failure("fun returned a masked value")
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            return Failure(f"fun returned {value!r}"[:200])
        if array.size != 1:
            return Failure(f"fun returned an array of shape {array.shape}")
        value = float(array.reshape(()))
    return value if -np.inf < value < np.inf else Failure(f"fun returned {value}")


def serve(connection: Connection, payload: bytes) -> None:
    """The life of a worker process: say that it is ready, then answer until the line is closed.

    Answers are sent as soon as `FLUSH` seconds' worth has come together, so that slow functions
    are answered one by one and fast ones in batches.
    """
    if hasattr(os, "setsid"):
        os.setsid()  # so that it can be killed with all that it has started; Ctrl-C is not for it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        task: Task = pickle.loads(payload)
    except Exception as error:
        connection.send(str(Failure.of(error)))
        return
    connection.send("")
    while True:
        try:
            points: Points = connection.recv()
        except (EOFError, OSError):
            return
        if task.vectorized:
            connection.send(task(points))
            continue
        answers: list[Answer] = []
        since = perf_counter()
        for point in points:
            answers.append(task.one(np.array(point)))
            now = perf_counter()
            if now - since > FLUSH:
                connection.send(Done(answers, now - since))
                answers, since = [], now
        if answers:
            connection.send(Done(answers, perf_counter() - since))


def _die_with_parent() -> None:
    """A worker that evaluates does not read its line, and would outlive a killed parent."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        kill_group(os.getpid())
        os._exit(1)


def kill_group(pid: int) -> None:
    """Kill a worker process and all that it has started."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        pass  # it has gone already
