"""A copy of the parameters at the lowest running loss, in case the loss explodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, isfinite, isnan, nan
from typing import Literal

from torch import Tensor

from ..errors import RestoreWarning
from ..parts.types import State
from ..parts.warn import warn
from .config import AutoConfig

Verdict = Literal["fine", "lost", "changed"]  # "changed": the copy is no better any more


@dataclass
class Rollback:
    """Keeps the parameters of the lowest running loss, and restores them if the loss explodes.

    A running loss may also rise because the objective changed, or because a few batches were odd.
    So the copy is restored only if it is better on the current batch, too. Otherwise it is dropped,
    and recording starts again.
    """

    loss: float = nan  # running mean
    noise: float = 0.0  # mean deviation of a loss from it
    lowest: float = inf
    rise: float = inf  # above the lowest: triggers a check
    steps: int = 0  # since the copy
    copy: list[Tensor] = field(default_factory=list)
    restored: int = 0  # times
    config: AutoConfig = field(default=AutoConfig(), repr=False)

    def alarm(self, loss: float) -> bool:
        """Whether this step's loss triggers a check."""
        return bool(self.copy) and self._mean(loss) - self.lowest > self.rise

    def check(
        self, loss: float, tensors: Sequence[Tensor], objective: Callable[[], float]
    ) -> Verdict:
        """If triggered, evaluate the objective at the copy and decide; warns once."""
        if not self.alarm(loss):
            return "fine"
        with self._swapped(tensors):
            there = objective()
        if not loss - there > self.rise / 2:
            return "changed"
        if not self.restored:
            warn(
                f"the loss has risen from {self.lowest:.3g} (a running mean) to {loss:.3g}: "
                "earlier parameters are restored. Warns once; `restored` counts later ones. "
                "After loading other weights build a new optimizer",
                RestoreWarning,
            )
        return "lost"

    def observe(
        self, loss: float, verdict: Verdict, tensors: Sequence[Tensor], sweep: float
    ) -> None:
        """Record a step's loss; copies the parameters at most every `sweep` steps."""
        off = 0.0 if isnan(self.loss) else loss - self.loss
        self.loss = self._mean(loss)
        self.noise += self.config.loss_follow * (abs(off) - self.noise) if isfinite(off) else 0.0
        self.steps += 1
        if verdict == "lost":
            self.loss, self.steps = self.lowest, 0
            self.noise = min(self.noise, self.rise / self.config.lost_noise)  # without explosion
        elif verdict == "changed":
            vars(self).update(vars(Rollback(restored=self.restored, config=self.config)))
        elif self.steps >= max(self.config.copy_steps, sweep) and self.loss < self.lowest:
            self.copy = [tensor.detach().clone() for tensor in tensors]
            self.lowest, self.steps = self.loss, 0
            least = max(abs(self.lowest), sys.float_info.min)
            self.rise = max((self.config.lost - 1) * least, self.config.lost_noise * self.noise)

    def restore(self, tensors: Sequence[Tensor]) -> None:
        """Restore the copy."""
        self._put(tensors)
        self.restored += 1

    @contextmanager
    def _swapped(self, tensors: Sequence[Tensor]) -> Iterator[None]:
        """Inside, the parameters hold the copy; they are restored bit for bit."""
        now = [tensor.detach().clone() for tensor in tensors]
        try:
            self._put(tensors)
            yield
        finally:
            for tensor, values in zip(tensors, now, strict=True):
                tensor.copy_(values)

    def _mean(self, loss: float) -> float:
        if isnan(self.loss):
            return loss
        return self.loss + self.config.loss_follow * (loss - self.loss)

    def _put(self, tensors: Sequence[Tensor]) -> None:
        for tensor, values in zip(tensors, self.copy, strict=False):  # others joined since
            if tensor.requires_grad:
                tensor.copy_(values)

    def state_dict(self) -> State:
        plain = {name: value for name, value in vars(self).items() if name != "config"}
        return {**plain, "copy": [values.clone() for values in self.copy]}

    @classmethod
    def from_state(cls, saved: State, config: AutoConfig) -> Rollback:
        copy = [values.clone() for values in saved["copy"]]
        return cls(**{**saved, "copy": copy, "config": config})
