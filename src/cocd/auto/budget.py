"""How bold steps may be, judged on the next batch.

A step takes a part rho of the best move on its own batch, which would gain d there. One evaluation,
at the point where the step began, gives its gain on the next batch: both ends are evaluated on the
same rows, so their difficulty cancels. If slopes are signal plus noise, and kappa is the signal's
share of their square, that gain is

    G = d (2 rho kappa - rho^2),    so    kappa = (G / d + rho^2) / (2 rho)

The loss falls fastest at rho = kappa and stays level at rho = 2 kappa. If rho is below kappa, not
noise but the number of coordinates that move at once limits steps: B halves. If rho is near
2 kappa, steps become shorter. The last decision is kept, so kappa's error counts against either
decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import hypot, isfinite

from ..parts.types import State
from .config import AutoConfig
from .move import Move


def least_budget(config: AutoConfig, n: int, m: int) -> int:
    """The smallest B for n coordinates of which m are remembered."""
    return min(config.least_budget, max(1, n // 8), m)


def first_budget(config: AutoConfig, n: int, m: int) -> int:
    """The first and largest B: few, so that each is measured after others moved.

    >>> [first_budget(AutoConfig(), n, n) for n in (100, 4_000, 12_727, 1_000_000)]
    [12, 125, 397, 512]
    """
    largest = min(m, config.largest_budget, n // config.first_steps)
    return max(least_budget(config, n, m), largest)


@dataclass
class Budget:
    """The signal's share kappa over about the last sweep of steps, and the decisions from it.

    Here each step takes 0.4 of the best move, and gains on the next batch all that it promised:

    >>> budget, move = Budget(size=512), Move(taken=0.4, whole=1.0)
    >>> for step in range(32):
    ...     budget.observe(0.64, move, part=0.4, sweeps=0, sweep=100, least=64)
    >>> budget.size, budget.boldness
    (128, 1.0)

    From the second sweep on half of it is lost, and then all:

    >>> for gain in [0.3] * 200 + [0.0] * 200:
    ...     budget.observe(gain, move, part=0.4, sweeps=1, sweep=100, least=64)
    >>> budget.size, round(budget.boldness, 2)
    (64, 0.85)
    """

    size: int  # B
    boldness: float = 1.0  # factor on every part
    free: bool = True  # False: the user set B
    age: float = 0.0  # sweeps in which noise limited steps
    seen: list[tuple[float, float]] = field(default_factory=list)  # kappa d and d of each step
    config: AutoConfig = field(default=AutoConfig(), repr=False)

    def set(self, size: int, free: bool) -> None:
        """Start again with another B, chosen by the method or by the user."""
        self.size, self.free, self.seen = size, free, []

    def observe(
        self, gain: float, move: Move, *, part: float, sweeps: float, sweep: float, least: int
    ) -> None:
        """Record what a move gained on the next batch.

        `part` is the share without boldness; `sweeps` are done, of `sweep` steps each.
        """
        config, whole, taken = self.config, move.whole, move.taken
        fresh = ((gain + taken * taken * whole) / (2 * taken), whole)  # (8)
        if not isfinite(fresh[0] * fresh[0] + whole * whole):  # sums of squares would overflow
            return
        window = min(max(2 * config.judged_steps, int(sweep)), config.window)
        self.seen = [*self.seen, fresh][-window:]
        if len(self.seen) < config.judged_steps:
            return
        kappa, error = _signal(self.seen)
        now = min(_signal(self.seen[-config.judged_steps :])[0], kappa)
        if self.free and self.size > least and kappa - config.halving_errors * error > part:
            self.size, self.seen = max(self.size // 2, least), []
        elif sweeps >= config.bold_sweeps:
            more = min(1.0, now - config.halving_errors * error) / part
            less = config.boldest * (kappa + config.boldness_errors * error) / part  # (9)
            self.boldness = more if more > 1 else min(1.0, max(config.least_boldness, less))

    def step(self, sweeps: float) -> None:
        """Count this share of a sweep as done."""
        if self.boldness <= 1:
            self.age += sweeps

    def state_dict(self) -> State:
        seen = [list(pair) for pair in self.seen]
        return {
            "size": self.size,
            "boldness": self.boldness,
            "free": self.free,
            "age": self.age,
            "seen": seen,
        }

    @classmethod
    def from_state(cls, saved: State, config: AutoConfig) -> Budget:
        pairs: list[tuple[float, float]] = saved["seen"]
        seen = [(float(kd), float(d)) for kd, d in pairs]
        return cls(**{**saved, "seen": seen, "config": config})


def _signal(seen: list[tuple[float, float]]) -> tuple[float, float]:
    """Kappa and its standard error."""
    total = sum(d for _, d in seen)
    kappa = sum(kd for kd, _ in seen) / total
    return kappa, hypot(*(kd - kappa * d for kd, d in seen)) / total
