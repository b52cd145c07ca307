"""The paper's settings (its section 6, Table 1), and what a plan builds its runs from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..methods import AUTOMATIC_BUDGET, OWN, cost, find
from ..runs import Run, Setting

EPOCHS = 50

# The three tasks of Table 1; an epoch has the paper's number of steps.
STEPS = {"sarcos": 695, "mnist": 469, "cifar10": 391}
COMMON: dict[str, dict[str, Setting]] = {
    "sarcos": {"batch_size": 64, "weight_decay": 1e-4, "activation": "tanh"},
    "mnist": {"batch_size": 128, "weight_decay": 1e-4, "activation": "tanh"},
    "cifar10": {"batch_size": 128, "weight_decay": 5e-4, "activation": "tanh"},
}
COCD: dict[str, dict[str, Setting]] = {
    "sarcos": {"lr": 1e-3, "decay": 1.0, "eps": 1.0, "compute_budget": 64},
    "mnist": {"lr": 1e-2, "decay": 0.99, "eps": 0.1, "compute_budget": 256},
    "cifar10": {"lr": 1e-2, "decay": 0.99, "eps": 0.1, "compute_budget": 1024},
}
BCCD_EPS = 1e-6
MOMENTUM = 0.9


def settings(task: str, method: str, own: Mapping[str, Setting]) -> dict[str, Setting]:
    """The task's common settings, the paper's lr and budget, and the method's own over them.

    >>> settings("sarcos", "spsa", {"lr": 0.1, "eps": 0.01})["directions"]
    64
    """
    paper = COCD[task]
    chosen: dict[str, Setting] = {"dtype": "float32", **COMMON[task]}
    if find(method).automatic:
        return {**chosen, "compute_budget": AUTOMATIC_BUDGET, **own}
    chosen["lr"] = paper["lr"]
    takes = find(method).takes
    if "eps" in takes:
        chosen["eps"] = paper["eps"]
    if "decay" in takes:
        chosen["decay"] = paper["decay"]
    if "compute_budget" in takes:
        chosen["compute_budget"] = paper["compute_budget"]
    if "directions" in takes:
        chosen["directions"] = paper["compute_budget"]
    if "momentum" in takes:
        chosen["momentum"] = MOMENTUM
    return {**chosen, **own}


def steps(task: str, method: str, chosen: Mapping[str, Setting]) -> int:
    """Steps of an epoch in which the method makes as many evaluations as the paper's CoCD.

    An oracle with gradients takes as many steps. Rounded to the nearest whole step.

    >>> steps("sarcos", "spsa", {"directions": 64}), steps("sarcos", "sgd", {})
    (700, 695)
    """
    if find(method).first_order:
        return STEPS[task]
    return max(1, round(evaluations(task) / cost(method, dict(chosen))))


def evaluations(task: str) -> int:
    """Evaluations that the paper's CoCD makes in an epoch.

    >>> evaluations("sarcos")
    89655
    """
    return STEPS[task] * cost("cocd", COCD[task])


def make(
    plan: str, task: str, method: str, label: str, own: Mapping[str, Setting], **rest: Any
) -> Run:
    """A run on one of the paper's tasks; `own` are the settings that are not the paper's."""
    chosen = settings(task, method, own)
    rest.setdefault("steps_per_epoch", steps(task, method, chosen))
    if find(method).automatic:
        chosen["max_evaluations"] = rest["epochs"] * evaluations(task)
    return Run(plan, task, method, label, chosen, **rest)


SMALL: dict[str, int] = {"compute_budget": 16, "directions": 4, "batch_size": 16}
SMALL_VARIED = 128
# A coordinate of the residual network costs as much as a hundred elsewhere.
SMALLER: dict[str, int] = {"compute_budget": 2, "batch_size": 8}


def shrink(run: Run, epochs: int = 2, steps_per_epoch: int = 4) -> Run:
    """The small form of a run: generated data, few and cheap steps; what is varied still varies."""
    options = run.options
    deep = run.task == "cifar10-resnet"
    for name, most in {**SMALL, **(SMALLER if deep else {})}.items():
        if options.get(name) == OWN:  # would not grow in so few steps
            options[name] = most
        elif name in options:
            options[name] = min(int(options[name]), SMALL_VARIED if name == run.vary else most)
    row = {**run.to_row(), "settings": options, "smoke": True}
    if run.epochs:  # a measurement has none
        row.update(epochs=epochs, steps_per_epoch=2 if deep else steps_per_epoch)
    return Run.from_row(row)
