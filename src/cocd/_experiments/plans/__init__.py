"""The plans, one file for each table and figure.

A plan is a module with `NAME`, `ABOUT`, `TASKS`, `EPOCHS` and ``runs(task, seed, epochs)``, which
yields the runs of one task and one seed. It may have `OPTIONAL`, tasks that are made when they are
asked for, and `SMOKE_TASKS` and `SMOKE_METHODS`, those of its small form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..runs import Run
from . import (
    adaptive,
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
        adaptive,
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
    methods = getattr(module, "SMOKE_METHODS", ())
    yield from map(shrink, _thin(made, methods)) if smoke else made


def _thin(made: list[Run], methods: Sequence[str]) -> list[Run]:
    """The first and the last run of each method and group: all ways are gone, not all values."""
    ends: dict[tuple[str, ...], list[Run]] = {}
    for run in made:
        if not methods or run.method in methods:
            series = (run.task, run.group, run.method, str(run.seed))
            ends[series] = [*ends.get(series, [])[:1], run]
    kept = {id(run) for pair in ends.values() for run in pair}
    return [run for run in made if id(run) in kept]


def find(plan: str) -> Any:
    """The plan of that name."""
    if plan not in PLANS:
        raise ValueError(f"plan must be one of {', '.join(PLANS)}, got {plan!r}")
    return PLANS[plan]
