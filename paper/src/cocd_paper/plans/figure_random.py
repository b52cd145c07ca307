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
    yield paper.make(NAME, task, "cocd", "CoCD (paper's settings)", {}, **common)
    its_own: dict[str, Setting] = {"lr": paper.COCD[task]["lr"], "eps": EPS}
    for method, name in (("spsa", "SPSA"), ("zosgd", "ZO-SGD")):
        # Tuning may find that CoCD's rate is the best for another method, too.
        label = "tuned: CoCD's lr" if TUNED[task].get(method) == its_own else "CoCD's lr"
        yield paper.make(NAME, task, method, f"{name} ({label})", {"eps": EPS}, **common)
    for entry, method, label in FAIR:
        own = TUNED[task].get(entry, its_own)
        if own != its_own and entry not in ("bccd-float64", "cocd-budget"):
            yield paper.make(NAME, task, method, label, own, **common)
