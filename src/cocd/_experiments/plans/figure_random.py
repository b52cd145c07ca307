"""CoCD beside methods that probe random directions, at equal evaluations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..runs import Run, Setting
from . import paper
from .table_main import FAIR
from .tuned import TUNED

NAME = "figure-random"
ABOUT = "CoCD, SPSA and ZO-SGD at equal evaluations on SARCOS and MNIST, over evaluations and time"
TASKS = ("sarcos", "mnist")
EPOCHS = paper.EPOCHS
EPS = 1e-3  # the paper gives none; a direction is as long as sqrt(n), so this moves x by 0.1


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """The paper's three with CoCD's learning rate, then each with its own."""
    common: dict[str, Any] = {"seed": seed, "epochs": epochs}
    own: dict[str, Setting] = {"eps": EPS}
    first = [
        paper.make(NAME, task, "cocd", "CoCD (paper's settings)", {}, **common),
        paper.make(NAME, task, "spsa", "SPSA (CoCD's lr)", own, **common),
        paper.make(NAME, task, "zosgd", "ZO-SGD (CoCD's lr)", own, **common),
    ]
    yield from first
    for entry, method, label in FAIR:
        if entry in TUNED[task] and entry != "bccd-float64":
            run = paper.make(NAME, task, method, label, TUNED[task][entry], **common)
            # What tuning may find is that CoCD's rate is the best for another method, too.
            if all((run.method, run.settings) != (r.method, r.settings) for r in first):
                yield run
