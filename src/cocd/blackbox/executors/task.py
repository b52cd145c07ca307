"""The worker's side of an evaluation: the task it receives and the answers it returns."""

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
    """One line about what went wrong; `error` is the exception, if any.

    Not every exception can be pickled, so other processes receive the traceback as text.
    """

    error: BaseException | None = None

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        r"""Summarise an exception in one line.

        >>> Failure.of(ValueError("the mesh\nis bad"))
        'ValueError: the mesh is bad'
        """
        try:
            text = str(error)
        except Exception:  # its __str__ is broken
            text = "(no message: its __str__ raises)"
        failure = cls(" ".join(f"{type(error).__name__}: {text}".split())[:200])
        failure.error = error
        return failure

    @classmethod
    def elsewhere(cls, text: str, where: str) -> Failure:
        """A failure that another process has sent."""
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
    """The function is not vectorized as declared, so none of its values can be trusted."""

    def __reduce__(self) -> tuple[object, ...]:
        return Misuse, (str(self),)


Answer = float | Failure  # the value, or what went wrong


class Done(NamedTuple):
    """Answers for some points, in their order, and how long they took."""

    answers: list[Answer]
    seconds: float


class Task:
    """The function and its arguments, pickled for processes and clusters."""

    def __init__(
        self,
        fun: Callable[..., object],
        args: tuple[object, ...],
        shape: tuple[int, ...],
        vectorized: bool,
    ) -> None:
        self.fun, self.args, self.shape, self.vectorized = fun, args, shape, vectorized

    def __call__(self, points: Points) -> Done:
        """Evaluate points; an exception in the function becomes a `Failure`."""
        start = perf_counter()
        answers = self.many(points) if self.vectorized else [self.one(point) for point in points]
        return Done(answers, perf_counter() - start)

    def one(self, point: Vector) -> Answer:
        """Evaluate one point, which the function may keep or overwrite."""
        if self.vectorized:
            return self.many(point[None])[0]
        try:
            return scalar(self.fun(point.reshape(self.shape), *self.args))
        except Exception as error:
            return Failure.of(error)

    def many(self, points: Points) -> list[Answer]:
        """Evaluate all points in one call, or each separately if that call fails."""
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
            # A single NaN may mean that the call failed; a single number is a sum over points.
            if values.size != 1 or np.isfinite(values.astype(np.float64)).all():
                return [Misuse(text)] * len(points)
            raise ValueError(text)
        except Exception as error:
            if len(points) == 1:
                return [Failure.of(error)]
            return [self.one(point) for point in np.array(points)]


def unmasked(values: object) -> NDArray[Any]:
    """Convert to an array, with NaN for masked elements.

    >>> unmasked(np.ma.masked), unmasked(np.ma.array([1, 2], mask=[False, True]))
    (array(nan), array([ 1., nan]))
    """
    if not np.ma.isMaskedArray(values):
        return np.asarray(values)
    return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))


def scalar(value: object) -> Answer:
    """Return a function's value as a finite float, or a failure that describes it.

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
    """Run a worker process: report ready, then answer until the connection closes.

    The worker sends answers after every `FLUSH` seconds of work: values of a slow function one by
    one, those of a fast one in batches.
    """
    if hasattr(os, "setsid"):
        os.setsid()  # a group can be killed with all its children, and gets no Ctrl-C
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
    """Exit when the parent dies: a busy worker does not notice a closed connection."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        kill_group(os.getpid())
        os._exit(1)


def kill_group(pid: int) -> None:
    """Kill a worker process and everything it has started."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        pass  # it has gone already
