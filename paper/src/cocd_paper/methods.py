"""Who learns: a method's optimizer, from its name and the settings of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

import cocd

from . import estimators, unit_methods
from .estimators import EstimatedDescent, RateSchedules, Sample, nothing_to_sample
from .runs import Run, Setting

_COORDINATES = ("lr", "eps", "compute_budget", "weight_decay")
_AUTOMATIC = (*_COORDINATES, "memory_budget", "max_evaluations", "order")
_ORDERS = {"cyclic": cocd.schedules.Cyclic, "spread": cocd.schedules.Spread}
_DIRECTIONS = ("lr", "eps", "directions", "weight_decay")
_ESTIMATED = (
    *estimators.STEPPER_SETTINGS,
    *("eps", "decay", "compute_budget", "difference", "order"),
    *("sparsity", "ratios", "directions", "redraw", "forget"),
)
# Settings that are not the optimizer's own.
_OTHERS = (
    *("activation", "augment", "batch_size", "dtype", "engine", "inputs", "schedule", "width"),
    "without",
)


@dataclass(frozen=True)
class Method:
    """An optimizer and which settings it takes."""

    name: str
    build: Callable[..., Any]
    takes: tuple[str, ...]
    seeded: bool = False
    first_order: bool = False
    automatic: bool = False  # chooses what it is not given
    traced: bool = False  # built on the objective, of which it asks more than losses
    estimates: bool = False  # fills p.grad for a torch optimizer


def _stale(
    model: nn.Module, options: Mapping[str, Setting], seed: int, sample: Sample
) -> estimators.Estimator:
    budget, decay = int(options["compute_budget"]), float(options["decay"])
    return estimators.StaleGradient(model.parameters(), compute_budget=budget, decay=decay)


METHODS = {
    method.name: method
    for method in (
        Method("cocd", cocd.CoCD, (*_COORDINATES, "memory_budget", "decay")),
        Method("auto", cocd.AutoCoCD, _AUTOMATIC, automatic=True),
        Method("bccd", cocd.baselines.BCCD, _COORDINATES),
        Method("random", cocd.baselines.RandomCoordinate, _COORDINATES, seeded=True),
        Method("spsa", cocd.baselines.SPSA, _DIRECTIONS, seeded=True),
        Method("zosgd", cocd.baselines.ZOSGD, _DIRECTIONS, seeded=True),
        Method("mezo", cocd.baselines.MeZO, _DIRECTIONS, seeded=True),
        Method(
            "unit-descent",
            cocd.UnitDescent,
            ("compute_budget", "max_evaluations", "weight_decay"),
            seeded=True,
            automatic=True,
            traced=True,
        ),
        Method(
            "unit-adam",
            unit_methods.UnitOptimizer,
            (
                "compute_budget",
                "lr",
                "max_evaluations",
                "optimizer",
                "weight_decay",
                *unit_methods.PROBING,
            ),
            seeded=True,
            automatic=True,
            traced=True,
        ),
        Method("coherent", estimators.coherent, _ESTIMATED, seeded=True, estimates=True),
        Method(
            "stale",
            _stale,
            (*estimators.STEPPER_SETTINGS, "compute_budget", "decay"),
            first_order=True,
            estimates=True,
        ),
        Method("sgd", torch.optim.SGD, ("lr", "momentum", "weight_decay"), first_order=True),
        Method("adam", torch.optim.Adam, ("lr", "weight_decay"), first_order=True),
    )
}


OWN = "auto"  # as a compute budget: what AutoCoCD finds by itself
AUTOMATIC_BUDGET = 64  # the least that it finds, where there are more than 512 coordinates

# Parts of AutoCoCD that the ablation takes out.
WITHOUT: dict[str, dict[str, Any]] = {
    "remembered curvature": {"measure_every": 1},
    # A block of 64 has none above 64 times its mean: beside a hundred times that all are alike.
    "curvature": {"damping": 100.0},
    "smaller parts from sweep to sweep": {"part_sweeps": math.inf},
    "parts: all of the best step": {"part": 1.0, "part_sweeps": math.inf},
    "shrinking at the end": {"end": 1e-9},
    "a trust radius": {"reach": 1e3},
    "longer steps where slopes persist": {"compared_until": 0},
}


def find(name: str) -> Method:
    """The method of that name.

    >>> find("sgd").first_order
    True
    """
    if name not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {name!r}")
    return METHODS[name]


def optimizer(
    run: Run,
    model: nn.Module,
    objective: cocd.Objective | None = None,
    sample: Sample = nothing_to_sample,
) -> Any:
    """The run's optimizer. `memory_budget` is a share of all coordinates (the paper's M).

    `sample` gives the loss on some training rows, for a method that looks before it starts.
    """
    method, options = find(run.method), run.options
    for name in options:
        if name not in method.takes and name not in _OTHERS:
            raise ValueError(f"settings: {run.method} has no setting {name!r}")
    if method.estimates:
        estimator = method.build(model, options, run.seed, sample)
        steppers = estimators.steppers(model, options)
        return EstimatedDescent(estimator, steppers, estimators.looks(options))
    chosen: dict[str, Any] = {n: options[n] for n in method.takes if n in options}
    if finds_budget(run) or method.traced:
        del chosen["compute_budget"]  # it is the optimizer's own business
    if "memory_budget" in chosen:
        n = sum(p.numel() for p in model.parameters())
        chosen["memory_budget"] = max(1, round(float(chosen["memory_budget"]) * n))
    if method.automatic and not method.traced and "weight_decay" in chosen:
        chosen["l2"] = chosen.pop("weight_decay")  # it is a term of the objective there
    if "order" in chosen:
        chosen["schedule"] = _ORDERS[chosen.pop("order")]()
    if method.seeded:
        chosen["seed"] = run.seed
    if (part := options.get("without")) is not None:
        chosen["config"] = replace(cocd.AutoConfig(), **WITHOUT[str(part)])
    return method.build(objective if method.traced else model.named_parameters(), **chosen)


def finds_budget(run: Run) -> bool:
    """Whether the budget is left to the method, so that steps differ in their evaluations."""
    return run.options.get("compute_budget") == OWN


def scheduler(run: Run, optimizer: Any) -> RateSchedules | LambdaLR | None:
    """What the setting `schedule` names: None for "none", or a cosine over the whole run.

    "warm cosine" rises in a line to the full rate over the first twentieth.
    """
    kind, steps = run.options.get("schedule", "none"), run.epochs * run.steps_per_epoch
    if kind == "none" or isinstance(optimizer, unit_methods.UnitOptimizer):
        return None  # that one has a cosine of its own
    if kind not in ("cosine", "warm cosine"):
        raise ValueError(f"schedule must be 'none', 'cosine' or 'warm cosine', got {kind!r}")
    warm = steps / 20 if kind == "warm cosine" else 0

    def rate(step: int) -> float:
        rise = min(1.0, (step + 1) / warm) if warm else 1.0
        return rise * (1 + math.cos(math.pi * min(step / steps, 1))) / 2

    if isinstance(optimizer, EstimatedDescent):
        return RateSchedules([LambdaLR(stepper, rate) for stepper in optimizer.steppers])
    return LambdaLR(optimizer, rate)


def cost(method: str, settings: dict[str, Setting]) -> int:
    """Evaluations that a step takes; a backward pass counts as none.

    >>> cost("cocd", {"compute_budget": 64}), cost("spsa", {"directions": 64})
    (129, 128)
    >>> cost("auto", {"compute_budget": 16})
    23
    >>> cost("auto", {"compute_budget": 16, "without": "remembered curvature"})
    35
    """
    if find(method).automatic:  # two evaluations per coordinate in every fourth sweep, else one
        changed = WITHOUT.get(str(settings.get("without")), {})
        every = int(changed.get("measure_every", cocd.AutoConfig().measure_every))
        B = settings["compute_budget"]
        return (every + 1) * (AUTOMATIC_BUDGET if B == OWN else int(B)) // every + 3
    if find(method).first_order:
        return 1
    if "compute_budget" in settings:
        sides = 1 if settings.get("difference") == "forward" else 2
        return sides * int(settings["compute_budget"]) + 1
    return 2 * int(settings.get("directions", 1))
