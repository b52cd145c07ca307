"""Difference quotients (eq. 3) for a block of coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isfinite

import torch
from torch import Tensor

from ..errors import NonFiniteLoss
from ..objective.protocol import Difference, Differences, Request
from .evaluation import Evaluations
from .layout import TensorSlice, by_tensor, gather


def probe(
    evaluate: Evaluations,
    tensors: list[Tensor],
    block: Iterable[TensorSlice],
    eps: Callable[[Tensor], float],
    difference: Difference,
) -> tuple[float, Differences]:
    """f(x_t) and the difference quotients (eq. 3) of a block of coordinates at x_t.

    Nothing changes. A tensor that no longer requires grad is not probed: its coordinates cost no
    evaluation and have NaN as quotients.
    """
    loss = evaluate(prepare=True)
    if not isfinite(loss):
        raise NonFiniteLoss(f"the loss at x_t is {loss}; nothing has changed")
    requests = [Request(tensors[t], index, eps(tensors[t])) for t, index in by_tensor(block)]
    moving = [request for request in requests if request.tensor.requires_grad]
    answers = evaluate.bound.block_differences(evaluate, loss, moving, difference) if moving else []
    found = iter(answers)
    parts: list[Differences] = []
    for tensor, index, h in requests:
        if not tensor.requires_grad:
            nothing = torch.full((len(index),), torch.nan, dtype=torch.float64, device="cpu")
            parts.append(Differences(nothing, nothing if difference == "central" else None))
        else:
            first, second = next(found)
            width = 2 * h if difference == "central" else h
            parts.append(Differences(first / width, None if second is None else second / h**2))
    return loss, parts[0] if len(parts) == 1 else _joined(parts)


def _joined(parts: list[Differences]) -> Differences:
    quotients = torch.cat([part.first for part in parts])
    curvatures = [part.second for part in parts if part.second is not None]
    return Differences(quotients, torch.cat(curvatures) if curvatures else None)


def is_lost(tensor: Tensor, index: list[int], radius: float) -> bool:
    """Whether rounding takes more than a tenth of a radius at some of the weights.

    >>> weights = torch.tensor([1.0, 1e6])
    >>> is_lost(weights, [0], 0.02), is_lost(weights, [0, 1], 0.02)
    (False, True)
    """
    largest = float(gather(tensor, index).abs().amax())
    return largest * torch.finfo(tensor.dtype).eps > 0.1 * radius
