"""The protocol of engines, the collection of their answers, and the size of messages."""

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
_REASONS = 20  # distinct reasons counted separately


class TooManyFailures(RuntimeError):
    """Too many evaluations have failed in a row to continue."""


class Answers:
    """Collects the answers for the points of a phase, and counts failures."""

    def __init__(self, count: int) -> None:
        self._most_losses = max(LOSSES, 2 * count)
        self.reasons: dict[str, int] = {}  # why evaluations were given up, and how many
        self.retried = 0
        self._failures = self._losses = 0  # in a row
        self.cause: BaseException | None = None  # what fun raised at x0
        self.begin(0)

    def begin(self, k: int, opening: bool = False) -> None:
        """Begin a phase of k points. Until x0 has a value, no number of failures ends the run.

        Workers differ in speed: one may fail many times while another still evaluates x0, and x0
        gets a second try like any other point.
        """
        self._early = opening
        self.values: Vector = np.full(k, np.nan)
        self.told: NDArray[np.bool_] = np.zeros(k, dtype=np.bool_)
        self.failed: dict[int, str] = {}

    def put(self, row: int, answer: Answer) -> None:
        """Record the value or failure of one point."""
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
        """Record rows that a dead or hanging worker did not answer."""
        self.failed.update(dict.fromkeys(rows, why))
        self._losses += 1
        self._check(self._losses, self._most_losses, "workers", why)

    def _check(self, count: int, most: int, what: str, why: str) -> None:
        if count >= most and not self._early:
            raise TooManyFailures(f"{count} {what} in a row failed, the last one with: {why}")

    def again(self) -> list[int]:
        """Return the failed rows for a second try."""
        rows = sorted(self.failed)
        self.retried += len(rows)
        self.failed = {}
        return rows

    def give_up(self) -> None:
        """Leave failed rows as NaN and count their reasons."""
        for row, failure in self.failed.items():
            why = str(failure)  # the exception itself would keep its frames alive
            if why not in self.reasons and len(self.reasons) >= _REASONS:
                why = "other"
            self.reasons[why] = self.reasons.get(why, 0) + 1
            self.told[row] = True
        self.failed = {}
        self._early = False


class Engine(Protocol):
    """Evaluates points somewhere."""

    count: int  # workers, as far as is known
    elsewhere: bool  # whether a second try may have another outcome

    def run(self, points: Points, rows: Iterable[int], answers: Answers, alone: bool) -> None:
        """Evaluate some rows and pass on the answers; `alone` sends one row per message."""

    def close(self) -> None:
        """Stop everything that this engine has started."""


def evaluate(engine: Engine, points: Points, rows: list[int], answers: Answers) -> None:
    """Evaluate all rows; retry failures once, on another worker if possible, then leave NaN."""
    engine.run(points, rows, answers, alone=False)
    if engine.elsewhere and answers.failed:
        engine.run(points, answers.again(), answers, alone=True)
    answers.give_up()


def chunk_size(seconds: float, waiting: int, workers: int) -> int:
    """Points per message: about `FLUSH` seconds of work, and some for every worker.

    >>> chunk_size(0.02, waiting=64, workers=4), chunk_size(1e-5, 64, 4), chunk_size(0.0, 64, 4)
    (1, 16, 1)
    """
    if not seconds:
        return 1  # nothing has been measured yet
    return max(1, min(int(FLUSH / seconds), ceil(waiting / workers)))
