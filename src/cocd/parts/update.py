"""x <- (1 - lr wd) x - lr g: in place, on views, for any strides and dtypes."""

from __future__ import annotations

import torch
from torch import Tensor

from .layout import TensorSlice, views

_CHUNK = 1 << 16  # elements per operation: torch casts whole operands of another dtype


def descend(tensor: Tensor, part: TensorSlice, estimates: Tensor, lr: float) -> None:
    """Move the coordinates of `part` by -lr times their estimates (eq. 7)."""
    if not lr:
        return  # adding zero would turn -0.0 into 0.0
    step = len(part) if estimates.dtype == tensor.dtype else _CHUNK
    for start in range(part.start, part.stop, step):
        stop = min(part.stop, start + step)
        for view, first, last in views(tensor, start, stop):
            view.add_(estimates[first - part.start : last - part.start].view_as(view), alpha=-lr)


def descend_whole(tensors: list[Tensor], estimates: list[Tensor], lr: float) -> None:
    """Move whole tensors whose estimates have the same dtype, in one call (eq. 7)."""
    if lr and tensors:
        torch._foreach_add_(tensors, estimates, alpha=-lr)


def decay_weights(tensors: list[Tensor], lr: float, weight_decay: float) -> None:
    """Decoupled weight decay, on whole tensors at every step.

    Multiplying x by 1 - lr wd would be worse: at lr wd = 1e-7 rounding in float32 changes lr wd by
    a fifth, and a product with a number takes three times as long.
    """
    if lr and weight_decay and tensors:
        torch._foreach_add_(tensors, tensors, alpha=-lr * weight_decay)
