"""The radius of probes, tensor by tensor: it should match the length of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import exp, log, nan

import numpy as np

from ..parts.types import State
from .config import AutoConfig
from .direction import Vector

_SHORTEST = 1e-3  # radii: the length that a failed step counts as


@dataclass
class TensorRadius:
    """One tensor's radius, as a multiple of `eps`, and the statistics since its last change."""

    value: float = 1.0
    steps: float = 0.0  # sum of the logarithms of steps in radii,
    count: int = 0  # of so many
    lost: float = 0.0  # sum of the shares of differences that were lost,
    measured: int = 0  # of so many
    before: float = -1.0  # that share before the change on trial; -1: no trial
    factor: float = 1.0  # factor of that change
    may_grow: bool = True  # False once it did not help
    may_shrink: bool = True

    def observe(self, step: float | None, lost: float | None) -> None:
        if step is not None:
            self.steps, self.count = self.steps + log(max(step, _SHORTEST)), self.count + 1
        if lost is not None:
            self.lost, self.measured = self.lost + lost, self.measured + 1

    def change(self, config: AutoConfig) -> bool:
        """Change the radius if the statistics say so; returns whether it did."""
        if not self.measured or self.count + self.measured < 2 * config.radius_steps:
            return False
        lost = self.lost / self.measured
        step = exp(self.steps / self.count) if self.count else nan
        factor, before = 1.0, -1.0
        if self._failed(lost, config):
            factor = 1 / self.factor
            self.may_grow &= self.factor < 1
            self.may_shrink &= self.factor > 1
        elif lost > config.lost_share and self.value < config.widest and self.may_grow:
            factor, before = config.radius_factor, lost
        elif step < config.short_step and self.value > config.narrowest and self.may_shrink:
            factor, before = 1 / config.radius_factor, lost
        elif step > config.long_step and self.value < 1:
            factor = config.radius_factor
        fresh = TensorRadius(self.value * factor, before=before, factor=factor)
        fresh.may_grow, fresh.may_shrink = self.may_grow, self.may_shrink
        vars(self).update(vars(fresh))
        return factor != 1

    def _failed(self, lost: float, config: AutoConfig) -> bool:
        """Whether the change on trial lost more differences than allowed."""
        if self.before < 0:
            return False
        most = config.less_lost * self.before if self.factor > 1 else self.before + config.more_lost
        return lost > most


@dataclass
class Radius:
    """The factor on each tensor's `eps`.

    If steps are a hundredth of the radius long, measurements say little about them: the radius
    narrows. If most differences are lost (0, or rounding), it widens, as long as that loses fewer.

    >>> radius = Radius()
    >>> for _ in range(16):
    ...     changed = radius.observe([0, 1], steps=[0.05, 0.001], lost=[0.0, 0.0])
    >>> radius.of([0, 1]), changed
    (array([1.    , 0.0625]), [1])
    """

    tensors: list[TensorRadius] = field(default_factory=list)
    config: AutoConfig = field(default=AutoConfig(), repr=False)

    def of(self, tensors: Sequence[int]) -> Vector:
        known = len(self.tensors)
        return np.array([self.tensors[t].value if t < known else 1.0 for t in tensors])

    def observe(
        self,
        tensors: Sequence[int],
        steps: Sequence[float | None],
        lost: Sequence[float | None],
    ) -> list[int]:
        """Record the length of a step, in radii, and the share of lost differences.

        None where that was not seen.
        """
        changed = []
        for t, step, share in zip(tensors, steps, lost, strict=True):
            while len(self.tensors) <= t:
                self.tensors.append(TensorRadius())
            self.tensors[t].observe(step, share)
            if self.tensors[t].change(self.config):
                changed.append(t)
        return changed

    def state_dict(self) -> list[State]:
        return [asdict(each) for each in self.tensors]

    @classmethod
    def from_state(cls, saved: Sequence[State], config: AutoConfig) -> Radius:
        return cls([TensorRadius(**each) for each in saved], config)
