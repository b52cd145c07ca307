"""The best settings of each grid, from the rows of the plan ``tune``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from pprint import pformat
from statistics import fmean
from typing import Any

from . import tasks
from .plans import tune
from .runs import Setting, Settings
from .store import read_rows

Table = dict[str, dict[str, dict[str, Setting]]]


def choose(folder: Path) -> Table:
    """Task, entry -> the settings of its grid with the best mean metric over seeds.

    A run that diverged or has not ended is no candidate, nor are settings of which another seed
    is in that state; the test rows play no part, nor do runs of another length or in small form.
    """
    metrics: dict[tuple[str, str], dict[Settings, list[float | None]]] = {}
    for run, metric in _ended(folder):
        own = {name: run["settings"][name] for name in tune.names(run["task"], run["group"])}
        grid = metrics.setdefault((run["task"], run["group"]), {})
        grid.setdefault(tuple(sorted(own.items())), []).append(metric)
    table: Table = {}
    for (task, entry), grid in sorted(metrics.items()):
        means = {
            own: fmean(value for value in found if value is not None)
            for own, found in grid.items()
            if None not in found
        }
        if means:
            ranked = sorted(means, key=means.__getitem__, reverse=tasks.find(task).classify)
            table.setdefault(task, {})[entry] = dict(ranked[0])
    return table


def table(found: Table) -> str:
    """The table as plans/tuned.py has it."""
    return pformat(found, width=98, sort_dicts=True)


def _ended(folder: Path) -> Iterator[tuple[dict[str, Any], float | None]]:
    for path in sorted(folder.rglob("*.jsonl")):  # those of runs, and those that are committed
        rows = read_rows(path)
        if len(rows) < 2 or rows[-1].get("row") != "end" or rows[0].get("split") != "validation":
            continue
        run = rows[0]
        if run.get("smoke") or (run.get("plan"), run.get("epochs")) != (tune.NAME, tune.EPOCHS):
            continue
        if run.get("group") not in tune.GRIDS.get(str(run.get("task")), {}):
            continue  # of a grid that is no more
        last = next((row for row in reversed(rows) if row.get("row") == "epoch"), None)
        metric = None if last is None else last.get("metric")
        done = rows[-1].get("status") == "done" and metric is not None
        yield run, float(metric) if done and metric is not None else None
