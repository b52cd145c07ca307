"""The plans, one file for each table and figure.

A plan is a module with `NAME`, `ABOUT`, `TASKS`, `EPOCHS` and ``runs(task, seed, epochs)``, which
yields the runs of one task and one seed. It may have `OPTIONAL`, tasks that are made when they are
asked for; `SMOKE_TASKS`, those of its small form; and `thin`, which picks the small form's runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..runs import Run
from . import (
    figure_ablation,
    figure_error_bound,
    figure_random,
    figure_resnet,
    figure_smoothing,
    table_main,
    table_memory,
    tune,
)
from .paper import shrink

PLANS: dict[str, Any] = {
    plan.NAME: plan
    for plan in (
        table_main,
        figure_smoothing,
        figure_ablation,
        figure_random,
        table_memory,
        figure_resnet,
        figure_error_bound,
        tune,
    )
}


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
    ["CoCD (paper's settings)", "BCCD (paper's settings)"]
    """
    module = find(plan)
    known = (*module.TASKS, *getattr(module, "OPTIONAL", ()))
    for task in tasks or ():
        if task not in known:
            raise ValueError(f"task must be one of {', '.join(known)} in {plan}, got {task!r}")
    usual = getattr(module, "SMOKE_TASKS", module.TASKS) if smoke else module.TASKS
    made = [
        run
        for task in tasks or usual
        for seed in seeds
        for run in module.runs(task, seed, module.EPOCHS if epochs is None else epochs)
    ]
    if smoke:
        thin = getattr(module, "thin", list)
        made = [shrink(run) for run in thin(made)]
    yield from made


def find(plan: str) -> Any:
    """The plan of that name."""
    if plan not in PLANS:
        raise ValueError(f"plan must be one of {', '.join(PLANS)}, got {plan!r}")
    return PLANS[plan]
