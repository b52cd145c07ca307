"""`MeZO`: Gaussian directions, without a copy of the parameters."""

from __future__ import annotations

from collections.abc import Container
from math import nan

from ...parts.evaluation import Evaluations
from .direction_method import DirectionMethod


class MeZO(DirectionMethod):
    """Gaussian directions, walked in place: no copy of the parameters, no stored direction.

    The one method here that restores x only to rounding: x + eps u - 2 eps u + eps u is not
    exactly x. That is the price of keeping no copy (Malladi et al.).

    >>> import torch, cocd
    >>> x = torch.ones(3, requires_grad=True)
    >>> optimizer = cocd.baselines.MeZO([x], lr=0.05, directions=8, seed=0)
    >>> for _ in range(100):
    ...     loss = optimizer.step(lambda: (x**2).sum())
    >>> bool(x.norm() < 1e-3)
    True
    """

    _keeps = False

    def _probe(
        self, evaluate: Evaluations, seeds: list[int], wanted: Container[int]
    ) -> list[float]:
        # All is walked, whatever is wanted: where x goes, to rounding, must not depend on it.
        losses: list[float] = []
        for seed in seeds:
            at = 0.0  # where x is, in units of eps u
            try:
                for sign in (1.0, -1.0):
                    self._walk(seed, sign - at)
                    at = sign
                    losses.append(evaluate() if len(losses) in wanted else nan)
            finally:
                self._walk(seed, -at)
        return losses

    def _walk(self, seed: int, by: float) -> None:
        options = self._groups_by_tensor()
        for tensor, u in self._direction(seed):
            tensor.add_(u, alpha=by * float(options[id(tensor)]["eps"]))
