"""Unit probes as methods of a run: the gradient in a torch optimizer, with a cosine to zero."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi
from typing import Any

from torch.optim import SGD, AdamW, Optimizer

import cocd

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adam": AdamW, "sgd": SGD}
PROBING = ("directions", "units", "decay", "eps", "difference", "positions")


class UnitOptimizer:
    """`cocd.UnitGradient` and a torch optimizer, whose rate falls to zero as evaluations run out.

    `units` is the gradient's compute budget: how many units are probed in a step.
    """

    def __init__(
        self,
        objective: cocd.Objective,
        *,
        lr: float = 1e-3,
        max_evaluations: int,
        optimizer: str = "adam",
        weight_decay: float = 0.0,
        units: int | None = None,
        seed: int = 0,
        **probing: Any,
    ) -> None:
        self.gradient = cocd.UnitGradient(objective, compute_budget=units, seed=seed, **probing)
        options: dict[str, Any] = {"momentum": 0.9} if optimizer == "sgd" else {}
        self.inner = OPTIMIZERS[optimizer](
            objective.model.parameters(), lr=lr, weight_decay=weight_decay, **options
        )
        self.lr, self.max_evaluations = lr, max_evaluations

    @property
    def evaluations(self) -> int:
        """Passes of a batch."""
        return self.gradient.evaluations

    def step(self, closure: Any) -> Any:
        """Probe and move."""
        loss = self.gradient(closure)
        part = min(1.0, self.evaluations / self.max_evaluations)
        for group in self.inner.param_groups:
            group["lr"] = self.lr * (1 + cos(pi * part)) / 2
        self.inner.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Both parts'."""
        return {"gradient": self.gradient.state_dict(), "inner": self.inner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was taken."""
        self.gradient.load_state_dict(state["gradient"])
        self.inner.load_state_dict(state["inner"])
