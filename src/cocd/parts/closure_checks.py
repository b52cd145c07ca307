"""Cheap checks that warn of common mistakes in closures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isfinite

import torch
from torch import Tensor

from ..errors import ClosureWarning
from .evaluation import Evaluations
from .warn import warn

LOOK_AFTER = 50  # evaluations
_ROUNDING = 1024  # units in the last place by which threads may change the same loss
_MOVE = 0.01  # of each parameter, added to its radius, which alone may be lost in rounding


def check_repeats(evaluate: Evaluations, loss: float) -> None:
    """Warn if the closure does not return `loss` again at the same point."""
    again = evaluate.again()
    first = evaluate.first
    floating = isinstance(first, Tensor) and first.is_floating_point()
    unit = torch.finfo(first.dtype).eps if floating else 0.0  # type: ignore[union-attr]
    allowed = _ROUNDING * max(unit, 1e-12) * max(abs(loss), abs(again))
    if isfinite(loss) and not abs(again - loss) <= allowed:
        warn(
            f"the closure returns a loss of {loss:.6g} and then {again:.6g} at the same point, "
            "so differences measure its noise, not the slope. Does it draw random numbers "
            "outside torch (NumPy, random), take a new batch, or keep state between calls? Do "
            "that once per step, outside the closure",
            ClosureWarning,
        )


def check_depends(
    evaluate: Evaluations, loss: float, tensors: Iterable[Tensor], eps: Callable[[Tensor], float]
) -> None:
    """Warn if the loss does not change when all parameters move at once."""
    moving = [tensor for tensor in tensors if tensor.requires_grad]
    saved = [tensor.detach().clone() for tensor in moving]
    try:
        for tensor in moving:
            tensor.add_(tensor.abs() * _MOVE + eps(tensor))
        there = evaluate.again()
    finally:
        for tensor, values in zip(moving, saved, strict=True):
            tensor.copy_(values)
    if there == loss:
        warn(
            f"the loss is {loss:.6g} whatever the parameters are: no probe of this step "
            "changed it, nor did moving all of them at once. Does the closure use another "
            "model, or a copy?",
            ClosureWarning,
        )


def check_ranks(evaluate: Evaluations) -> None:
    """Warn if the model averages gradients over ranks, because no gradients are used here."""
    if evaluate.averages_gradients and not evaluate.bound.is_shared():
        warn(
            "the model is a DistributedDataParallel, which averages gradients; there are no "
            "gradients here, so ranks with different batches drift apart. Give all ranks the "
            "same batches "
            "and wrap the closure: shard = cocd.distributed.Shard(optimizer), then "
            "optimizer.step(shard(closure))",
            ClosureWarning,
        )
