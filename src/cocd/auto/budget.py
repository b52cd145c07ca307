"""How bold steps may be, judged on the batch that comes after each.

A step takes a part rho of the move that is best on its own batch, whose whole gain there is d. What
it gained on the next batch costs one evaluation, at the point where the step began; both ends are
seen on the same rows, so that how hard these are cancels. If slopes are signal and noise, and kappa
is the signal's share of their square, that gain is

    G = d (2 rho kappa - rho^2),    so    kappa = (G / d + rho^2) / (2 rho)

A loss falls fastest at rho = kappa and stands still at rho = 2 kappa. Where rho is below kappa,
noise is not what holds steps back but the coordinates that move at once: B halves. Where it is near
2 kappa, steps become shorter. What was concluded last stays, so kappa's error counts against
either conclusion.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import hypot, isfinite
from typing import Any

# Coordinates a step: few, so that each is measured after the others have moved; many, where noise
# is the greater trouble.
_LEAST_BUDGET, _LARGEST_BUDGET = 64, 512
_STEPS_A_SWEEP = 32  # at first
SETTLED = 4  # sweeps. Later on rho is near 2 kappa whatever it is: the loss follows it down
_FIRST = 1  # sweep before which slopes are mostly signal, and say nothing about later ones
_STEPS = 16  # at least, before anything is concluded
_WINDOW = 2 * _STEPS, 512  # a sweep's steps, but not fewer or more than these
_SURE = 2.0  # standard errors of kappa above rho, looked at after every step: B halves
_DOUBT = 1.0  # standard errors that kappa is given before steps become shorter
_BOLDEST = 1.7  # of rho / kappa
_LEAST = 0.1  # of the boldness


def least_budget(n: int, m: int) -> int:
    """Coordinates a step at least, of n of which m are remembered."""
    return min(_LEAST_BUDGET, max(1, n // 8), m)


def first_budget(n: int, m: int) -> int:
    """Coordinates a step at first, and at most.

    >>> [first_budget(n, n) for n in (100, 4_000, 12_727, 1_000_000)]
    [12, 125, 397, 512]
    """
    return max(least_budget(n, m), min(m, _LARGEST_BUDGET, n // _STEPS_A_SWEEP))


@dataclass
class Share:
    """The signal's share kappa over the last steps, a sweep's or so, and what follows from it.

    Here each step takes 0.4 of the best move, and gains on the next batch all that it promised:

    >>> share = Share(budget=512)
    >>> for step in range(32):
    ...     share.learn(gain=0.64, whole=1.0, taken=0.4, part=0.4, sweeps=0, sweep=100, least=64)
    >>> share.budget, share.boldness
    (128, 1.0)

    From the second sweep on half of it is lost, and then all:

    >>> for gain in [0.3] * 200 + [0.0] * 200:
    ...     share.learn(gain=gain, whole=1.0, taken=0.4, part=0.4, sweeps=1, sweep=100, least=64)
    >>> share.budget, round(share.boldness, 2)
    (64, 0.85)
    """

    budget: int
    boldness: float = 1.0  # by which every part is multiplied
    free: bool = True  # False: the budget is somebody else's
    seen: list[tuple[float, float]] = field(default_factory=list)  # kappa d and d of each step

    def learn(
        self,
        *,
        gain: float,
        whole: float,
        taken: float,
        part: float,
        sweeps: float,
        sweep: float,
        least: int,
    ) -> None:
        """What a step gained on the next batch, of a `whole` on its own, when `taken` was taken.

        `part` is what would be taken without boldness, `sweeps` are done, one has `sweep` steps.
        """
        fresh = ((gain + taken * taken * whole) / (2 * taken), whole)
        if not isfinite(fresh[0] * fresh[0] + whole * whole):  # sums of squares would overflow
            return
        fewest, most = _WINDOW
        self.seen = [*self.seen, fresh][-min(max(fewest, int(sweep)), most) :]
        if len(self.seen) < _STEPS:
            return
        total = sum(d for _, d in self.seen)
        kappa = sum(kd for kd, _ in self.seen) / total
        error = hypot(*(kd - kappa * d for kd, d in self.seen)) / total
        if self.free and self.budget > least and kappa - _SURE * error > part:
            self.budget, self.seen = max(self.budget // 2, least), []
        elif sweeps >= _FIRST:
            self.boldness = min(1.0, max(_LEAST, _BOLDEST * (kappa + _DOUBT * error) / part))

    def state_dict(self) -> dict[str, Any]:
        return {**asdict(self), "seen": [list(pair) for pair in self.seen]}

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Share:
        kappa_d: list[Any] = saved["seen"]
        return cls(**{**saved, "seen": [(float(kd), float(d)) for kd, d in kappa_d]})
