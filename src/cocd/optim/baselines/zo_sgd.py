"""`ZOSGD`: Gaussian directions."""

from __future__ import annotations

from .direction_method import DirectionMethod


class ZOSGD(DirectionMethod):
    """Gaussian smoothing (Ghadimi and Lan): directions drawn from a normal distribution.

    >>> import torch, cocd
    >>> x = torch.ones(3, requires_grad=True)
    >>> optimizer = cocd.baselines.ZOSGD([x], lr=0.1, directions=8, seed=0)
    >>> for _ in range(100):
    ...     loss = optimizer.step(lambda: (x**2).sum())
    >>> bool(x.norm() < 1e-3)
    True
    """
