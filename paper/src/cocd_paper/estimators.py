"""Gradient estimates into `p.grad`, and a torch optimizer that steps with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import cocd

from .runs import Setting

STEPPERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
STEPPER_SETTINGS = ("stepper", "lr", "momentum", "weight_decay")


Sample = Callable[[], Callable[[], Any]]  # the loss on some training rows, as a closure


def nothing_to_sample() -> Callable[[], Any]:
    """For a run without data."""
    raise ValueError("ratios='zo-grasp' looks at training rows, and there are none here")


class Estimator(Protocol):
    """What leaves a gradient in `p.grad`."""

    evaluations: int

    def __call__(self, closure: Any) -> Any:
        """Estimate; returns the loss."""

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where a saved run stopped."""


class EstimatedDescent:
    """An estimator and the optimizers that step with its gradient, as one method."""

    def __init__(
        self, estimator: Estimator, steppers: list[torch.optim.Optimizer], before: int = 0
    ) -> None:
        self.estimator, self.steppers, self.before = estimator, steppers, before

    @property
    def evaluations(self) -> int:
        """Of the objective, so far, those `before` the first step included."""
        return self.before + self.estimator.evaluations

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of all steppers."""
        return [group for stepper in self.steppers for group in stepper.param_groups]

    def step(self, closure: Any) -> Any:
        """Estimate, then step; returns the loss before the step."""
        loss = self.estimator(closure)
        for stepper in self.steppers:
            stepper.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        steppers = [stepper.state_dict() for stepper in self.steppers]
        return {"estimator": self.estimator.state_dict(), "steppers": steppers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where a saved run stopped."""
        self.estimator.load_state_dict(state["estimator"])
        for stepper, saved in zip(self.steppers, state["steppers"], strict=True):
            stepper.load_state_dict(saved)


class RateSchedules:
    """One learning-rate schedule for several optimizers."""

    def __init__(self, schedules: list[LambdaLR]) -> None:
        self.schedules = schedules

    def step(self) -> None:
        """The next step's rates."""
        for schedule in self.schedules:
            schedule.step()

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        return {"schedules": [schedule.state_dict() for schedule in self.schedules]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where a saved run stopped."""
        for schedule, saved in zip(self.schedules, state["schedules"], strict=True):
            schedule.load_state_dict(saved)


class StaleGradient:
    """True gradients of which only B coordinates per call are fresh: staleness without noise.

    The others are remembered from earlier calls and decay, as in CoCD. A call counts as one
    evaluation.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, compute_budget: int, decay: float
    ) -> None:
        self.parameters = list(parameters)
        self.buffer = torch.cat([torch.zeros_like(p).flatten() for p in self.parameters])
        self.compute_budget, self.decay = compute_budget, decay
        self.evaluations = 0

    def __call__(self, closure: Any) -> Tensor:
        """Refresh B coordinates in cyclic order; returns the loss."""
        with torch.enable_grad():
            loss: Tensor = closure()
            gradient = torch.autograd.grad(loss, self.parameters)
        n, first = len(self.buffer), self.evaluations * self.compute_budget
        block = torch.arange(first, first + self.compute_budget) % n
        self.buffer.mul_(self.decay)
        self.buffer[block] = torch.cat([g.flatten() for g in gradient])[block]
        sizes = [p.numel() for p in self.parameters]
        for p, g in zip(self.parameters, torch.split(self.buffer, sizes), strict=True):
            p.grad = g.view_as(p).clone()
        self.evaluations += 1
        return loss.detach()

    def state_dict(self) -> dict[str, Any]:
        """The remembered gradient and the position."""
        return {"buffer": self.buffer.clone(), "evaluations": self.evaluations}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where a saved run stopped."""
        self.buffer.copy_(state_dict["buffer"])
        self.evaluations = int(state_dict["evaluations"])


def steppers(model: nn.Module, options: Mapping[str, Setting]) -> list[torch.optim.Optimizer]:
    """The torch optimizers that a run's settings name.

    Muon is for matrices: biases and all that is not a matrix are left to AdamW, as is usual.
    """
    name = str(options.get("stepper", "sgd"))
    taken = {key: options[key] for key in ("lr", "weight_decay") if key in options}
    if name == "sgd" and "momentum" in options:
        taken["momentum"] = options["momentum"]
    if name == "muon":
        matrices = [p for p in model.parameters() if p.ndim == 2]
        others = [p for p in model.parameters() if p.ndim != 2]
        muon = torch.optim.Muon(matrices, **taken)  # type: ignore[arg-type]
        return [muon, torch.optim.AdamW(others, lr=float(options["lr"]) / 10)]
    if name not in STEPPERS:
        known = ", ".join((*STEPPERS, "muon"))
        raise ValueError(f"stepper must be one of {known}, got {name!r}")
    return [STEPPERS[name](model.parameters(), **taken)]


ORDERS: dict[str, Callable[[int], cocd.schedules.Schedule]] = {
    "cyclic": lambda seed: cocd.schedules.Cyclic(),
    "spread": lambda seed: cocd.schedules.Spread(),
    "random": lambda seed: cocd.schedules.Random(seed=seed),
}


def coherent(
    model: nn.Module, options: Mapping[str, Setting], seed: int, sample: Sample
) -> cocd.CoherentGradient:
    """CoCD's estimate, in the `order` of coordinates that is named.

    Where `sparsity` gives the share to leave out, on a random mask. Its `ratios` by tensor are
    "equal", or DeepZero's: "zo-grasp", from `directions` random directions.
    """
    name = str(options.get("order", "cyclic"))
    if name not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {name!r}")
    schedule = ORDERS[name](seed)
    if "sparsity" in options:
        schedule = cocd.schedules.Masked(
            schedule,
            _ratios(model, options, seed, sample),
            redraw=int(options.get("redraw", 0)) or None,
            forget=bool(options.get("forget", 0)),
            seed=seed,
        )
    taken = {key: options[key] for key in ("eps", "decay", "difference") if key in options}
    return cocd.CoherentGradient(
        model.named_parameters(),
        compute_budget=int(options["compute_budget"]),
        schedule=schedule,
        **taken,  # type: ignore[arg-type]
    )


def _ratios(
    model: nn.Module, options: Mapping[str, Setting], seed: int, sample: Sample
) -> list[float]:
    """The share of each tensor to leave out; biases and BatchNorm are kept whole."""
    sparsity, kind = float(options["sparsity"]), options.get("ratios", "equal")
    if kind == "equal":
        return [sparsity if p.ndim > 1 else 0.0 for p in model.parameters()]
    if kind != "zo-grasp":
        raise ValueError(f"ratios must be 'equal' or 'zo-grasp', got {kind!r}")
    found = cocd.sparsity.zo_grasp(
        sample(),
        model.named_parameters(),
        sparsity=sparsity,
        directions=int(options["directions"]),
        seed=seed,
    )
    return list(found.values())


def looks(options: Mapping[str, Setting]) -> int:
    """Evaluations before the first step.

    >>> looks({"sparsity": 0.9, "ratios": "zo-grasp", "directions": 192}), looks({})
    (386, 0)
    """
    return 2 * int(options["directions"]) + 2 if options.get("ratios") == "zo-grasp" else 0
