"""A step that finds its own length: what `AutoCoCD` and the automatic `minimize` share.

The 2B probes of a block give two numbers for each of its coordinates, at no extra cost:

    g_i = (f(x + r e_i) - f(x - r e_i)) / 2r
    c_i = (f(x + r e_i) - 2 f(x) + f(x - r e_i)) / r^2

The step is proposed in three parts, each of which uses one of the things that are known anyway:

1. *Scale.* Along one coordinate alone the best move is -g_i / c_i, so each coordinate is divided
   by its own curvature (`scaled`): the units of a parameter no longer matter. Where the curvature
   is negative or lost in rounding, its size or a floor takes its place, and no coordinate moves
   further than a trust radius: what was measured within r says little about what lies far beyond.
2. *Length.* Coordinates that interact overshoot when all of them make their best move at once. How
   much is measured, not assumed: a few evaluations along the step (`Search`), whose slope at 0 is
   known, settle its length. What the search finds to be the right multiple is where the next one
   begins (`Length`).
3. *Safeguard.* A point is accepted only if the loss there is lower. Where none is, the radius was
   too large for the landscape or the length for the block: both shrink.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_SHORT, _LONG = 0.25, 3.0  # the trial lengths around the one that is expected
_SHRINK = 0.1  # after a search that found nothing


def scaled(g: Vector, c: Vector, floor: Vector | float, reach: Vector | float) -> Vector:
    """-g / |c|, coordinate by coordinate, no further than `reach`.

    `floor` is the curvature below which a second difference is rounding or noise.

    >>> import numpy as np
    >>> scaled(np.array([2.0, 2.0, 2.0]), np.array([4.0, -4.0, 0.0]), 1e-3, 1.0)
    array([-0.5, -0.5, -1. ])
    """
    move = -g / np.maximum(np.abs(c), floor)
    return np.clip(move, -np.asarray(reach), reach)


@dataclass
class Search:
    """Trial points along a direction: two rounds of lengths, then the best of them.

    f at 0 and its slope there are known. `lengths` are to be evaluated next, `learn` takes their
    values (NaN or infinite where an evaluation failed), and when there are no more lengths `best`
    and `value` are the outcome, 0 and f(0) if no trial was lower.

    >>> search = Search(f0=1.0, slope=-2.0, length=0.1)
    >>> while search.lengths:
    ...     search.learn([(1 - s) ** 2 for s in search.lengths])
    >>> round(search.best, 6), round(search.value, 6)
    (1.0, 0.0)
    """

    f0: float
    slope: float
    length: float
    lengths: list[float] = field(default_factory=list)
    seen: list[tuple[float, float]] = field(default_factory=list)
    _rounds: int = 0

    def __post_init__(self) -> None:
        if not self._rounds:
            self.lengths = [_SHORT * self.length, self.length, _LONG * self.length]

    @property
    def best(self) -> float:
        return min(self.seen, key=lambda pair: pair[1])[0] if self._lower() else 0.0

    @property
    def value(self) -> float:
        return min(value for _, value in self.seen) if self._lower() else self.f0

    def _lower(self) -> bool:
        return any(value < self.f0 for _, value in self.seen)

    def learn(self, values: list[float]) -> None:
        """The values at `lengths`; sets the next ones."""
        self.seen += [(s, v) for s, v in zip(self.lengths, values, strict=True) if isfinite(v)]
        self._rounds += 1
        self.lengths = [self._refined()] if self._rounds == 1 else []

    def _refined(self) -> float:
        """Where a parabola through what is known has its lowest point."""
        if not self.seen:  # nothing there can be evaluated
            return 0.01 * self.length
        best = min(self.seen, key=lambda pair: pair[1])[0] if self._lower() else 0.0
        ordered = sorted([(0.0, self.f0), *self.seen])
        k = [s for s, _ in ordered].index(best)
        if k == 0:  # all went up: the slope at 0 and the nearest point say where to turn
            s, v = ordered[1]
            bend = (v - self.f0 - self.slope * s) / s**2
            star = -self.slope / (2 * bend) if bend > 0 else 0.1 * s
            return float(np.clip(star, 1e-3 * s, 0.7 * s))
        if k == len(ordered) - 1:  # still going down at the far end
            star = _lowest(*ordered[-3:]) if len(ordered) > 2 else np.inf
            return float(np.clip(star, 1.5 * best, 10 * best)) if star > best else 10 * best
        (a, fa), (b, fb), (c, fc) = ordered[k - 1 : k + 2]
        star = _lowest((a, fa), (b, fb), (c, fc))
        inside = a + 0.05 * (c - a) < star < c - 0.05 * (c - a)
        return float(star) if inside and star != b else (a + b) / 2


def _lowest(p: tuple[float, float], q: tuple[float, float], r: tuple[float, float]) -> float:
    """Where the parabola through three points turns; NaN for a straight line."""
    (a, fa), (b, fb), (c, fc) = p, q, r
    left, right = (b - a) * (fb - fc), (b - c) * (fb - fa)
    turn = left - right
    return b - 0.5 * ((b - a) * left - (b - c) * right) / turn if turn else np.nan


@dataclass
class Length:
    """The multiple of a proposed step that searches have found to be right, remembered."""

    value: float = 1.0

    def learn(self, found: float) -> None:
        """A search that began at `value` ended at `found`."""
        if found > 0:
            self.value = float(np.clip(np.sqrt(self.value * found), 1e-6, 1e3))
        else:
            self.value = max(1e-6, _SHRINK * self.value)
