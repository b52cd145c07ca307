"""`UnitDescent`: training by unit probes, with nothing to tune."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW

from ..objective.protocol import LossT
from ..objective.traced import Objective
from ..parts.types import Group, State
from ..parts.validation import check_count
from .unit_gradient import UnitGradient

_STEPS = 20_000  # over which a budget is spread; a larger one has more passes per step
_RATE = 0.03  # largest move of a weight in one step, relative to its size


class UnitDescent(AdamW):
    """Trains a traced objective by unit probes, without a learning rate.

    `UnitGradient` estimates the slopes, and Adam scales them. At first a step moves a weight by at
    most about a thirtieth of its layer's root mean square. Steps shrink along a cosine to zero at
    the end of the budget. The budget also decides how layers are probed: along as many random
    directions as leave about 20,000 steps, or unit by unit if there are enough evaluations for
    all units in each step.

    Args:
        objective: the result of `cocd.trace`. Its loss must be a mean or a sum over samples.
        max_evaluations: length of the run in passes of a batch. Later steps no longer move.
        weight_decay: as in AdamW.
        **probing: `eps`, `difference`, `positions`, `seed`, `sample_losses` and `nonfinite` as in
            `UnitGradient`.

    >>> import torch, cocd
    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
    ... )
    >>> objective = cocd.trace(model, torch.nn.functional.mse_loss)
    >>> optimizer = cocd.UnitDescent(objective, max_evaluations=1000)
    >>> x, y = torch.randn(32, 4), torch.zeros(32, 2)
    >>> losses = []
    >>> while optimizer.evaluations < 1000:
    ...     losses.append(float(optimizer.step(objective(x, y))))
    >>> losses[-1] < losses[0] / 10
    True
    """

    def __init__(
        self,
        objective: Objective,
        *,
        max_evaluations: int,
        weight_decay: float = 0.0,
        **probing: Any,
    ) -> None:
        self.max_evaluations = check_count("max_evaluations", max_evaluations)
        unknown = set(probing) - _PROBING
        if unknown:
            raise ValueError(
                f"{sorted(unknown)[0]} is not an option of UnitDescent, which decides it; "
                "UnitGradient takes it, for any torch optimizer"
            )
        self.gradient = UnitGradient(objective, directions=1, **probing)
        self._begun = False
        super().__init__(
            _groups(objective.model), lr=0.0, weight_decay=float(weight_decay), foreach=False
        )

    @property
    def evaluations(self) -> int:
        """Passes of a batch, those of failed steps included."""
        return self.gradient.evaluations

    @torch.no_grad()
    def step(self, closure: Callable[[], LossT] | None = None) -> LossT:  # type: ignore[override]
        """Probe the loss of ``objective(x, y)``, move, and return the loss."""
        loss = self.gradient(closure)
        if not self._begun:
            self._spread()
            self._begun = True
        left = 1 + cos(pi * min(1.0, self.evaluations / self.max_evaluations))
        for group in self.param_groups:
            group["lr"] = _RATE * group["size"] * left / 2
        super().step()
        return loss

    def _spread(self) -> None:
        """Choose as many passes per step as leave enough steps; needs the number of units."""
        gradient = self.gradient
        each = 2 if gradient.difference == "central" else 1
        passes = (self.max_evaluations / _STEPS - 1) / each
        along = max(1, round(passes / max(1, gradient.layers)))
        gradient.directions = None if passes >= gradient.units else along

    def state_dict(self) -> State:
        """All that a resumed run needs."""
        return {
            **super().state_dict(),
            "gradient": self.gradient.state_dict(),
            "directions": self.gradient.directions,
            "begun": self._begun,
        }

    def load_state_dict(self, state_dict: State) -> None:
        """Continue where a saved run stopped."""
        super().load_state_dict({k: state_dict[k] for k in ("state", "param_groups")})
        self.gradient.load_state_dict(state_dict["gradient"])
        self.gradient.directions = state_dict["directions"]
        self._begun = bool(state_dict["begun"])


_PROBING = {"eps", "difference", "positions", "seed", "sample_losses", "nonfinite"}


def _groups(model: torch.nn.Module) -> list[Group]:
    """A group for each parameter, with the size that its weights have at the start.

    Biases and the like, which often start at zero, go with the weight before them.
    """
    groups: list[Group] = []
    for parameter in model.parameters():
        if not parameter.requires_grad or not parameter.numel():
            continue
        size = groups[-1]["size"] if groups else 1.0
        if parameter.dim() > 1 or not groups:
            size = _size(parameter) or size
        groups.append({"params": [parameter], "size": size})
    return groups


def _size(weights: Tensor) -> float:
    return float(weights.detach().double().square().mean().sqrt())
