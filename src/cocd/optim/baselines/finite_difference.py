"""`FiniteDifference`: all n coordinates at every step."""

from __future__ import annotations

from torch.optim.optimizer import ParamsT

from ...parts.types import Modules
from ..cocd import CoCD


class FiniteDifference(CoCD):
    """Gradient descent on finite differences of all n coordinates, 2n + 1 evaluations per step.

    >>> import torch, cocd
    >>> x = torch.ones(4, requires_grad=True)
    >>> optimizer = cocd.baselines.FiniteDifference([x], lr=0.5, eps=0.1)
    >>> loss = optimizer.step(lambda: (x**2).sum())
    >>> bool(x.abs().max() < 1e-5), optimizer.evaluations
    (True, 9)
    """

    _whole = (*CoCD._whole, "decay")

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        eps: float = 0.1,
        weight_decay: float = 0.0,
        difference: str = "central",
        nonfinite: str = "skip",
        modules: Modules = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            eps=eps,
            decay=0.0,
            weight_decay=weight_decay,
            difference=difference,
            nonfinite=nonfinite,
            modules=modules,
        )
        self._follow()

    def _follow(self) -> None:
        super()._follow()
        self.compute_budget = self._schedule.size  # all there are, also those that join
