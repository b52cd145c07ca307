"""The function as a method sees it: every evaluation counted, none beyond the budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import numpy as np


class Spent(BaseException):
    """The budget is spent.

    Not an `Exception`: a method that survives evaluations that fail would survive this one, too.
    """


@dataclass(frozen=True)
class Mark:
    """How things stood after `evaluations` of them."""

    evaluations: int
    best: float
    seconds: float  # on the clock
    overhead: float  # seconds of the processor for each evaluation, without the function's own


class Counted:
    """`fun`, up to `budget` evaluations; the next one raises `Spent`.

    Args:
        fun: the function.
        budget: evaluations that it may take.
        marks: numbers of evaluations after which to write down the best value so far.
        targets: falling values; `reached` has, for each that was reached, after how many.

    >>> fun = Counted(lambda x: float(x @ x), 3, marks=(1, 3), targets=(5.0, 1.0))
    >>> [fun(np.full(1, x)) for x in (3.0, 1.0, 2.0)]
    [9.0, 1.0, 4.0]
    >>> [mark.best for mark in fun.marks], fun.reached, fun.left
    ([9.0, 1.0], [2, 2], 0)
    """

    def __init__(
        self,
        fun: Callable[[Any], float],
        budget: int,
        *,
        marks: Sequence[int] = (),
        targets: Sequence[float] = (),
    ) -> None:
        self._fun, self._at, self._targets = fun, sorted(set(marks)), targets
        self.budget, self.count, self.best = budget, 0, np.inf
        self.marks: list[Mark] = []
        self.reached: list[int] = []
        self._inside = 0.0
        # Time of the processor, not of the clock: others may be at work on the machine.
        self._started, self._busy = perf_counter(), process_time()

    @property
    def left(self) -> int:
        """Evaluations that remain."""
        return self.budget - self.count

    @property
    def now(self) -> Mark:
        """How things stand."""
        overhead = (process_time() - self._busy - self._inside) / max(self.count, 1)
        return Mark(self.count, self.best, perf_counter() - self._started, overhead)

    def __call__(self, x: Any) -> float:
        """One evaluation."""
        if self.count >= self.budget:
            raise Spent
        started = process_time()
        value = float(self._fun(x))
        self._inside += process_time() - started
        self.count += 1
        if value < self.best:  # never so for NaN
            self.best = value
            while len(self.reached) < len(self._targets) and (
                value <= self._targets[len(self.reached)]
            ):
                self.reached.append(self.count)
        if len(self.marks) < len(self._at) and self.count == self._at[len(self.marks)]:
            self.marks.append(self.now)
        return value
