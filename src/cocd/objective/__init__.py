"""A loss on a batch, and how a block of its probes is evaluated.

incremental: follow what one weight changes through the layers (`graph`, `change`, `rules`).
batched: whole forward passes of many perturbed copies at once (`batched`).
sequential: the closure itself, once per probe (`closure.sequential`).

Public: `BoundLoss`, the protocol between optimizers and losses, and `ForwardedLoss`, for wrappers.
"""

from .protocol import BoundLoss, ForwardedLoss

__all__ = ["BoundLoss", "ForwardedLoss"]
