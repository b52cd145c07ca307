"""Which tensors' slopes agree with those of a sweep ago, more than the others' do.

A coordinate that was moved by the part rho of its best step, s times as long as searches allow its
block, has the slope g' a sweep later, on other rows. If kappa is the signal's share of the square,

    E[g g'] = (kappa - rho s) E[g^2]

to first order. Where that is above 0 steps are too short, and where they are shorter than they
need be in one tensor alone, the search cannot tell: it settles one length for a block that has
coordinates of all tensors. So each tensor whose slopes agree more than all slopes do, beyond doubt,
takes longer steps than the others. The stale slopes are in memory anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ._auto import Vector

_FIRST = 2  # sweep: before that slopes are compared with those of a network that knew nothing
_SURE = 4.0  # standard errors
_TIMES = 1.5  # longer, or shorter again


@dataclass
class Coherence:
    """By what each tensor's steps are multiplied, and the present sweep's sums that decide it.

    The slopes of one tensor are noise, those of another nearly the same in every sweep:

    >>> import numpy as np
    >>> rng, coherence = np.random.default_rng(0), Coherence()
    >>> tensors, same = np.repeat([0, 1], 50), np.repeat([0.0, 1.0], 50)
    >>> for sweep in (2.0, 3.0, 4.0):
    ...     stale, fresh = same + (1 - 0.9 * same) * rng.normal(size=(2, 100))
    ...     coherence.learn(tensors, stale, fresh, np.ones(100), sweep)
    >>> coherence.scales
    [1.0, 2.25]
    """

    scales: list[float] = field(default_factory=list)  # one a tensor; those that are missing are 1
    sweep: int = _FIRST  # to which the sums belong
    sums: list[list[float]] = field(default_factory=list)  # of a, b, a^2, a b, b^2 (`learn`)

    def of(self, tensors: Sequence[int]) -> Vector:
        """The scales of these tensors."""
        known = len(self.scales)
        return np.array([self.scales[t] if t < known else 1.0 for t in tensors])

    def learn(
        self, tensors: Vector, stale: Vector, fresh: Vector, curvature: Vector, sweeps: float
    ) -> None:
        """Slopes of some coordinates, and the tensor that each is in; so many sweeps are done.

        In units of what each coordinate has to gain, a = g g' / c and b = g'^2 / c. What is not
        known is NaN.
        """
        if int(sweeps) > self.sweep:
            self._conclude()
            self.sweep, self.sums = int(sweeps), []
        if sweeps < _FIRST:
            return
        with np.errstate(all="ignore"):
            a, b = stale * fresh / curvature, fresh * fresh / curvature
            terms = np.stack([a, b, a * a, a * b, b * b])
        good = np.isfinite(terms).all(0)
        for t in np.unique(tensors[good]).astype(int).tolist():
            self.sums += [[0.0] * 5 for _ in range(t + 1 - len(self.sums))]
            here = terms[:, good & (tensors == t)].sum(1)
            self.sums[t] = [old + float(new) for old, new in zip(self.sums[t], here, strict=True)]

    def _conclude(self) -> None:
        """Longer where the excess a - r b, r that of all tensors, is surely above 0."""
        total = sum(sums[1] for sums in self.sums)
        if not total > 0:
            return
        r = sum(sums[0] for sums in self.sums) / total
        self.scales += [1.0] * (len(self.sums) - len(self.scales))
        for t, (a, b, aa, ab, bb) in enumerate(self.sums):
            error = max(0.0, aa - 2 * r * ab + r * r * bb) ** 0.5
            if a - r * b > _SURE * error:
                self.scales[t] *= _TIMES
            elif r * b - a > _SURE * error:
                self.scales[t] = max(1.0, self.scales[t] / _TIMES)

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state(cls, saved: dict[str, Any]) -> Coherence:
        return cls(list(saved["scales"]), int(saved["sweep"]), [list(s) for s in saved["sums"]])
