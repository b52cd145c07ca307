"""`BCCD`: CoCD without memory."""

from __future__ import annotations

from torch.optim.optimizer import ParamsT

from ...parts.types import Modules
from ...schedules import Schedule
from ..cocd import CoCD


class BCCD(CoCD):
    """Block cyclic coordinate descent: CoCD with ``decay=0``, which uses only the fresh block.

    It moves a coordinate once per sweep, where CoCD moves it n / B times. So it needs a learning
    rate larger by about that factor.

    >>> import torch, cocd
    >>> x = torch.ones(4, requires_grad=True)
    >>> optimizer = cocd.baselines.BCCD([x], lr=0.5, eps=0.1, compute_budget=2)
    >>> for _ in range(2):
    ...     loss = optimizer.step(lambda: (x**2).sum())
    >>> bool(x.abs().max() < 1e-5)
    True
    """

    _whole = (*CoCD._whole, "decay")

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        eps: float = 0.1,
        compute_budget: int | None = None,
        schedule: Schedule | None = None,
        weight_decay: float = 0.0,
        difference: str = "central",
        nonfinite: str = "skip",
        modules: Modules = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            eps=eps,
            compute_budget=compute_budget,
            memory_budget=compute_budget,
            schedule=schedule,
            decay=0.0,
            weight_decay=weight_decay,
            difference=difference,
            nonfinite=nonfinite,
            modules=modules,
        )
