"""What `AutoCoCD` has learned: all that a resumed run needs besides CoCD's own state."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from ..parts.types import State
from .block import Block
from .block_probes import BlockProbes
from .budget import Budget, least_budget
from .config import AutoConfig
from .curvature import Curvature
from .direction import Vector
from .line_search import Length, SearchResult
from .move import Move
from .radius import Radius
from .reach import Reach
from .rollback import Rollback
from .scales import Scales

_PARTS: dict[str, type[Reach | Radius | Curvature | Rollback | Scales]] = {
    "reach": Reach,
    "radius": Radius,
    "curvature": Curvature,
    "rollback": Rollback,
    "scales": Scales,
}
SAVED = (*_PARTS, "first_lr", "config", "lengths", "budget", "last")


@dataclass
class Learned:
    """The parts that learn, each with the config's constants; new ones know nothing."""

    config: AutoConfig
    first_lr: float = 1.0
    lengths: dict[int, Length] = field(default_factory=dict)  # by tensor, or one for all
    budget: Budget | None = None  # None: B was given, and nothing is judged
    last: Move = field(default_factory=Move)  # what is to be judged on the next batch

    def __post_init__(self) -> None:
        self.reach = Reach(config=self.config)
        self.radius = Radius(config=self.config)
        self.curvature = Curvature()
        self.rollback = Rollback(config=self.config)
        self.scales = Scales(config=self.config)

    # --- how long, how bold ---------------------------------------------------------------------

    def length(self, key: int) -> Length:
        """The length at which the search starts."""
        fresh = Length(self.first_lr, self.config.length_follow, self.config.length_shrink)
        return self.lengths.get(key, fresh)

    @property
    def boldness(self) -> float:
        return 1.0 if self.budget is None else self.budget.boldness

    def age(self, swept: float) -> float:
        """Sweeps so far in which noise limited steps, if that is known."""
        return swept if self.budget is None else self.budget.age

    def part(self, swept: float) -> float:
        """rho, the share of the step that is best on one mini-batch (6)."""
        return self.config.part / sqrt(1 + self.age(swept) / self.config.part_sweeps)

    def left(self, swept: float, spent: int, most: int | None) -> float:
        """1, falling linearly to nearly 0 over the last of `most` evaluations."""
        if most is None or self.age(swept) < self.config.end_sweeps:
            return 1.0
        return min(1.0, max(self.config.end_part, (1 - spent / most) / self.config.end))

    # --- learning -------------------------------------------------------------------------------

    def observe_search(self, key: int, found: SearchResult) -> None:
        """Learn from a search: where the next one starts, and how far it may go."""
        length = self.lengths[key] = self.length(key)
        length.observe(found.tried, found.length)
        self.reach.observe(found.limited)

    def compare(self, block: Block, probes: BlockProbes, stale: Vector, swept: float) -> None:
        """Compare fresh slopes with those of a sweep ago, NaN where there were none."""
        c = np.abs(block.curvatures(probes.c))
        finite = c[np.isfinite(c)]
        damping = self.config.damping * float(finite.mean()) if len(finite) else 0.0
        slopes = block.slopes(stale), block.slopes(probes.g)
        self.scales.observe(block.spread(block.tensors), *slopes, c + damping, swept)  # (10)

    def judge(self, gain: float | None, swept: float, B: int, n: int, m: int) -> None:
        """Decide on B and boldness, from what the last move gained on this batch."""
        own = self.budget
        if own is None:
            return
        if own.size != B:  # the user set it: it stays
            own.set(B, free=False)
        if gain is not None:
            own.observe(
                gain,
                self.last,
                part=self.part(swept) * self.last.scale,
                sweeps=swept,
                sweep=n / B,
                least=least_budget(self.config, n, m),
            )
        own.step(B / n)

    def went_back(self, swept: float) -> None:
        """Better parameters were restored: forget what was learned since."""
        self.compare_anew(swept)
        self.reach.reset()
        for length in self.lengths.values():
            length.value *= 0.5

    def compare_anew(self, swept: float) -> None:
        """Compare slopes again once all remembered ones are newer than this."""
        self.scales.reset(int(swept) + 2)

    # --- saving ---------------------------------------------------------------------------------

    def state_dict(self) -> State:
        return {
            "first_lr": float(self.first_lr),
            "config": self.config.state_dict(),
            "lengths": {str(t): length.value for t, length in self.lengths.items()},
            **{name: getattr(self, name).state_dict() for name in _PARTS},
            "budget": self.budget and self.budget.state_dict(),
            "last": self.last.state_dict(),
        }

    @classmethod
    def from_state(cls, saved: State) -> Learned:
        config, budget = AutoConfig.from_state(saved["config"]), saved["budget"]
        found = cls(
            config,
            float(saved["first_lr"]),
            {
                int(t): Length(value, config.length_follow, config.length_shrink)
                for t, value in saved["lengths"].items()
            },
            budget and Budget.from_state(budget, config),
            Move.from_state(saved["last"]),
        )
        for name, part in _PARTS.items():
            setattr(found, name, part.from_state(saved[name], config))
        return found
