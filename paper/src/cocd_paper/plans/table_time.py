"""What remembering costs: steps of CoCD and BCCD with the paper's settings, by turns."""

from __future__ import annotations

from collections.abc import Iterator

from ..runs import Run
from . import paper

NAME = "table-time"
ABOUT = "the time of a step of CoCD over that of BCCD, interleaved in one process"
TASKS = ("sarcos", "mnist", "cifar10")
SMOKE_TASKS = ("sarcos",)
EPOCHS = 0


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """One measurement; there is nothing to train."""
    settings = paper.settings(task, "cocd", {})
    yield Run(NAME, task, "cocd", "CoCD over BCCD", settings, seed, 0, 0)
