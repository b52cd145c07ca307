"""What an engine is asked to do, what it answers to, and how many points make a message."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..methods.rule import Points, Vector
from .task import FLUSH, Answer, Failure, Misuse

FAILURES = 50  # evaluations that may fail in a row
LOSSES = 10  # workers that may die or hang in a row (or two for each that there is)
_REASONS = 20  # different ones that are counted apart


class TooManyFailures(RuntimeError):
    """So many evaluations have failed in a row that going on makes no sense."""


class Answers:
    """Collects what comes back for the points of a phase, and counts what does not."""

    def __init__(self, count: int) -> None:
        self._most_losses = max(LOSSES, 2 * count)
        self.reasons: dict[str, int] = {}  # why evaluations were given up, and how many
        self.retried = 0
        self._failures = self._losses = 0  # in a row
        self.cause: BaseException | None = None  # what fun raised at x0
        self.begin(0)

    def begin(self, k: int, opening: bool = False) -> None:
        """A phase of k points begins; an opening one with x0, before which nothing is concluded.

        Workers are not equally fast: one may fail many times while another still evaluates x0,
        and x0 has its second try like any other point.
        """
        self._early = opening
        self.values: Vector = np.full(k, np.nan)
        self.told: NDArray[np.bool_] = np.zeros(k, dtype=np.bool_)
        self.failed: dict[int, str] = {}

    def put(self, row: int, answer: Answer) -> None:
        """The function has answered."""
        if isinstance(answer, Misuse):
            raise ValueError(str(answer))
        if isinstance(answer, Failure):
            self.failed[row] = answer
            if self._early and row == 0:
                self.cause = answer.error
            self._failures += 1
            self._check(self._failures, FAILURES, "evaluations", answer)
        else:
            self.values[row] = answer
            self.told[row] = True
            self._failures = self._losses = 0
            self._early = self._early and row != 0

    def lost(self, rows: list[int], why: str) -> None:
        """A worker has not answered and will not."""
        self.failed.update(dict.fromkeys(rows, why))
        self._losses += 1
        self._check(self._losses, self._most_losses, "workers", why)

    def _check(self, count: int, most: int, what: str, why: str) -> None:
        if count >= most and not self._early:
            raise TooManyFailures(f"{count} {what} in a row failed, the last one with: {why}")

    def again(self) -> list[int]:
        """The rows that failed, which get a second chance."""
        rows = sorted(self.failed)
        self.retried += len(rows)
        self.failed = {}
        return rows

    def give_up(self) -> None:
        """What has failed stays NaN, and is told so."""
        for row, failure in self.failed.items():
            why = str(failure)  # without the exception, whose frames it would keep alive
            if why not in self.reasons and len(self.reasons) >= _REASONS:
                why = "other"
            self.reasons[why] = self.reasons.get(why, 0) + 1
            self.told[row] = True
        self.failed = {}
        self._early = False


class Engine(Protocol):
    """Evaluates points somewhere."""

    count: int  # workers, as far as is known
    elsewhere: bool  # whether a second try may end otherwise than the first

    def run(self, points: Points, rows: Iterable[int], answers: Answers, alone: bool) -> None:
        """Evaluate some rows and pass on what comes back; `alone` for a message each."""

    def close(self) -> None:
        """Leave nothing running that was started here."""


def evaluate(engine: Engine, points: Points, rows: list[int], answers: Answers) -> None:
    """All rows once, those that failed once more, elsewhere if there is one; then they are NaN."""
    engine.run(points, rows, answers, alone=False)
    if engine.elsewhere and answers.failed:
        engine.run(points, answers.again(), answers, alone=True)
    answers.give_up()


def chunk_size(seconds: float, waiting: int, workers: int) -> int:
    """Points to a message: worth `FLUSH` seconds of work, and no worker goes without.

    >>> chunk_size(0.02, waiting=64, workers=4), chunk_size(1e-5, 64, 4), chunk_size(0.0, 64, 4)
    (1, 16, 1)
    """
    if not seconds:
        return 1  # nothing has been measured yet
    return max(1, min(int(FLUSH / seconds), ceil(waiting / workers)))
