"""The smoothing figure: CoCD and BCCD with four radii, about 2 % of the coordinates per step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..runs import Run, Setting
from . import paper
from .tune import WIDE, WIDE_BUDGET
from .tuned import TUNED

NAME = "figure-smoothing"
ABOUT = "CoCD and BCCD with radii from 1e-6 to 1 on SARCOS, B = 256"
TASKS = ("sarcos",)
EPOCHS = paper.EPOCHS
RADII = (1e-6, 1e-3, 1e-1, 1.0)


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """Four curves each, at the paper's learning rate; then both with a rate of their own."""
    series: list[tuple[str, str, dict[str, Setting]]] = [
        ("cocd", "CoCD", {}),
        ("bccd", "BCCD", {}),
        ("bccd", "BCCD (float64)", {"dtype": "float64"}),
    ]
    for method, label, names in (
        ("bccd", "BCCD (tuned lr)", ("lr",)),
        ("cocd", "CoCD (tuned γ and lr)", ("decay", "lr")),
    ):
        if tuned := TUNED[task].get(method + WIDE):
            series.append((method, label, {name: tuned[name] for name in names}))
    for method, label, own in series:
        for eps in RADII:
            chosen = {**own, "eps": eps, "compute_budget": WIDE_BUDGET}
            rest: dict[str, Any] = {"seed": seed, "epochs": epochs, "vary": "eps"}
            rest["steps_per_epoch"] = paper.STEPS[task]
            yield paper.make(NAME, task, method, label, chosen, **rest)
