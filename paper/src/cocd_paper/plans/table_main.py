"""The main table: three tasks, CoCD beside BCCD, SGD and what else a fair comparison needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..runs import Run, Setting
from . import paper
from .tuned import TUNED

NAME = "table-main"
ABOUT = "final loss or accuracy on SARCOS, MNIST and CIFAR-10, with tuned baselines"
TASKS = ("sarcos", "mnist", "cifar10")
EPOCHS = paper.EPOCHS

# Entry of `TUNED`, method, label. What is not tuned on a task is left out there.
FAIR = (
    ("cocd", "cocd", "CoCD (tuned)"),
    ("cocd-budget", "cocd", "CoCD (tuned, other B)"),
    ("bccd-float64", "bccd", "BCCD (float64, best eps)"),
    ("bccd", "bccd", "BCCD (tuned)"),
    ("random", "random", "Random coordinates (tuned)"),
    ("spsa", "spsa", "SPSA (tuned)"),
    ("zosgd", "zosgd", "ZO-SGD (tuned)"),
)


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """The rows of the table."""
    common: dict[str, Any] = {"seed": seed, "epochs": epochs}
    # The tracker's fifth of a SARCOS step would be in the times of the table; elsewhere it is
    # lost among the evaluations. The ablation carries it on SARCOS.
    watched = {**common, "carry": task != "sarcos"}
    bccd: dict[str, Setting] = {"eps": paper.BCCD_EPS}
    yield paper.make(NAME, task, "cocd", "CoCD (paper's settings)", {}, **watched)
    yield paper.make(NAME, task, "bccd", "BCCD (paper's settings)", bccd, **watched)
    if task == "sarcos":
        # The same probes as a closure gives them: at this radius float32 leaves little of a
        # difference of two losses, which the engines form from what changed.
        plain: dict[str, Setting] = {**bccd, "engine": "sequential"}
        label = "BCCD (paper's settings, one evaluation per probe)"
        yield paper.make(NAME, task, "bccd", label, plain, **watched)
    yield paper.make(NAME, task, "sgd", "SGD (oracle)", {}, **common)
    for entry, method, label in FAIR:
        if (own := TUNED[task].get(entry)) is not None:
            rest = watched if method in ("cocd", "bccd") else common
            yield paper.make(NAME, task, method, label, own, **rest)
