"""Unit probes: what they reach on the paper's tasks, and what memory is worth among units.

Groups: `descent`, UnitDescent with its one set of defaults at several budgets; `networks`, the same
on other activations; `memory`, on validation rows, B of the units per step with stale rows kept,
decaying or forgotten. They see the losses of single samples and the layers' inputs: more than
black-box methods do.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..methods import OWN
from ..runs import Run, Setting
from . import paper

NAME = "units"
ABOUT = "unit probes: losses of single samples at many budgets, activations, stale rows"
TASKS = ("sarcos", "mnist", "cifar10")
EPOCHS = 10  # rows of a run

# Evaluations. The paper's CoCD takes 4.48 M, 12 M and 40 M.
BUDGETS: dict[str, tuple[int, ...]] = {
    "sarcos": (450_000, 4_480_000),
    "mnist": (30_000, 1_200_000),
    "cifar10": (1_300_000,),
}
SMALL = 200_000  # evaluations of the memory question, on SARCOS
MEMORY: tuple[tuple[int, float, float], ...] = tuple(
    (units, decay, lr)
    for units in (16, 64)
    for decay in (0.0, 0.5, 0.9, 1.0)
    for lr in (1e-3, 3e-3)
)


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """All groups of one task."""
    for budget in BUDGETS[task]:
        label = f"UnitDescent ({budget:,} evaluations)"
        yield make(task, "unit-descent", label, "descent", budget, {}, seed, epochs)
    for activation in ("relu", "gelu", "silu"):
        own: dict[str, Setting] = {"activation": activation}
        label = f"UnitDescent ({activation})"
        yield make(task, "unit-descent", label, "networks", BUDGETS[task][0], own, seed, epochs)
    if task == "sarcos":
        for units, decay, lr in MEMORY:
            own = {"units": units, "decay": decay, "lr": lr}
            label = f"{units} of 247 units, decay {decay:g}, lr {lr:g}"
            yield make(
                task, "unit-adam", label, "memory", SMALL, own, seed, epochs, split="validation"
            )


def make(
    task: str, method: str, label: str, group: str, budget: int, own: dict[str, Setting],
    seed: int, epochs: int, split: str = "test",
) -> Run:  # fmt: skip
    """A run whose epochs are equal shares of its evaluations."""
    settings: dict[str, Setting] = {
        "dtype": "float32",
        **paper.COMMON[task],
        "weight_decay": 0.0,
        "compute_budget": OWN,
        "max_evaluations": budget,
        **own,
    }
    return Run(
        NAME, task, method, label, settings, seed=seed, epochs=epochs,
        steps_per_epoch=max(1, budget // (epochs * 100)), group=group, split=split,
    )  # fmt: skip
