"""The part of a disagreement with the closure that rounding can explain."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ..parts.evaluation import scalar
from .protocol import LossValue

# Steps between two checks of an engine against the model. A prime, so that sweeps with a round
# number of steps do not always check the same tensors.
RECHECK = 61


def first_line(error: Exception) -> str:
    """The message of an exception, shortened."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def disagreement(once: LossValue, again: LossValue) -> str:
    """The difference between two evaluations at one point, or nothing."""
    here, there = scalar(once), scalar(again)
    dtype = again.dtype if isinstance(again, Tensor) else torch.float64
    if here == there or (here != here and there != there):  # infinite, or both NaN
        return ""
    finite = abs(here) < inf and abs(there) < inf
    if finite and abs(here - there) <= 64 * torch.finfo(dtype).eps * max(abs(here), abs(there)):
        return ""
    return f"evaluated twice at one point, it gives a loss of {here:.9g} and then of {there:.9g}"


def magnitude(output: object, summed: bool) -> float:
    """The size of outputs: losses near zero are differences of these, and rounded accordingly."""
    tensors = [t for t in tree_leaves(output) if isinstance(t, Tensor) and t.numel()]
    largest = max((float(t.abs().max()) for t in tensors), default=0.0)
    return largest * len(tensors[0].reshape(-1)) if summed else largest


def noise(evaluate: Callable[[], float], loss: float, parameters: Iterable[Tensor]) -> float:
    """The change of the closure's loss when all weights move only by rounding.

    Layers that divide by a small deviation amplify it beyond any fixed bound.
    """
    weights = [p.detach() for p in parameters]
    saved, worst = [w.clone() for w in weights], 0.0
    try:
        for k in (-2, -1, 1, 2):
            for w, old in zip(weights, saved, strict=True):
                signs = torch.arange(w.numel(), device=w.device).view(w.shape) % 2 * 2 - 1
                w.copy_(old + k * torch.finfo(w.dtype).eps * signs * old)
            worst = max(worst, abs(evaluate() - loss))
    finally:
        for w, old in zip(weights, saved, strict=True):
            w.copy_(old)
    return worst
