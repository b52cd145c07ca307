"""Which coordinates are worth a probe: pruning ratios, and schedules over some coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

import torch
from torch import Tensor

from .errors import NonFiniteLoss
from .objective.protocol import Closure
from .parts.evaluation import Evaluations
from .parts.restore import put, restored
from .parts.validation import check_count
from .schedules import Masked, Prioritised

__all__ = ["Masked", "Prioritised", "zo_grasp"]


def zo_grasp(
    closure: Closure,
    named_parameters: Iterable[tuple[str, Tensor]],
    *,
    sparsity: float,
    directions: int = 192,
    step: float = 5e-3,
    seed: int = 0,
) -> dict[str, float]:
    """The share of each tensor to leave out: ZO-GraSP (DeepZero, Chen et al. 2023).

    Estimates the gradient along random directions at x and again a step along it. Their difference
    says how much each weight matters for the gradient flow. The weights that matter least are
    left out, over all tensors together. Only their share by tensor is returned: it transfers
    between random masks better than the mask itself. Biases and other tensors of fewer than two
    dimensions are kept whole.

    Args:
        closure: the loss on one batch, as for any optimizer here.
        named_parameters: ``model.named_parameters()``; frozen ones are passed over.
        sparsity: the share of the weights to leave out, from 0 up to 1.
        directions: random directions per gradient estimate. Costs 2 * directions + 2 evaluations.
        step: the radius of the differences and the length of the step between the two points.
        seed: decides the directions.

    >>> import torch, cocd
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> x, y = torch.randn(32, 4), torch.randn(32, 2)
    >>> loss = lambda: torch.nn.functional.mse_loss(model(x), y)
    >>> ratios = cocd.sparsity.zo_grasp(loss, model.named_parameters(), sparsity=0.5, directions=8)
    >>> sorted(ratios)
    ['0.bias', '0.weight', '2.bias', '2.weight']
    >>> 32 * ratios["0.weight"] + 16 * ratios["2.weight"], ratios["0.bias"]
    (24.0, 0.0)
    """
    if not 0 <= sparsity < 1:
        raise ValueError(f"sparsity must be from 0 up to 1, 1 left out; got {sparsity!r}")
    if not (isfinite(step) and step > 0):
        raise ValueError(f"step must be a positive number, got {step!r}")
    count = check_count("directions", directions)
    named = {name: p for name, p in named_parameters if p.requires_grad and p.numel()}
    if not named:
        raise ValueError("named_parameters holds nothing to train")
    tensors = list(named.values())
    devices = {tensor.device for tensor in tensors if not tensor.is_cpu}
    with Evaluations(closure, None, devices, lambda _: None) as evaluate, restored(tensors) as x:
        here = _gradient(evaluate, tensors, x, count, step, seed)
        there_x = [value.add(g, alpha=step) for value, g in zip(x, here, strict=True)]
        there = _gradient(evaluate, tensors, there_x, count, step, seed)
    scores = {
        name: (value * (b - a) / step).abs().flatten()
        for name, value, a, b in zip(named, x, here, there, strict=True)
        if value.ndim > 1
    }
    if not scores:
        return dict.fromkeys(named, 0.0)
    every = torch.cat([score.double().cpu() for score in scores.values()])
    least = torch.zeros(len(every))
    least[every.argsort()[: round(sparsity * len(every))]] = 1
    shares = zip(scores, torch.split(least, list(map(len, scores.values()))), strict=True)
    return {**dict.fromkeys(named, 0.0), **{name: float(part.mean()) for name, part in shares}}


def _gradient(
    evaluate: Evaluations,
    tensors: list[Tensor],
    x: list[Tensor],
    directions: int,
    radius: float,
    seed: int,
) -> list[Tensor]:
    """One-sided differences at x along Gaussian directions, the same ones for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    put(tensors, x)
    base = _finite(evaluate())
    found = [torch.zeros_like(value) for value in x]
    for _ in range(directions):
        u = [torch.randn(t.shape, generator=generator).to(t) for t in tensors]
        put(tensors, [value.add(part, alpha=radius) for value, part in zip(x, u, strict=True)])
        slope = (_finite(evaluate()) - base) / radius
        for g, part in zip(found, u, strict=True):
            g.add_(part, alpha=slope / directions)
    return found


def _finite(loss: float) -> float:
    if not isfinite(loss):
        raise NonFiniteLoss(f"a loss is {loss}; nothing has changed. A smaller step may help")
    return loss
