"""Coordinate methods without memory: CoCD with one part swapped."""

from __future__ import annotations

from typing import Any

from ..optim.cocd import CoCD
from ..parts.schedule import Random, Schedule


class BCCD(CoCD):
    """Block cyclic coordinate descent: CoCD with ``decay=0``, remembering the fresh block alone.

    It moves a coordinate once a sweep where CoCD moves it n / B times, so it wants a learning
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
        params: Any,
        lr: float,
        *,
        eps: float = 0.1,
        compute_budget: int = 1,
        weight_decay: float = 0.0,
        difference: str = "central",
        nonfinite: str = "skip",
        modules: Any = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            eps=eps,
            compute_budget=compute_budget,
            memory_budget=compute_budget,
            decay=0.0,
            weight_decay=weight_decay,
            difference=difference,
            nonfinite=nonfinite,
            modules=modules,
        )


class FiniteDifference(CoCD):
    """Gradient descent on finite differences of all n coordinates, 2n + 1 evaluations a step.

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
        params: Any,
        lr: float,
        *,
        eps: float = 0.1,
        weight_decay: float = 0.0,
        difference: str = "central",
        nonfinite: str = "skip",
        modules: Any = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            eps=eps,
            compute_budget=None,  # type: ignore[arg-type]  # all there are, also those that join
            decay=0.0,
            weight_decay=weight_decay,
            difference=difference,
            nonfinite=nonfinite,
            modules=modules,
        )

    def _budget(self) -> int:
        self.compute_budget = self._schedule.n
        return self.compute_budget


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
        params: Any,
        lr: float,
        *,
        eps: float = 0.1,
        compute_budget: int = 1,
        weight_decay: float = 0.0,
        difference: str = "central",
        nonfinite: str = "skip",
        modules: Any = None,
        seed: int = 0,
    ) -> None:
        self.seed = seed
        super().__init__(
            params,
            lr,
            eps=eps,
            compute_budget=compute_budget,
            decay=0.0,
            weight_decay=weight_decay,
            difference=difference,
            nonfinite=nonfinite,
            modules=modules,
        )

    def _new_schedule(self, n: int) -> Schedule:
        return Random(n, self.seed)
