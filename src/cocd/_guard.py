"""A copy of the parameters at the lowest running loss, for when all seems lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite, isnan, nan
from typing import Any

from torch import Tensor

_LOST = 3.0  # times the lowest running loss: the point where that was is restored
_NOISE = 3.0  # so many times a loss is off its running mean at least: near 0 noise would do it


@dataclass
class Guard:
    """Keeps the parameters of the lowest running loss, and puts them back when all seems lost."""

    loss: float = nan  # running mean
    noise: float = 0.0  # mean distance of a loss from that
    lowest: float = inf
    rise: float = inf  # above the lowest at which all is lost
    steps: int = 0  # since the copy was made
    copy: list[Tensor] = field(default_factory=list)

    def is_lost(self, loss: float, tensors: list[Tensor], sweep: float) -> bool:
        """Learn a step's loss; whether the parameters have just been put back."""
        off = 0.0 if isnan(self.loss) else loss - self.loss
        self.loss = loss if isnan(self.loss) else self.loss + 0.02 * off
        self.noise += 0.02 * (abs(off) - self.noise) if isfinite(off) else 0.0
        self.steps += 1
        if self.copy and self.loss - self.lowest > self.rise:
            for tensor, values in zip(tensors, self.copy, strict=False):
                if tensor.requires_grad:
                    tensor.copy_(values.view_as(tensor))
            self.loss, self.steps = self.lowest, 0
            self.noise = min(self.noise, self.rise / _NOISE)  # without the explosion
            return True
        if self.steps >= max(50, sweep) and self.loss < self.lowest:
            self.copy = [tensor.detach().clone() for tensor in tensors]
            self.lowest, self.steps = self.loss, 0
            self.rise = max((_LOST - 1) * max(abs(self.lowest), 1e-12), _NOISE * self.noise)
        return False

    def state_dict(self) -> dict[str, Any]:
        return {**vars(self), "copy": [values.clone() for values in self.copy]}

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Guard:
        return cls(**{**saved, "copy": [values.clone() for values in saved["copy"]]})
