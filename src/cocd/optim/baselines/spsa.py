"""`SPSA`: directions of random signs."""

from __future__ import annotations

import torch
from torch import Tensor

from .direction_method import DirectionMethod


class SPSA(DirectionMethod):
    """Simultaneous perturbation: directions of independent signs (Spall).

    Each step averages `directions` pairs of two evaluations; `seed` decides the directions.

    >>> import torch, cocd
    >>> x = torch.ones(3, requires_grad=True)
    >>> optimizer = cocd.baselines.SPSA([x], lr=0.1, directions=2, seed=1)
    >>> for _ in range(100):
    ...     loss = optimizer.step(lambda: (x**2).sum())
    >>> bool(x.norm() < 1e-3), optimizer.evaluations
    (True, 400)
    """

    def _sample(self, shape: torch.Size, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        return torch.randint(2, shape, dtype=dtype, generator=generator).mul_(2).sub_(1)
