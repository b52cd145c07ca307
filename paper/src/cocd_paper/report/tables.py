"""Tables: words and numbers in cells, made of series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import paper, text
from .series import Series, rank, sort_key


@dataclass(frozen=True)
class Table:
    """A table; `best` are the rows to be marked, `words` the columns set to the left."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    best: tuple[int, ...] = ()


def finals(title: str, series: Sequence[Series]) -> Table:
    """Outcome, time and evaluations of each series, beside the paper's."""
    rows = []
    for s, name in zip(series, text.names(series), strict=True):
        known = paper.known(s)
        seconds, spent = s.seconds_per_epoch, s.total("evaluations")
        backward = " + backward" if s.first_order else ""
        rows.append(
            (
                text.task(s.task),
                name,
                text.outcome(s),
                str(len(s.results)),
                text.metric(known.metric, accuracy=s.accuracy) if known else "–",
                text.number(seconds.mean) if seconds else "–",
                text.number(known.seconds) if known and known.seconds else "–",
                f"{spent.mean:,.0f}{backward}" if spent else "–",
            )
        )
    columns = (
        *("task", "method", "final metric (range)", "seeds", "paper"),
        *("s/epoch", "paper's s", "evaluations"),
    )
    return _without_empty(Table(title, columns, tuple(rows), 2, best(series)))


def _without_empty(table: Table) -> Table:
    """The paper's columns only where the paper has something to say."""
    keep = [
        i
        for i, name in enumerate(table.columns)
        if not name.startswith("paper") or any(row[i] != "–" for row in table.rows)
    ]
    rows = tuple(tuple(row[i] for i in keep) for row in table.rows)
    return Table(table.title, tuple(table.columns[i] for i in keep), rows, table.words, table.best)


def best(series: Sequence[Series]) -> tuple[int, ...]:
    """For each task, split and length the rows with the best final metric without gradients.

    Of those that ended, among all that were tried: one alone is not the best.
    """
    places: dict[tuple[str, str, int], list[int]] = {}
    for index, s in enumerate(series):
        if not s.first_order:
            places.setdefault((s.task, s.run["split"], s.epochs), []).append(index)
    found: list[int] = []
    for tried in places.values():
        ends = {i: series[i].final for i in tried if series[i].ended}
        means = {i: final.mean for i, final in ends.items() if final is not None}
        if means and len(tried) > 1:
            top = (max if series[tried[0]].accuracy else min)(means.values())
            found += [index for index, mean in means.items() if mean == top]
    return tuple(sorted(found))


def tuning(series: Sequence[Series]) -> list[Table]:
    """A list for each task and grid: the settings that were tried, the winner marked."""
    tables = []
    for task, group in dict.fromkeys((s.task, s.run["group"]) for s in series):
        own = [s for s in series if (s.task, s.run["group"]) == (task, group)]
        tables.append(compared(f"{text.task(task)}, {group or own[0].label}", own))
    return tables


def compared(title: str, series: Sequence[Series]) -> Table:
    """Series that differ in some settings, with a column for each of these, and the outcome."""
    names = sorted({name for s in series for name in s.settings})
    varied = [n for n in names if len({repr(s.settings.get(n)) for s in series}) > 1]
    order = sorted(series, key=lambda s: [sort_key(s.settings.get(n, "")) for n in varied])
    rows = tuple(
        (s.label, *(text.plain(s.settings.get(n)) for n in varied), text.outcome(s)) for s in order
    )
    columns = ("method", *map(text.heading, varied), "final metric")
    return Table(title, columns, rows, 1, best(order))


# What stands first, where it is measured.
_MEASURES = (
    *("n", "parameters", "compute_budget", "error", "minibatch_error", "bound"),
    *("weight_bytes", "state_bytes", "tensor_peak_bytes", "peak_bytes"),
    *("cocd_over_bccd", "lower_quartile", "upper_quartile", "cocd_ms", "bccd_ms"),
)


def measures(title: str, series: Sequence[Series]) -> Table:
    """Measure rows as they are, a column for each thing measured."""
    found = {key for s in series for r in s.results for row in r.measures for key in row}
    keys = sorted(found - {"row"}, key=lambda key: rank(key, _MEASURES))
    rows = []
    for s, name in zip(series, text.names(series), strict=True):
        told = [row for r in s.results for row in r.measures]
        if told:
            rows.append((text.task(s.task), name, *(_measure(key, told) for key in keys)))
    heads = (text.heading(key.replace("_bytes", ", kB")) for key in keys)
    return Table(title, ("task", "method", *heads), tuple(rows), 2)


def _measure(key: str, rows: Sequence[dict[str, Any]]) -> str:
    values = [row[key] for row in rows if isinstance(row.get(key), (int, float))]
    if not values:
        return next((str(row[key]) for row in rows if row.get(key) is not None), "–")
    mean = sum(values) / len(values)
    if key.endswith("_bytes"):
        return f"{mean / 1e3:,.1f}"
    return f"{mean:,.0f}" if all(isinstance(v, int) for v in values) else text.number(mean)


def beside_the_first(title: str, series: Sequence[Series]) -> Table:
    """Each variant, and how many times the loss of the first it ends with, or points above it."""
    first, rows = series[0], []
    beside = "points above the first" if first.accuracy else "× the first"
    for s in series:
        ratio = "–"
        if first.final and s.final and not s.diverged:
            ends, base = s.final.mean, first.final.mean
            ratio = f"{100 * (ends - base):+.2f}" if s.accuracy else f"{ends / base:.2f}"
        rows.append((s.label, text.outcome(s), ratio))
    return Table(title, ("variant", "final metric", beside), tuple(rows))


_RUN = ("key", "task", "label", "group", "split", "seed", "epochs", "steps_per_epoch")


def runs(series: Sequence[Series]) -> Table:
    """Every run with every setting."""
    names = sorted({name for s in series for name in s.settings})
    rows = []
    for r in (r for s in series for r in s.results):
        last = r.last
        cells = [r.run[name] or None for name in _RUN[:5]] + [r.run[name] for name in _RUN[5:]]
        cells += [r.run["settings"].get(name) for name in names]
        cells += [r.status, last.get("evaluations"), last.get("seconds"), r.run["started"]]
        cells += [r.run["command"]]
        rows.append(tuple(map(text.plain, cells)))
    columns = (*_RUN, *names, "status", "evaluations", "seconds", "started", "command")
    return Table("Every run", tuple(map(text.heading, columns)), tuple(rows), 5)


def settings(series: Sequence[Series]) -> Table:
    """What each series was set to."""
    names = sorted({name for s in series for name in s.settings})
    rows = dict.fromkeys(
        (s.run["task"], s.label, str(s.epochs), *(text.plain(s.settings.get(n)) for n in names))
        for s in series
    )
    columns = ("task", "label", "epochs", *map(text.heading, names))
    return Table("Settings", columns, tuple(rows), 2)
