"""Settings tried on validation rows, with a tenth of the budget; at most twelve for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ..runs import Run, Setting
from . import paper

NAME = "tune"
ABOUT = "settings of every method on validation rows, for the tuned runs of the other plans"
TASKS = ("sarcos", "mnist", "cifar10")
SMOKE_TASKS = ("sarcos",)
EPOCHS = paper.EPOCHS // 10
MOST = 12

# The smoothing figure has a budget of its own and as many steps as the others: four times the
# evaluations. So have the grids for it.
WIDE = "-wide"
WIDE_BUDGET = 256  # 2 % of 12,727, as the caption has it

Grid = list[dict[str, Setting]]

LABELS = {
    "cocd": "CoCD",
    "cocd-budget": "CoCD (other budgets)",
    "cocd-wide": "CoCD (smoothing figure)",
    "bccd": "BCCD",
    "bccd-wide": "BCCD (smoothing figure)",
    "bccd-float64": "BCCD (float64, paper's lr)",
    "random": "Random coordinates",
    "spsa": "SPSA",
    "zosgd": "ZO-SGD",
}


def _cocd(*triples: tuple[float, float, float]) -> Grid:
    return [{"decay": decay, "lr": lr, "eps": eps} for decay, lr, eps in triples]


def _budgets(*four: tuple[int, float, float, float]) -> Grid:
    return [
        {"compute_budget": B, "decay": decay, "lr": lr, "eps": eps} for B, decay, lr, eps in four
    ]


def _grid(rates: tuple[float, ...], radii: tuple[float, ...]) -> Grid:
    return [{"lr": lr, "eps": eps} for lr, eps in product(rates, radii)]


def _float64(*radii: float) -> Grid:
    return [{"dtype": "float64", "eps": eps} for eps in radii]


# CoCD applies an estimate 1 / (1 - gamma) times, at most once per step of a sweep: the larger gamma
# is, the smaller the rates that are tried. Directions estimate with a variance of n / directions
# times the slope's square, so their rates are as much smaller than a gradient's. Other budgets are
# tried at equal evaluations, so with fewer or more steps, and without memory (gamma 0) too.
GRIDS: dict[str, dict[str, Grid]] = {
    "sarcos": {
        "cocd": _cocd(
            *((1.0, lr, 1.0) for lr in (5e-4, 1e-3)),
            *((0.99, lr, 1.0) for lr in (2e-3, 5e-3)),
            *((0.95, lr, 1.0) for lr in (5e-3, 0.01, 0.02)),
            *((0.9, lr, eps) for lr, eps in ((0.02, 1.0), (0.02, 0.3), (0.05, 1.0))),
            *((0.5, 0.1, eps) for eps in (0.3, 1.0)),
        ),
        "cocd-budget": _budgets(
            *((16, decay, lr, 1.0) for decay, lr in ((0.0, 0.1), (0.0, 0.2), (0.5, 0.1))),
            *((16, 0.9, lr, 1.0) for lr in (0.01, 0.02)),
            *((256, decay, 0.1, 1.0) for decay in (0.0, 0.5)),
            *((256, 0.9, lr, 1.0) for lr in (0.02, 0.05)),
            (256, 0.99, 5e-3, 1.0),
            *((1024, decay, lr, 0.3) for decay, lr in ((0.9, 0.02), (1.0, 0.01))),
        ),
        "cocd-wide": _budgets(
            *((WIDE_BUDGET, 0.0, lr, 0.3) for lr in (0.1, 0.2)),
            *((WIDE_BUDGET, 0.5, lr, 0.3) for lr in (0.05, 0.1)),
            *((WIDE_BUDGET, 0.9, lr, 0.3) for lr in (0.01, 0.02)),
            *((WIDE_BUDGET, 0.99, lr, 0.3) for lr in (2e-3, 5e-3)),
            *((WIDE_BUDGET, 1.0, lr, 0.3) for lr in (1e-3, 2e-3)),
        ),
        "bccd": _grid((0.05, 0.1, 0.2, 0.5), (0.1, 0.3, 1.0)),
        "bccd-wide": [
            {"compute_budget": WIDE_BUDGET, **own}
            for own in _grid((0.05, 0.1, 0.2, 0.5), (0.1, 1.0))
        ],
        "bccd-float64": _float64(1e-6, 1e-3, 1e-2, 1e-1, 1.0),
        "random": _grid((0.05, 0.1, 0.2, 0.5), (0.1, 1.0)),
        "spsa": [
            *_grid((2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3), (1e-3,)),
            {"lr": 1e-3, "eps": 1e-2},
        ],
        "zosgd": [*_grid((5e-4, 1e-3, 2e-3), (1e-3,)), {"lr": 1e-3, "eps": 1e-2}],
    },
    "mnist": {
        "cocd": _cocd(
            *((1.0, lr, 0.1) for lr in (2e-3, 5e-3)),
            *((0.99, lr, 0.1) for lr in (5e-3, 0.01, 0.02)),
            *((0.95, lr, 0.1) for lr in (0.02, 0.05, 0.1)),
            *((0.9, lr, 0.1) for lr in (0.1, 0.2)),
            *((0.5, lr, 0.1) for lr in (0.25, 0.5)),
        ),
        "cocd-budget": _budgets(
            *((64, decay, lr, 0.1) for decay, lr in ((0.0, 0.5), (0.5, 0.5), (0.9, 0.1))),
            *((1024, decay, lr, 0.1) for decay, lr in ((0.5, 0.5), (0.9, 0.1), (0.9, 0.2))),
        ),
        "bccd": [
            *_grid((0.1, 0.25), (0.01, 0.1, 1.0)),
            {"lr": 0.5, "eps": 0.01},
            *_grid((0.5, 1.0, 2.0, 4.0), (0.1,)),
        ],
        "bccd-float64": _float64(1e-6, 1e-3, 1e-1),
        "random": _grid((0.5, 1.0, 2.0, 4.0, 8.0), (0.1,)),
        "spsa": _grid((5e-4, 1e-3, 2e-3, 5e-3), (1e-3,)),
        "zosgd": _grid((5e-4, 1e-3, 2e-3, 5e-3), (1e-3,)),
    },
    "cifar10": {
        "cocd": _cocd(
            (0.99, 0.02, 0.1),
            *((0.9, lr, 0.1) for lr in (0.03, 0.1)),
            *((0.5, lr, 0.1) for lr in (0.15, 0.5)),
        ),
        "bccd": _grid((0.15, 0.3), (0.1,)),
        "bccd-float64": _float64(1e-6, 1e-3, 1e-1),
        "random": _grid((0.3, 0.6), (0.1,)),
        "spsa": _grid((1e-3, 2e-3, 5e-3), (1e-3,)),
        "zosgd": _grid((1e-3, 2e-3, 5e-3), (1e-3,)),
    },
}


def names(task: str, entry: str) -> list[str]:
    """The settings that the grid names; the others are the paper's."""
    return sorted(GRIDS[task][entry][0])


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """Every grid of the task; the group names the entry of `TUNED` that it is for."""
    for entry, grid in GRIDS[task].items():
        method = entry.partition("-")[0]
        for own in grid:
            rest: dict[str, Any] = {"seed": seed, "epochs": epochs, "group": entry}
            if entry.endswith(WIDE):
                rest["steps_per_epoch"] = paper.STEPS[task]
            rest["split"] = "validation"
            yield paper.make(NAME, task, method, LABELS[entry], own, **rest)
