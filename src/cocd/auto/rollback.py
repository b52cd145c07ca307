"""A copy of the parameters at the lowest running loss, for when all seems lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from math import inf, isfinite, isnan, nan
from typing import Any

from torch import Tensor

from ..errors import RestoreWarning
from ..parts.warn import warn

_LOST = 3.0  # times the lowest running loss: the point where that was may have to be restored
_NOISE = 3.0  # so many times a loss is off its running mean at least: near 0 noise would do it
_FOLLOW = 0.02  # of a loss in the running mean


@dataclass
class Guard:
    """Keeps the parameters of the lowest running loss, and puts them back when all seems lost.

    A running loss that has risen may also mean that the objective is another one now, or that a few
    batches were odd. So the copy is put back only if it is better on the batch at hand, too
    (`look` finds out); otherwise it is of no more use, and all begins anew.
    """

    loss: float = nan  # running mean
    noise: float = 0.0  # mean distance of a loss from that
    lowest: float = inf
    rise: float = inf  # above the lowest at which all may be lost
    steps: int = 0  # since the copy was made
    copy: list[Tensor] = field(default_factory=list)
    restored: int = 0  # times

    def rings(self, loss: float) -> bool:
        """Whether with this step's loss all may be lost: then `is_lost` needs that of the copy."""
        return bool(self.copy) and self._mean(loss) - self.lowest > self.rise

    def look(self, loss: float, tensors: list[Tensor], objective: Callable[[], float]) -> float:
        """The objective at the copy, where all may be lost; else NaN. A better one is said."""
        if not self.rings(loss):
            return nan
        with self.swapped(tensors):
            there = objective()
        if self.is_better(loss, there) and not self.restored:
            warn(
                f"the loss has risen from {self.lowest:.3g} (a running mean) to {loss:.3g}: "
                "parameters from before are put back. This is said once; `restored` counts on. "
                "After loading other weights build a new optimizer",
                RestoreWarning,
            )
        return there

    def is_better(self, loss: float, there: float) -> bool:
        """Whether the copy, `there`, is really the better point, on the same batch."""
        return loss - there > self.rise / 2

    def is_lost(self, loss: float, tensors: list[Tensor], sweep: float, there: float = nan) -> bool:
        """Learn a step's loss; whether the parameters have just been put back."""
        rings, off = self.rings(loss), 0.0 if isnan(self.loss) else loss - self.loss
        self.loss = self._mean(loss)
        self.noise += _FOLLOW * (abs(off) - self.noise) if isfinite(off) else 0.0
        self.steps += 1
        if rings and self.is_better(loss, there):
            self._put(tensors)
            self.loss, self.steps = self.lowest, 0
            self.noise = min(self.noise, self.rise / _NOISE)  # without the explosion
            self.restored += 1
            return True
        if rings:
            vars(self).update(vars(Guard(restored=self.restored)))
        elif self.steps >= max(50, sweep) and self.loss < self.lowest:
            self.copy = [tensor.detach().clone() for tensor in tensors]
            self.lowest, self.steps = self.loss, 0
            least = max(abs(self.lowest), sys.float_info.min)
            self.rise = max((_LOST - 1) * least, _NOISE * self.noise)
        return False

    @contextmanager
    def swapped(self, tensors: list[Tensor]) -> Iterator[None]:
        """The copy stands in the parameters' place, which are then as they were, bit for bit."""
        now = [tensor.detach().clone() for tensor in tensors]
        try:
            self._put(tensors)
            yield
        finally:
            for tensor, values in zip(tensors, now, strict=True):
                tensor.copy_(values)

    def _mean(self, loss: float) -> float:
        return loss if isnan(self.loss) else self.loss + _FOLLOW * (loss - self.loss)

    def _put(self, tensors: list[Tensor]) -> None:
        for tensor, values in zip(tensors, self.copy, strict=False):  # others joined since
            if tensor.requires_grad:
                tensor.copy_(values)

    def state_dict(self) -> dict[str, Any]:
        return {**vars(self), "copy": [values.clone() for values in self.copy]}

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Guard:
        known = {each.name: saved[each.name] for each in fields(cls) if each.name in saved}
        return cls(**{**known, "copy": [values.clone() for values in saved["copy"]]})
