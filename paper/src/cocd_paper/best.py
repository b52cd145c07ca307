"""The best settings of each grid, from the rows of the plan ``tune``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from pprint import pformat
from statistics import fmean
from typing import Any, NamedTuple

from . import tasks
from .plans import tune
from .runs import Setting, Settings
from .store import read_rows


class Score(NamedTuple):
    """Where a run ended, on validation rows."""

    metric: float
    loss: float


Table = dict[str, dict[str, dict[str, Setting]]]


def choose(folder: Path) -> Table:
    """Task, entry -> the settings of its grid with the best mean metric over seeds.

    A run that diverged or has not ended is no candidate, nor are settings of which another seed
    is in that state; the test rows play no part, nor do small forms. Runs of another length than
    the plan's count where a grid has no others, the longest. Of equal metrics the loss decides.
    """
    grids: dict[tuple[str, str], dict[int, dict[Settings, list[Score | None]]]] = {}
    for run, score in _ended(folder):
        own = {name: run["settings"][name] for name in tune.names(run["task"], run["group"])}
        lengths = grids.setdefault((run["task"], run["group"]), {})
        grid = lengths.setdefault(int(run["epochs"]), {})
        grid.setdefault(tuple(sorted(own.items())), []).append(score)
    table: Table = {}
    for (task, entry), lengths in sorted(grids.items()):
        grid = lengths[tune.EPOCHS if tune.EPOCHS in lengths else max(lengths)]
        worse = -1.0 if tasks.find(task).classify else 1.0  # of a larger metric
        means = {
            own: (worse * fmean(s.metric for s in scores), fmean(s.loss for s in scores))
            for own, found in grid.items()
            if len(scores := [score for score in found if score is not None]) == len(found)
        }
        if means:
            ranked = sorted(means, key=means.__getitem__)
            table.setdefault(task, {})[entry] = dict(ranked[0])
    return table


def table(found: Table) -> str:
    """The table as plans/tuned.py has it."""
    return pformat(found, width=98, sort_dicts=True)


def _ended(folder: Path) -> Iterator[tuple[dict[str, Any], Score | None]]:
    for path in sorted(folder.rglob("*.jsonl")):  # those of runs, and those that are committed
        rows = read_rows(path)
        if len(rows) < 2 or rows[-1].get("row") != "end" or rows[0].get("split") != "validation":
            continue
        run = rows[0]
        if run.get("smoke") or run.get("plan") != tune.NAME:
            continue
        if run.get("group") not in tune.GRIDS.get(str(run.get("task")), {}):
            continue  # of a grid that is no more
        last: dict[str, Any] = next((r for r in reversed(rows) if r.get("row") == "epoch"), {})
        metric = last.get("metric")
        if rows[-1].get("status") != "done" or metric is None:
            yield run, None
        else:
            loss = last.get("loss")
            yield run, Score(float(metric), float(metric if loss is None else loss))
