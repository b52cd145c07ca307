"""A copy of the parameters at the lowest running loss, for when all seems lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isnan, nan
from typing import Any

from torch import Tensor

_LOST = 3.0  # times the lowest running loss: the point where that was is restored


@dataclass
class Guard:
    """Keeps the parameters of the lowest running loss, and puts them back when all seems lost."""

    loss: float = nan  # running mean
    lowest: float = inf
    steps: int = 0  # since the copy was made
    copy: list[Tensor] = field(default_factory=list)

    def is_lost(self, loss: float, tensors: list[Tensor], sweep: float) -> bool:
        """Learn a step's loss; whether the parameters have just been put back."""
        self.loss = loss if isnan(self.loss) else self.loss + 0.02 * (loss - self.loss)
        self.steps += 1
        if self.copy and self.loss - self.lowest > (_LOST - 1) * max(abs(self.lowest), 1e-12):
            for tensor, values in zip(tensors, self.copy, strict=False):
                if tensor.requires_grad:
                    tensor.copy_(values.view_as(tensor))
            self.loss, self.steps = self.lowest, 0
            return True
        if self.steps >= max(50, sweep) and self.loss < self.lowest:
            self.copy = [tensor.detach().clone() for tensor in tensors]
            self.lowest, self.steps = self.loss, 0
        return False

    def state_dict(self) -> dict[str, Any]:
        copies = [values.clone() for values in self.copy]
        return {"loss": self.loss, "lowest": self.lowest, "steps": self.steps, "copy": copies}

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Guard:
        copies = [values.clone() for values in saved["copy"]]
        return cls(float(saved["loss"]), float(saved["lowest"]), int(saved["steps"]), copies)
