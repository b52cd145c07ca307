"""Coherent Coordinate Descent, the paper's optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch.optim.optimizer import ParamsT

from ..objective.protocol import LossT
from ..parts.types import Modules
from ..parts.update import decay_weights, descend, descend_whole
from ..schedules import Schedule
from .coordinate import CoordinateMethod


class CoCD(CoordinateMethod):
    """Coherent Coordinate Descent: train on losses alone, no backward and no graph.

    Each step probes `compute_budget` coordinates by finite differences, in cyclic order, writes
    them over the oldest estimates in a buffer that decays, and moves all of x along the buffer::

        g <- decay * g;    g[i] <- (f(x + eps e_i) - f(x - eps e_i)) / (2 eps) for B coordinates i
        x <- (1 - lr * weight_decay) * x - lr * g

    ``decay=0`` is block cyclic coordinate descent, ``compute_budget=n`` finite-difference
    gradient descent, ``decay=1`` full memory.

    Args:
        params: parameters, named parameters or groups, as for any torch optimizer. A group may
            have its own `lr`, `eps`, `decay` and `weight_decay`.
        lr: the learning rate alpha.
        eps: the smoothing radius; large values average the slope over a neighbourhood.
        compute_budget: B, coordinates probed per step; None for n / 100, at least 64.
        memory_budget: m, number of remembered estimates; None for all n.
        schedule: the order of coordinates, from `cocd.schedules`; None for the paper's `Cyclic`.
        decay: gamma, applied to every remembered estimate at every step.
        weight_decay: decoupled, on every parameter at every step.
        difference: "central" (2B + 1 evaluations per step), "forward" or "backward" (B + 1).
        nonfinite: "skip" ignores estimates from NaN or infinite losses, "raise" raises. Such a
            loss at x_t itself always raises `NonFiniteLoss`.
        modules: modules whose buffers (BatchNorm statistics) a step changes as one evaluation
            would; None for all whose forward runs. Name a compiled module here: watching which
            modules run keeps `torch.compile` from running it compiled.

    >>> import torch, cocd
    >>> x = torch.tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = cocd.CoCD([x], lr=0.2, eps=0.1, compute_budget=1)
    >>> for _ in range(100):
    ...     loss = optimizer.step(lambda: ((x - 1) ** 2).sum())
    >>> x.detach().round(decimals=3)
    tensor([1., 1.])
    >>> optimizer.evaluations
    300
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        eps: float = 0.1,
        compute_budget: int | None = None,
        memory_budget: int | None = None,
        schedule: Schedule | None = None,
        decay: float = 1.0,
        weight_decay: float = 0.0,
        difference: str = "central",
        nonfinite: str = "skip",
        modules: Modules = None,
    ) -> None:
        super().__init__(
            params,
            {"lr": lr, "eps": eps, "decay": decay, "weight_decay": weight_decay},
            compute_budget=compute_budget,
            memory_budget=memory_budget,
            schedule=schedule,
            difference=difference,
            nonfinite=nonfinite,
            modules=modules,
        )

    def step(self, closure: Callable[[], LossT] | None = None) -> LossT:  # type: ignore[override]
        """Probe, remember, move; returns the loss at x_t, before the update.

        All evaluations come before the first change: after an exception or Ctrl-C, parameters,
        memory and position are unchanged.
        """
        return cast(LossT, self._run(closure))

    def _move(self) -> None:
        memory = self._memory
        for group in self.param_groups:
            lr, mine = float(group["lr"]), {id(tensor) for tensor in group["params"]}
            moving = {
                t: tensor
                for t, tensor in enumerate(self._tensors)
                if id(tensor) in mine and tensor.requires_grad
            }
            decay_weights(list(moving.values()), lr, float(group["weight_decay"]))
            whole = [t for t in moving if memory.dense and memory.whole(t).dtype == moving[t].dtype]
            descend_whole([moving[t] for t in whole], [memory.whole(t) for t in whole], lr)
            if len(whole) < len(moving):
                for segment in memory.remembered(self._schedule):
                    t = segment.part.tensor
                    if t in moving and t not in whole:
                        descend(moving[t], segment.part, memory.values(segment), lr)
