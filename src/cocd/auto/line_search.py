"""The length of a step: a few evaluations along it, and the lengths found before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

import numpy as np

from .direction import Direction

_NEARLY = 1 - 1e-6  # rounding decides nothing
_LONGER = 3.0  # times the length, if trials made no difference at all


class SearchResult(NamedTuple):
    """The result of a search along a direction."""

    direction: Direction
    tried: float  # its first length
    length: float  # the best one; 0 if no point was lower
    gain: float  # the decrease of the objective there
    limited: bool = False  # it is the longest allowed one


def better(found: SearchResult | None, other: SearchResult | None) -> SearchResult | None:
    """The one with the larger gain."""
    if found is None or other is None:
        return found or other
    return found if found.gain >= other.gain else other


def search(
    direction: Direction,
    f0: float,
    length: float,
    rounding: float,
    at: Callable[[float], float],
) -> SearchResult:
    """Two evaluations along a step: one where its length is expected, one where a parabola turns.

    The objective is `f0` at 0, and `at` has it elsewhere. No length is above the longest one.

    >>> import numpy as np
    >>> along = Direction(p=np.array([1.0]), g=np.array([-2.0]), longest=10.0)
    >>> found = search(along, 1.0, 0.5, 0.0, lambda s: (1 - s) ** 2)
    >>> found.tried, found.length, found.gain, found.limited
    (0.5, 1.0, 1.0, False)
    """
    longest = direction.longest
    tried = min(length, longest)
    trial = Search(f0, direction.slope, tried, around=(1.0,), rounding=rounding)
    while trial.lengths:
        trial.lengths = [min(s, longest) for s in trial.lengths]
        trial.learn([at(s) for s in trial.lengths])
    return SearchResult(
        direction, tried, trial.best, f0 - trial.value, trial.best >= _NEARLY * longest
    )


@dataclass
class Search:
    """Trial points along a direction: two rounds of lengths, then the best of them.

    f and its slope at 0 are known. Evaluate `lengths`, pass their values to `learn` (NaN or
    infinite for a failed evaluation), and repeat until there are none. Then `best` and `value` are
    the result, 0 and f(0) if no trial was lower. The first round tries `around` times the expected
    length, the second the minimum of a parabola. Differences up to `rounding` mean nothing; the
    slope decides then.

    >>> search = Search(f0=1.0, slope=-2.0, length=0.1)
    >>> while search.lengths:
    ...     search.learn([(1 - s) ** 2 for s in search.lengths])
    >>> round(search.best, 6), round(search.value, 6)
    (1.0, 0.0)
    """

    f0: float
    slope: float
    length: float
    around: tuple[float, ...] = (0.25, 1.0, 3.0)
    rounding: float = 0.0
    lengths: list[float] = field(default_factory=list)
    seen: list[tuple[float, float]] = field(default_factory=list)
    rounds: int = 0

    def __post_init__(self) -> None:
        if not self.rounds:
            self.lengths = [times * self.length for times in self.around]

    @property
    def best(self) -> float:
        if self._lower():
            return min(self.seen, key=lambda pair: pair[1])[0]
        return max(s for s, _ in self.seen) if self._flat() else 0.0

    @property
    def value(self) -> float:
        return min(value for _, value in self.seen) if self._lower() else self.f0

    def _lower(self) -> bool:
        return any(value < self.f0 - self.rounding for _, value in self.seen)

    def _flat(self) -> bool:
        """No value differs from f(0) by more than rounding."""
        return bool(self.seen) and all(abs(v - self.f0) <= self.rounding for _, v in self.seen)

    def learn(self, values: list[float]) -> None:
        """Take the values at `lengths`; sets the next ones."""
        self.seen += [(s, v) for s, v in zip(self.lengths, values, strict=True) if isfinite(v)]
        self.rounds += 1
        self.lengths = [self._refined()] if self.rounds == 1 else []

    def _refined(self) -> float:
        if not self.seen:  # nothing there can be evaluated
            return 0.01 * self.length
        if self._flat():
            return _LONGER * self.length
        if len(self.seen) == 1:
            (s, v), low, high = self.seen[0], 0.25, 4.0
            return float(np.clip(self._turn(s, v), low * s, high * s))
        best = self.best
        ordered = sorted([(0.0, self.f0), *self.seen])
        k = [s for s, _ in ordered].index(best)
        if k == 0:  # all went up: the slope at 0 and the nearest point say where to turn
            s, v = ordered[1]
            return float(np.clip(self._turn(s, v), 1e-3 * s, 0.7 * s))
        if k == len(ordered) - 1:  # still going down at the far end
            star = _lowest(*ordered[-3:])
            return float(np.clip(star, 1.5 * best, 10 * best)) if star > best else 10 * best
        (a, fa), (b, fb), (c, fc) = ordered[k - 1 : k + 2]
        star = _lowest((a, fa), (b, fb), (c, fc))
        inside = a + 0.05 * (c - a) < star < c - 0.05 * (c - a)
        return float(star) if inside and star != b else (a + b) / 2

    def _turn(self, s: float, v: float) -> float:
        """The minimum of the parabola through one point with the known slope at 0."""
        bend = (v - self.f0 - self.slope * s) / s**2
        return -self.slope / (2 * bend) if bend > 0 else 2 * s


def _lowest(p: tuple[float, float], q: tuple[float, float], r: tuple[float, float]) -> float:
    """The extremum of the parabola through three points; NaN for a straight line."""
    (a, fa), (b, fb), (c, fc) = p, q, r
    left, right = (b - a) * (fb - fc), (b - c) * (fb - fa)
    turn = left - right
    return b - 0.5 * ((b - a) * left - (b - c) * right) / turn if turn else np.nan


@dataclass
class Length:
    """The multiple of a proposed step that recent searches found best.

    `follow` is how far one search moves it (searches on mini-batches are noisy), `shrink` the
    factor after a failed search.
    """

    value: float = 1.0
    follow: float = 0.5
    shrink: float = 0.1

    def observe(self, tried: float, found: float) -> None:
        """A search that began at `tried` ended at `found`."""
        times = (found / tried) ** self.follow if found > 0 else self.shrink
        self.value = float(np.clip(self.value * times, 1e-6, 1e3))
