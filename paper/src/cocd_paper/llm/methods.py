"""The methods: each makes steps on batches and counts its evaluations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import cocd
from cocd import baselines
from cocd.integrations import Steps

from .subsets import Subset

_BUDGET = 16  # coordinates per step, where the method does not settle it
_RADIUS = 0.1  # of coordinate probes

_TRACED = ("auto", "coherent", "random", "cocd")  # they probe coordinates

Inputs = tuple[Tensor, ...]


class Method(Protocol):
    """What trains."""

    @property
    def evaluations(self) -> int:
        """Forward passes of a batch so far."""

    def set_rate(self, lr: float) -> None:
        """Of the next steps."""

    def step(self, inputs: Inputs, labels: Tensor) -> None:
        """One step."""


class Forward:
    """Any method of the library, on a traced objective or an ordinary closure."""

    def __init__(self, steps: Steps, model: nn.Module, objective: cocd.Objective | None) -> None:
        self.steps, self.model, self.objective = steps, model, objective

    @property
    def evaluations(self) -> int:
        """Forward passes of a batch so far."""
        return self.steps.evaluations

    def set_rate(self, lr: float) -> None:
        """Of the next steps."""
        for group in self.steps.optimizer.param_groups:
            group["lr"] = lr

    def step(self, inputs: Inputs, labels: Tensor) -> None:
        """One step."""
        if self.objective is None:
            self.steps(lambda: cross_entropy(self.model(*inputs), labels))
        else:
            self.steps(self.objective(inputs[0] if len(inputs) == 1 else inputs, labels))


class Adam:
    """Gradients: a forward and a backward pass count as three evaluations."""

    cost = 3

    def __init__(self, model: nn.Module, parameters: list[nn.Parameter], lr: float) -> None:
        self.model, self.parameters, self.lr, self.steps = model, parameters, lr, 0
        self.adam = torch.optim.Adam(parameters, lr=lr)

    @property
    def evaluations(self) -> int:
        """Forward passes of a batch so far, or what takes as long."""
        return self.cost * self.steps

    def set_rate(self, lr: float) -> None:
        """Of the next steps."""
        self.lr = self.adam.param_groups[0]["lr"] = lr

    def gradient(self, inputs: Inputs, labels: Tensor) -> tuple[Tensor, ...]:
        """Of the loss on a batch."""
        return torch.autograd.grad(cross_entropy(self.model(*inputs), labels), self.parameters)

    def step(self, inputs: Inputs, labels: Tensor) -> None:
        """One step."""
        for p, g in zip(self.parameters, self.gradient(inputs, labels), strict=True):
            p.grad = g
        self.adam.step()
        self.steps += 1


class ForwardGradient(Adam):
    """The exact slope along one random direction: MeZO without an error of differences.

    It is computed from gradients here, which gives the number that one forward pass with tangents
    would give; that pass counts as two evaluations.
    """

    cost = 2

    def step(self, inputs: Inputs, labels: Tensor) -> None:
        """One step."""
        gradient = self.gradient(inputs, labels)
        u = [torch.randn_like(p) for p in self.parameters]
        slope = sum(float((g * v).sum()) for g, v in zip(gradient, u, strict=True))
        with torch.no_grad():
            for p, v in zip(self.parameters, u, strict=True):
                p.add_(v, alpha=-self.lr * slope)
        self.steps += 1


def make(
    name: str, subset: Subset, model: nn.Module, lr: float, evaluations: int, seed: int
) -> Method:
    """The method of that name on the parameters of a subset."""
    parameters = subset.parameters
    torch.manual_seed(seed)
    if name in ("forward", "adam"):
        return (ForwardGradient if name == "forward" else Adam)(model, parameters, lr)
    objective = cocd.trace(model, cross_entropy)
    # Where the trained layers are nearly all that is left of the model, tracing saves nothing.
    traced = objective if name in _TRACED and subset.start.constant != "attention" else None
    estimators: dict[str, Callable[[], Any]] = {
        "units": lambda: cocd.UnitGradient(objective, seed=seed),
        "samples": lambda: cocd.UnitGradient(objective, directions=1, seed=seed),
        "coherent": lambda: cocd.CoherentGradient(parameters, eps=_RADIUS, compute_budget=_BUDGET),
    }
    if name in estimators:
        adam = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
        units = objective if name in ("units", "samples") else traced
        return Forward(Steps(adam, estimators[name]()), model, units)
    optimizers: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "auto": lambda: cocd.AutoCoCD(parameters, max_evaluations=evaluations),
        "mezo": lambda: baselines.MeZO(parameters, lr=lr, eps=subset.eps, seed=seed),
        "spsa": lambda: baselines.SPSA(parameters, lr=lr, eps=subset.eps, directions=8, seed=seed),
        "random": lambda: baselines.RandomCoordinate(
            parameters, lr=lr, eps=_RADIUS, compute_budget=_BUDGET, seed=seed
        ),
        "cocd": lambda: cocd.CoCD(
            parameters, lr=lr, eps=_RADIUS, compute_budget=_BUDGET, decay=0.99
        ),
    }
    if name not in optimizers:
        raise ValueError(f"method must be one of those of the plan, got {name!r}")
    return Forward(Steps(optimizers[name]()), model, traced)
