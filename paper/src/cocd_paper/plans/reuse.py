"""Remembered slopes for other optimizers, and staleness on its own, with true gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ..runs import Run, Setting
from . import paper

NAME = "reuse"
ABOUT = "CoCD's estimate into SGD, AdamW and Muon; the same staleness with true gradients"
TASKS = ("sarcos",)
OPTIONAL = ("mnist",)
EPOCHS = 5  # a tenth of the paper's evaluations
DECAYS = (0.0, 0.9, 0.99, 1.0)
RATES = {
    "sgd": (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    "adamw": (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "muon": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
}
SOURCES = {"coherent": "CoCD's estimate", "stale": "true gradients"}
NAMES = {"sgd": "SGD, momentum 0.9", "adamw": "AdamW", "muon": "Muon"}


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """Every optimizer, decay and rate, on validation rows."""
    for (method, source), (stepper, rates), decay in product(
        SOURCES.items(), RATES.items(), DECAYS
    ):
        for lr in rates:
            own: dict[str, Setting] = {"stepper": stepper, "decay": decay, "lr": lr}
            rest: dict[str, Any] = {"seed": seed, "epochs": epochs, "split": "validation"}
            label, group = f"{source}, {NAMES[stepper]}", f"decay {decay:g}"
            yield paper.make(NAME, task, method, label, own, group=group, **rest)
