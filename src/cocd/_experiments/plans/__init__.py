"""The plans, one file for each table and figure.

A plan is a module with `NAME`, `ABOUT`, `TASKS`, `EPOCHS` and ``runs(task, seed, epochs)``, which
yields the runs of one task and one seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..runs import Run
from . import table_main
from .paper import shrink

PLANS: dict[str, Any] = {plan.NAME: plan for plan in (table_main,)}


def generate(
    plan: str,
    *,
    tasks: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    epochs: int | None = None,
    smoke: bool = False,
) -> Iterator[Run]:
    """The runs of a plan, task by task and seed by seed.

    >>> [run.label for run in generate("table-main", tasks=["sarcos"])][:2]
    ['CoCD (paper's settings)', 'BCCD (paper's settings)']
    """
    module = find(plan)
    for task in tasks or module.TASKS:
        if task not in module.TASKS:
            known = ", ".join(module.TASKS)
            raise ValueError(f"task must be one of {known} in {plan}, got {task!r}")
        for seed in seeds:
            for run in module.runs(task, seed, module.EPOCHS if epochs is None else epochs):
                yield shrink(run) if smoke else run


def find(plan: str) -> Any:
    """The plan of that name."""
    if plan not in PLANS:
        raise ValueError(f"plan must be one of {', '.join(PLANS)}, got {plan!r}")
    return PLANS[plan]
