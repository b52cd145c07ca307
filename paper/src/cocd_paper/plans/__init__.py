"""The plans, one file for each table and figure.

A plan is a module with `NAME`, `ABOUT`, `TASKS`, `EPOCHS` and ``runs(task, seed, epochs)``, which
yields the runs of one task and one seed. It may have `OPTIONAL`, tasks that are made when they are
asked for, and `SMOKE_TASKS` and `SMOKE_METHODS`, those of its small form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from .. import tasks as networks
from ..runs import Run
from . import (
    adaptive,
    deepzero,
    figure_ablation,
    figure_error_bound,
    figure_random,
    figure_resnet,
    figure_smoothing,
    reuse,
    table_main,
    table_memory,
    table_time,
    tune,
    units,
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
        table_time,
        figure_resnet,
        figure_error_bound,
        tune,
        adaptive,
        units,
        reuse,
        deepzero,
    )
}


def generate(
    plan: str,
    *,
    tasks: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    epochs: int | None = None,
    smoke: bool = False,
    activation: str | None = None,
    published: bool = False,
) -> Iterator[Run]:
    """The runs of a plan, task by task and seed by seed.

    `activation` is instead of the plan's; `published` takes SARCOS as it is distributed.

    >>> [run.label for run in generate("table-main", tasks=["sarcos"])][:2]
    ["CoCD (paper's settings)", "BCCD (paper's settings)"]
    """
    module = find(plan)
    if (activation or published) and plan in _FIXED:
        raise ValueError(
            f"{plan} has networks and rows of its own; another activation or split is for "
            f"{', '.join(name for name in PLANS if name not in _FIXED)}"
        )
    known = (*module.TASKS, *getattr(module, "OPTIONAL", ()))
    for task in tasks or ():
        if task not in known:
            raise ValueError(f"task must be one of {', '.join(known)} in {plan}, got {task!r}")
    usual = getattr(module, "SMOKE_TASKS", module.TASKS) if smoke else module.TASKS
    made = [
        _altered(run, activation, published)
        for task in tasks or usual
        for seed in seeds
        for run in module.runs(task, seed, module.EPOCHS if epochs is None else epochs)
    ]
    if published:
        strangers = list(dict.fromkeys(run.task for run in made if not _sarcos(run.task)))
        made = [run for run in made if _sarcos(run.task)]
        if strangers and (tasks or not made):
            raise ValueError(
                f"the published split is of sarcos alone, not of {', '.join(strangers)}"
            )
    methods = getattr(module, "SMOKE_METHODS", ())
    yield from map(shrink, _thin(made, methods)) if smoke else made


_FIXED = ("table-memory", "table-time", "tune", "adaptive", "units", "reuse", "deepzero")


def _sarcos(task: str) -> bool:
    return networks.find(task).dataset == "sarcos"


def _altered(run: Run, activation: str | None, published: bool) -> Run:
    """The run on another network, or on the published rows; nothing was tuned on either."""
    usual = str(run.options.get("activation", networks.find(run.task).activation))
    changes: dict[str, Any] = {"split": "published"} if published else {}
    where = ["other rows"] if published else []
    if activation not in (None, usual):
        networks.check_activation(activation)
        changes["settings"] = {**run.options, "activation": activation}
        where.insert(0, usual)
    if where and any(word in run.label for word in ("tuned", "best eps")):
        changes["label"] = f"{run.label.removesuffix(')')}; on {' and '.join(where)})"
    return replace(run, **changes) if changes else run


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
