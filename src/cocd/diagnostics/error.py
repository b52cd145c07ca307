"""The error of an estimate, measured, beside the bound of the approximation theorem."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor

from .. import theory
from ..objective.protocol import Closure
from ..optim.coordinate import CoordinateMethod
from ..parts.probe import probe


class Error(NamedTuple):
    """The distance of an estimate from the finite-difference gradient, and its bounds.

    Attributes:
        measured: ||g_t - FD gradient at x_t||, x_t being where the last block was probed.
        gradient: the norm of that FD gradient.
        bound: `theory.error_bound` for this n, B, L and delta.
        euclidean_bound: `theory.euclidean_error_bound`, which is sharper.
        L: the given one, or else the largest quotient that the tracker saw.
        delta: the longest step since the oldest estimate in use was made.
        evaluations: cost of the measurement, counted in `Coherence.evaluations`.
        caveats: conditions of the bound that do not hold, one sentence each.
    """

    measured: float
    gradient: float
    bound: float
    euclidean_bound: float
    L: float
    delta: float
    evaluations: int
    caveats: tuple[str, ...]

    @property
    def relative(self) -> float:
        """The measured error over the norm of the gradient; infinite where that is 0."""
        return self.measured / self.gradient if self.gradient else float("inf")


class _Aside(Exception):
    """Ends an evaluation that is to leave no trace."""


def remembered(optimizer: CoordinateMethod) -> Tensor:
    """The estimate, dense, in the order of the sweep, float64 on the CPU."""
    layout, memory = optimizer._memory.layout, optimizer._memory
    flat = torch.zeros(layout.n, dtype=torch.float64)
    for segment in memory.remembered(optimizer._schedule):
        start = layout.offsets[segment.part.tensor] + segment.part.start
        flat[start : start + len(segment.part)] = memory.values(segment).to(flat)
    return flat


def gradient_at(
    optimizer: CoordinateMethod,
    closure: Closure,
    point: list[Tensor],
    report: Callable[[int], None],
) -> Tensor:
    """All n finite differences at `point`; NaN where one failed. It leaves no trace.

    Parameters, random numbers and module buffers are as before when it returns or raises; `report`
    is told the number of evaluations.
    """
    options = optimizer._groups_by_tensor()
    layout = optimizer._memory.layout
    gradient = torch.zeros(0)
    # A step that fails leaves the world as it was, so this one ends as a failed step does.
    with suppress(_Aside), optimizer._evaluating(closure, report) as evaluate:
        here = [tensor.detach().clone() for tensor in layout.tensors]
        try:
            # One that has joined since then has not moved.
            for tensor, there in zip(layout.tensors, point, strict=False):
                tensor.copy_(there)
            _, fresh = probe(
                evaluate,
                layout.tensors,
                list(layout.slices(0, layout.n)),
                lambda tensor: float(options[id(tensor)]["eps"]),
                optimizer.difference,
            )
        finally:
            for tensor, old in zip(layout.tensors, here, strict=True):
                tensor.copy_(old)
        gradient = fresh.first
        raise _Aside
    return gradient


def caveats(optimizer: CoordinateMethod, cold: int, lags: int, altered: bool) -> list[str]:
    """Which of the theorem's conditions this run does not meet.

    `lags` is the sum of the ages of the estimates in use; `altered`: some of them have been decayed
    since, or were made with another radius.
    """
    n, m = optimizer._memory.layout.n, optimizer._memory.m
    options = optimizer._groups_by_tensor()
    swept = [tensor for tensor in optimizer._tensors if tensor.requires_grad]
    decay = min((float(options[id(tensor)].get("decay", 1.0)) for tensor in swept), default=1.0)
    found = []
    if decay != 1:
        found.append(f"decay is {decay:g}, the theorem needs 1")
    elif altered:
        found.append("decay or eps has been changed since the oldest estimate in use was made")
    if not optimizer._one_difference:
        found.append("estimates are made with several radii, the theorem needs one")
    if not optimizer._memory.dense:
        found.append(f"memory_budget is {m}, the theorem needs all {n}")
    if optimizer.schedule.repeats:
        found.append("the order may repeat a coordinate before all others have been probed")
    if cold:
        found.append(f"{cold} coordinates have not been estimated since the tracker was attached")
    elif lags > int(theory.error_bound(n, optimizer.compute_budget, 1.0, 1.0)):
        found.append(
            "estimates are older than n / B steps: the budget changed, probes failed, or "
            "parameters were frozen for a time"
        )
    return found
