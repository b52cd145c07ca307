"""`Steps`: one step of any method of the library, and what happened in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Protocol, cast

import torch
from torch.optim import Optimizer

from ..diagnostics import Coherence
from ..objective.protocol import LossT, LossValue
from ..objective.traced import Objective
from ..optim.base import ZerothOrder
from ..optim.coherent_gradient import CoherentGradient
from ..parts.types import State

Record = dict[str, float | int | str]
OnStep = Callable[[Record], object]


class Gradient(Protocol):
    """An estimator that leaves its estimate in ``p.grad``: `CoherentGradient`, `UnitGradient`."""

    evaluations: int

    def __call__(self, closure: Callable[[], LossT]) -> LossT:
        """Estimate; returns the loss."""

    def state_dict(self) -> State:
        """All that a resumed run needs."""

    def load_state_dict(self, state_dict: State) -> None:
        """Continue from a saved state."""


class Steps:
    """``steps(closure)`` makes one step and returns the loss; no backward pass is involved.

    Args:
        optimizer: one of this library; or, with `gradient`, any torch optimizer.
        gradient: a `cocd.CoherentGradient` or `cocd.UnitGradient` for `optimizer` to step with.
        on_step: one function or several, called after each step with a dict: ``step``, the
            ``evaluations`` so far, the ``loss``, the ``lr``; ``length`` (the mean Euclidean norm
            of a step) and ``coherence`` (the correlation of fresh with remembered slopes) with a
            `tracker`; ``engine``, which probes most parameters, with an `objective`.
            `cocd.integrations.loggers` has such functions for common loggers.
        tracker: a `cocd.diagnostics.Coherence` of the optimizer.
        objective: the traced objective whose closures are given.

    >>> import torch, cocd
    >>> from cocd.integrations import Steps
    >>> x = torch.ones(3, requires_grad=True)
    >>> records = []
    >>> steps = Steps(cocd.CoCD([x], lr=0.1, eps=0.1, compute_budget=1), on_step=records.append)
    >>> for _ in range(2):
    ...     loss = steps(lambda: (x**2).sum())
    >>> [(record["step"], record["evaluations"]) for record in records]
    [(1, 3), (2, 6)]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        gradient: Gradient | None = None,
        *,
        on_step: OnStep | Iterable[OnStep] = (),
        tracker: Coherence | None = None,
        objective: Objective | None = None,
    ) -> None:
        check(optimizer, gradient)
        self.optimizer, self.gradient = optimizer, gradient
        self.on_step: list[OnStep] = [on_step] if callable(on_step) else list(on_step)
        self.tracker, self.objective = tracker, objective
        self.steps = 0

    @property
    def evaluations(self) -> int:
        """Evaluations of the objective so far."""
        if self.gradient is not None:
            return self.gradient.evaluations
        assert isinstance(self.optimizer, ZerothOrder)
        return self.optimizer.evaluations

    def __call__(self, closure: Callable[[], LossT]) -> LossT:
        """One step; returns the loss."""
        loss = self.estimate(closure)
        if self.gradient is not None:
            self.optimizer.step()
        self.tell(loss)
        return loss

    def estimate(self, closure: Callable[[], LossT]) -> LossT:
        """The part of a step that evaluates; with a `gradient` the optimizer is yet to step."""
        if self.gradient is not None:
            return self.gradient(closure)
        return cast(LossT, self.optimizer.step(closure))  # type: ignore[arg-type]

    def tell(self, loss: LossValue) -> None:
        """Count the step and say what happened."""
        self.steps += 1
        if self.on_step:
            record = self._record(float(loss))
            for tell in self.on_step:
                tell(dict(record))

    def _record(self, loss: float) -> Record:
        record: Record = {"step": self.steps, "evaluations": self.evaluations, "loss": loss}
        if (lr := self.optimizer.param_groups[0].get("lr")) is not None:
            record["lr"] = float(lr)
        if self.tracker is not None:
            seen = self.tracker.summary()
            found = {"length": seen["step_norm"], "coherence": seen["correlation"]}
            record.update({name: float(v) for name, v in found.items() if v is not None})
        if self.objective is not None:
            record["engine"] = Counter(self._engines(self.objective)).most_common(1)[0][0]
        return record

    @staticmethod
    def _engines(objective: Objective) -> Iterator[str]:
        for name, parameter in objective.model.named_parameters():
            if parameter.requires_grad:
                yield objective.engine_of(name)

    def state_dict(self) -> State:
        """Steps made, and the states of the optimizer and the estimator; later steps leave it."""
        gradient = None if self.gradient is None else self.gradient.state_dict()
        optimizer = deepcopy(self.optimizer.state_dict())  # that of torch shares its tensors
        return {"steps": self.steps, "optimizer": optimizer, "gradient": gradient}

    def load_state_dict(self, state: State) -> None:
        """Continue where a saved run stopped."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.gradient is not None:
            self.gradient.load_state_dict(state["gradient"])
        self.steps = int(state["steps"])


def check(optimizer: object, gradient: object) -> None:
    """Refuse what could not make a step without a backward pass."""
    if isinstance(optimizer, CoherentGradient):
        raise ValueError(
            "optimizer: CoherentGradient estimates and does not move; pass it as gradient=, "
            "beside a torch optimizer"
        )
    if gradient is None and not isinstance(optimizer, ZerothOrder):
        raise ValueError(
            f"optimizer must be one of cocd, got {type(optimizer).__name__}; for a torch optimizer "
            "pass an estimator such as cocd.CoherentGradient as gradient="
        )
    if gradient is not None and isinstance(optimizer, ZerothOrder):
        raise ValueError(
            f"gradient: {type(optimizer).__name__} probes by itself; pass a torch optimizer, or "
            "leave gradient out"
        )


def detached(loss: LossValue, device: torch.device) -> torch.Tensor:
    """The loss as a tensor, which trainers add up."""
    return torch.as_tensor(loss, device=device).detach()
