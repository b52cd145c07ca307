"""`RandomCoordinate`: coordinates drawn at random, without memory."""

from __future__ import annotations

from torch.optim.optimizer import ParamsT

from ...parts.types import Modules
from ...schedules import Random
from ..cocd import CoCD


class RandomCoordinate(CoCD):
    """`compute_budget` distinct coordinates drawn at random at every step, no memory.

    >>> import torch, cocd
    >>> x = torch.ones(4, requires_grad=True)
    >>> optimizer = cocd.baselines.RandomCoordinate([x], lr=0.5, compute_budget=2, seed=0)
    >>> for _ in range(20):
    ...     loss = optimizer.step(lambda: (x**2).sum())
    >>> bool(x.abs().max() < 1e-5)
    True
    """

    _whole = (*CoCD._whole, "decay", "seed")
    _kept = (*CoCD._kept, "seed")

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        eps: float = 0.1,
        compute_budget: int | None = None,
        weight_decay: float = 0.0,
        difference: str = "central",
        nonfinite: str = "skip",
        modules: Modules = None,
        seed: int = 0,
    ) -> None:
        self.seed = seed
        super().__init__(
            params,
            lr,
            eps=eps,
            compute_budget=compute_budget,
            schedule=Random(seed=seed),
            decay=0.0,
            weight_decay=weight_decay,
            difference=difference,
            nonfinite=nonfinite,
            modules=modules,
        )
