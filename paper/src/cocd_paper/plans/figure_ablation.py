"""The ablation grid: radius, decay, budget and memory, one at a time, and the stress test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..runs import Run, Setting
from . import paper

NAME = "figure-ablation"
ABOUT = "eps, gamma, B and M varied one at a time on SARCOS and MNIST, and B = 1"
TASKS = ("sarcos", "mnist")
EPOCHS = paper.EPOCHS

# The defaults of the paper's section 6.2, which are not those of its Table 1 on MNIST.
DEFAULTS: dict[str, dict[str, Setting]] = {
    "sarcos": {"eps": 1.0, "decay": 1.0, "compute_budget": 64, "memory_budget": 1.0},
    "mnist": {"eps": 1.0, "decay": 1.0, "compute_budget": 256, "memory_budget": 1.0},
}
# Group, setting, values.
PANELS: tuple[tuple[str, str, tuple[Setting, ...]], ...] = (
    ("eps", "eps", (1e-3, 1e-2, 1e-1, 1.0)),
    ("gamma", "decay", (0.0, 0.5, 0.9, 0.95, 0.99, 1.0)),
    ("B", "compute_budget", (1, 16, 64, 256, 1024)),
    ("M", "memory_budget", (0.25, 0.5, 0.75, 1.0)),
)
# One coordinate a step. The paper does not say with which learning rate.
STRESS: dict[str, Setting] = {"compute_budget": 1, "decay": 0.95, "eps": 1.0}
STRESS_RATES = (1e-3, 1e-2, 1e-1)


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """The panels of one task; the run at the defaults is in all of them and made once."""
    common: dict[str, Any] = {
        "seed": seed,
        "epochs": epochs,
        "steps_per_epoch": paper.STEPS[task],
        "carry": True,
    }
    default_made = False
    for group, vary, values in PANELS:
        for value in values:
            if value == DEFAULTS[task][vary]:
                if default_made:
                    continue
                default_made = True
            own = {**DEFAULTS[task], vary: value}
            yield paper.make(NAME, task, "cocd", "CoCD", own, group=group, vary=vary, **common)
    if task == "sarcos":
        for lr in STRESS_RATES:
            own = {**STRESS, "memory_budget": 1.0, "lr": lr}
            label = "CoCD (B = 1)"
            yield paper.make(NAME, task, "cocd", label, own, group="stress", vary="lr", **common)
        # What the paper sets beside it: no memory, and 64 times the budget.
        own = {"eps": paper.BCCD_EPS}
        yield paper.make(NAME, task, "bccd", "BCCD (B = 64)", own, group="stress", **common)
