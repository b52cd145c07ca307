"""`EvolutionStrategy`: Gaussian directions, weighted by the ranks of their losses if asked."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import torch
from torch.optim.optimizer import ParamsT

from ...parts.types import State
from ...parts.validation import check_choice
from .direction_method import DirectionMethod, Options, Pair

if TYPE_CHECKING:
    from typing_extensions import Unpack


class EvolutionStrategy(DirectionMethod):
    """Antithetic evolution strategy (Salimans et al.); ``shaping="rank"`` uses ranks of losses.

    >>> import torch, cocd
    >>> x = torch.ones(3, requires_grad=True)
    >>> optimizer = cocd.baselines.EvolutionStrategy(
    ...     [x], lr=0.02, eps=0.1, directions=8, shaping="rank", seed=0
    ... )
    >>> for _ in range(200):
    ...     loss = optimizer.step(lambda: (x**2).sum())
    >>> bool(x.norm() < 0.2)
    True
    """

    _whole = (*DirectionMethod._whole, "shaping")
    _kept = (*DirectionMethod._kept, "shaping")

    def __init__(
        self, params: ParamsT, lr: float, *, shaping: str = "none", **options: Unpack[Options]
    ) -> None:
        self.shaping = check_choice("shaping", shaping, ("none", "rank"))
        super().__init__(params, lr, **options)

    def _usable(self, pair: Pair) -> bool:
        if self.shaping == "none":
            return super()._usable(pair)
        return isfinite(pair[1]) and isfinite(pair[2])  # ranks do not overflow

    def _weights(self, pairs: list[Pair]) -> list[float]:
        if self.shaping == "none":
            return super()._weights(pairs)
        losses = torch.tensor([[up, down] for _, up, down in pairs], dtype=torch.float64)
        # Centred ranks, -1/2 to 1/2; equal losses share the mean of their ranks.
        flat = losses.flatten()
        below, equal = (flat[:, None] > flat).double(), (flat[:, None] == flat).double()
        ranks = below.sum(1) + (equal.sum(1) - 1) / 2
        ranks = (ranks / (len(flat) - 1) - 0.5).view_as(losses)
        return (ranks[:, 0] - ranks[:, 1]).tolist()

    def _snapshot(self) -> State:
        return {**super()._snapshot(), "shaping": self.shaping}

    def _restore(self, saved: State) -> None:
        super()._restore(saved)
        self.shaping = str(saved["shaping"])
