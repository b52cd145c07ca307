"""The methods: each is a function that makes one step on a closure."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import cocd
from cocd import baselines

from .subsets import Subset

_BUDGET = 16  # coordinates a step, where the method does not settle it
_RADIUS = 0.1  # of coordinate probes

Closure = Callable[[], Tensor]


class Method:
    """`step` makes one step, `evaluations` counts those it has cost so far."""

    def __init__(self, step: Callable[[Closure], object], count: Callable[[], int]) -> None:
        self.step, self._count = step, count

    @property
    def evaluations(self) -> int:
        """Forward passes of a batch."""
        return self._count()


def make(name: str, subset: Subset, lr: float, evaluations: int, seed: int) -> Method:
    """The method of that name on the parameters of a subset."""
    parameters, eps = subset.parameters, subset.eps
    torch.manual_seed(seed)
    if name in ("forward", "adam"):
        return (_Forward if name == "forward" else _Adam)(parameters, lr).method()
    if name == "coherent":
        estimate = cocd.CoherentGradient(parameters, eps=_RADIUS, compute_budget=_BUDGET)
        adam = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)

        def step(closure: Closure) -> None:
            estimate(closure)
            adam.step()

        return Method(step, lambda: estimate.evaluations)
    optimizer: cocd.CoCD | cocd.AutoCoCD | baselines.SPSA | baselines.MeZO
    if name == "auto":
        optimizer = cocd.AutoCoCD(parameters, max_evaluations=evaluations)
    elif name == "mezo":
        optimizer = baselines.MeZO(parameters, lr=lr, eps=eps, seed=seed)
    elif name == "spsa":
        optimizer = baselines.SPSA(parameters, lr=lr, eps=eps, directions=8, seed=seed)
    elif name == "random":
        optimizer = baselines.RandomCoordinate(
            parameters, lr=lr, eps=_RADIUS, compute_budget=_BUDGET, seed=seed
        )
    elif name == "cocd":
        optimizer = cocd.CoCD(parameters, lr=lr, eps=_RADIUS, compute_budget=_BUDGET, decay=0.99)
    else:
        raise ValueError(f"method must be one of those of the plan, got {name!r}")
    return Method(optimizer.step, lambda: optimizer.evaluations)


class _Adam:
    """Gradients: a forward and a backward pass count as three evaluations."""

    cost = 3

    def __init__(self, parameters: list[nn.Parameter], lr: float) -> None:
        self.parameters, self.lr, self.steps = parameters, lr, 0
        self.adam = torch.optim.Adam(parameters, lr=lr)

    def method(self) -> Method:
        return Method(self.step, lambda: self.cost * self.steps)

    def step(self, closure: Closure) -> None:
        self.adam.zero_grad()
        with torch.enable_grad():
            closure().backward()  # type: ignore[no-untyped-call]
        self.adam.step()
        self.steps += 1


class _Forward(_Adam):
    """The exact slope along one random direction: MeZO without an error of differences.

    It is computed from gradients here, which gives the number that one forward pass with tangents
    would give; that pass counts as two evaluations.
    """

    cost = 2

    def step(self, closure: Closure) -> None:
        with torch.enable_grad():
            gradient = torch.autograd.grad(closure(), self.parameters)
        u = [torch.randn_like(p) for p in self.parameters]
        slope = sum(float((g * v).sum()) for g, v in zip(gradient, u, strict=True))
        with torch.no_grad():
            for p, v in zip(self.parameters, u, strict=True):
                p.add_(v, alpha=-self.lr * slope)
        self.steps += 1
