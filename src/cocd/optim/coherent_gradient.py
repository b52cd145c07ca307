"""The estimator alone, for any torch optimizer to step with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..objective.protocol import Closure, LossT, LossValue
from ..parts.layout import views
from ..parts.types import Group, Modules, State
from ..schedules import Schedule
from .coordinate import CoordinateMethod


class GradientEstimator(CoordinateMethod):
    """The coordinate method inside `CoherentGradient`: its move is to fill ``p.grad``."""

    _name = "CoherentGradient"

    def step(self, closure: Closure | None = None) -> LossValue:  # type: ignore[override]
        """Refresh, leave the estimate in ``p.grad``, return the loss."""
        return self._run(closure)

    def _move(self) -> None:
        for tensor in self._tensors:
            if tensor.requires_grad:
                if tensor.grad is None:
                    tensor.grad = torch.zeros_like(tensor)
                elif not self._memory.dense:
                    tensor.grad.zero_()
        for segment in self._memory.remembered(self._schedule):
            t, start, stop = segment.part
            values, grad = self._memory.values(segment), self._tensors[t].grad
            if self._tensors[t].requires_grad and grad is not None:
                for view, first, last in views(grad, start, stop):
                    view.copy_(values[first - start : last - start].view_as(view))


class CoherentGradient:
    """CoCD's gradient estimate in ``p.grad``, so that any torch optimizer can take the step.

    Called with a closure it refreshes `compute_budget` coordinates, leaves the estimate in
    ``p.grad`` and returns the loss at the current parameters, which do not move. Arguments as for
    `CoCD`.

    >>> import torch, cocd
    >>> x = torch.tensor([3.0, -2.0], requires_grad=True)
    >>> gradient = cocd.CoherentGradient([x], eps=0.1, compute_budget=2)
    >>> adam = torch.optim.AdamW([x], lr=0.1)
    >>> for _ in range(200):
    ...     loss = gradient(lambda: ((x - 1) ** 2).sum())
    ...     adam.step()
    >>> bool((x - 1).abs().max() < 0.05)
    True
    """

    def __init__(
        self,
        params: ParamsT,
        *,
        eps: float = 0.1,
        compute_budget: int | None = None,
        memory_budget: int | None = None,
        schedule: Schedule | None = None,
        decay: float = 1.0,
        difference: str = "central",
        nonfinite: str = "skip",
        modules: Modules = None,
    ) -> None:
        self.method = GradientEstimator(
            params,
            {"eps": eps, "decay": decay},
            compute_budget=compute_budget,
            memory_budget=memory_budget,
            schedule=schedule,
            difference=difference,
            nonfinite=nonfinite,
            modules=modules,
        )

    def __call__(self, closure: Callable[[], LossT]) -> LossT:
        """Refresh, leave the estimate in ``p.grad``, return the loss."""
        return cast(LossT, self.method.step(closure))

    def estimate(self) -> Tensor:
        """The gradient estimate as it is remembered, dense and flat."""
        return self.method.estimate()

    def reset(self, estimate: Tensor | Iterable[Tensor] | None = None) -> None:
        """Forget what is remembered, or remember `estimate`; see `CoCD.reset`."""
        self.method.reset(estimate)

    def next_evaluations(self) -> int:
        """How many evaluations the next call will make."""
        return self.method.next_evaluations()

    # --- what it has, and how it stands -----------------------------------------------------------

    @property
    def param_groups(self) -> list[Group]:
        """The parameters with their `eps` and `decay`, which are read at every call."""
        return self.method.param_groups

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with options of their own; they join at the end."""
        self.method.add_param_group(param_group)

    @property
    def compute_budget(self) -> int:
        """Coordinates probed per call; it may be changed between two calls."""
        return self.method.compute_budget

    @compute_budget.setter
    def compute_budget(self, budget: int) -> None:
        self.method.compute_budget = budget

    @property
    def memory_budget(self) -> int:
        """How many estimates are remembered."""
        return self.method.memory_budget

    @property
    def schedule(self) -> Schedule:
        """The order in which coordinates are probed."""
        return self.method.schedule

    @property
    def evaluations(self) -> int:
        """Calls of the objective, those of failed calls included."""
        return self.method.evaluations

    @property
    def skipped(self) -> int:
        """Estimates that were not stored because a loss was not finite."""
        return self.method.skipped

    # --- saving -----------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything a resumed run needs; later calls do not change it."""
        return self.method.state_dict()

    def load_state_dict(self, state_dict: State) -> None:
        """Continue where a saved run stopped; a state that does not fit is refused whole."""
        self.method.load_state_dict(state_dict)

    def __repr__(self) -> str:
        return repr(self.method).replace("GradientEstimator", "CoherentGradient", 1)


def method_of(estimator: object) -> object:
    """The optimizer inside a `CoherentGradient`; anything else as it is."""
    return estimator.method if isinstance(estimator, CoherentGradient) else estimator
