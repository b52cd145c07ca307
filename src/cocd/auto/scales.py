"""Tensors whose slopes agree with those of a sweep ago, while the others' do not.

A coordinate that was moved by the part rho of its best step, s times as long as searches allow its
block, has the slope g' a sweep later, on other rows. If kappa is the signal's share of the square,

    E[g g'] = (kappa - rho s) E[g^2]

to first order. The search settles one length for a block with coordinates of all tensors. If most
slopes are noise (the right-hand side is near 0: steps are as long as noise allows) and those of one
tensor surely are not, that tensor takes longer steps. The stale slopes are in memory anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite, sqrt

import numpy as np

from ..parts.types import State
from .config import AutoConfig
from .direction import Vector

_ROUNDING = 1e-12  # of a sum of squares

Sums = list[float]  # of a, b, a^2, a b, b^2 over steps (`Scales.observe`)


@dataclass
class Scales:
    """The factor on each tensor's steps, and the current sweep's sums that decide it.

    One tensor's slopes are noise, another's are nearly the same in every sweep:

    >>> import numpy as np
    >>> rng, scales = np.random.default_rng(0), Scales()
    >>> tensors, same = np.array([0, 0, 1, 1]), np.array([0.0, 0.0, 1.0, 1.0])
    >>> for step in range(100):  # fifty a sweep
    ...     stale, fresh = same + (1 - 0.9 * same) * rng.normal(size=(2, 4))
    ...     scales.observe(tensors, stale, fresh, np.ones(4), sweeps=2 + step / 50)
    >>> scales.observe(tensors, stale, fresh, np.ones(4), sweeps=4.0)
    >>> scales.scales
    [1.0, 2.25]
    """

    scales: list[float] = field(default_factory=list)  # one per tensor; 1 if missing
    sweep: int = 0  # to which the sums belong; earlier ones are not compared
    sums: list[Sums] = field(default_factory=list)  # one per tensor
    config: AutoConfig = field(default=AutoConfig(), repr=False)

    def __post_init__(self) -> None:
        self.sweep = max(self.sweep, self.config.compared_from)

    def of(self, tensors: Sequence[int]) -> Vector:
        """The scales of these tensors."""
        known = len(self.scales)
        return np.array([self.scales[t] if t < known else 1.0 for t in tensors])

    def observe(
        self, tensors: Vector, stale: Vector, fresh: Vector, curvature: Vector, sweeps: float
    ) -> None:
        """Compare slopes of some coordinates, given the tensor of each and the sweeps done.

        In units of each coordinate's possible gain, a = g g' / c and b = (g^2 + g'^2) / 2c; their
        ratio is between -1 and 1. Unknown values are NaN. All slopes come from the same two
        batches, so a step, not a coordinate, counts as one observation.
        """
        if int(sweeps) > self.sweep:
            self._conclude()
            self.sweep, self.sums = int(sweeps), []
        if sweeps < self.sweep:
            return
        with np.errstate(all="ignore"):
            pairs = np.stack([stale * fresh, (stale**2 + fresh**2) / 2]) / curvature
        good = np.isfinite(pairs).all(0)
        for t in np.unique(tensors[good]).astype(int).tolist():
            self.sums += [[0.0] * 5 for _ in range(t + 1 - len(self.sums))]
            a, b = map(float, pairs[:, good & (tensors == t)].sum(1))
            if isfinite(a * a + b * b):
                fresh_sums = (a, b, a * a, a * b, b * b)
                self.sums[t] = [
                    old + new for old, new in zip(self.sums[t], fresh_sums, strict=True)
                ]

    def _conclude(self) -> None:
        self.scales += [1.0] * (len(self.sums) - len(self.scales))
        for t, own in enumerate(self.sums):
            others = [sum(each) for each in zip(*self.sums[:t], *self.sums[t + 1 :], strict=True)]
            match self._verdict(own, others) if others else 0:
                case 1:
                    self.scales[t] *= self.config.scale_step
                case -1:
                    self.scales[t] = max(1.0, self.scales[t] / self.config.scale_step)

    def _verdict(self, own: Sums, others: Sums) -> int:
        """1 if a tensor's slopes surely persist, more than the others'; -1 if they change sign."""
        sure = self.config.compared_errors
        if not own[1] * others[1] > 0:
            return 0
        r, weight = others[0] / others[1], own[1] / others[1]
        excess = own[0] - r * own[1]
        error = sqrt(_squares(own, r) + weight * weight * _squares(others, r))  # of `excess`
        alone = sqrt(_squares(own, 0.0))  # of Σ a
        if not isfinite(excess + error + alone):
            return 0
        if r < self.config.noisy and excess > sure * error and own[0] > sure * alone:
            return 1
        return -1 if own[0] < -sure * alone else 0

    def reset(self, sweep: int) -> None:
        """Forget all that was learned; compare from a sweep on."""
        self.scales, self.sums = [], []
        self.sweep = max(self.config.compared_from, sweep)

    def state_dict(self) -> State:
        sums = [list(each) for each in self.sums]
        return {"scales": list(self.scales), "sweep": self.sweep, "sums": sums}

    @classmethod
    def from_state(cls, saved: State, config: AutoConfig) -> Scales:
        sums = [list(each) for each in saved["sums"]]
        return cls(list(saved["scales"]), int(saved["sweep"]), sums, config)


def _squares(sums: Sums, r: float) -> float:
    """Σ (a - r b)², and what rounding may have taken from it."""
    _, _, aa, ab, bb = sums
    found = aa - 2 * r * ab + r * r * bb
    return max(0.0, found) + _ROUNDING * (aa + r * r * bb) if isfinite(found) else found
