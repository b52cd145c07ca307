"""Tables: words and numbers in cells, made of series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import Any

from . import paper, text, words
from .charts import ended
from .series import Series, rank, sort_key


@dataclass(frozen=True)
class Table:
    """A table; `best` are the rows to be marked, `words` the columns set to the left."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    best: tuple[int, ...] = ()
    note: str = ""


def outcome(series: Series) -> str:
    """The final metric with its spread, or what happened instead."""
    parts = [ended(series)] if series.diverged or series.status == "unfinished" else []
    final = series.final
    if final is not None and len(series.diverged) < len(series.results):
        shown = text.spread(final, accuracy=series.accuracy)
        if series.reached < series.epochs:
            shown += f" after {series.reached} of {series.epochs} epochs"
            parts = [ended(series)] if series.diverged else []
        parts.insert(0, shown)
    return "; ".join(parts) or "no rows yet"


def finals(title: str, series: Sequence[Series], names: Sequence[str] | None = None) -> Table:
    """Outcome, spread, time and evaluations of each series, beside the paper's."""
    rows = []
    several = len({s.run["split"] for s in series} - {"published"}) > 1  # that is in the task
    with_paper = any(_entry(s) for s in series)
    for s, name in zip(series, names or text.names(list(series)), strict=True):
        known = _entry(s)
        seconds, evaluations = s.seconds_per_epoch, s.total("evaluations")
        deviation = s.final.deviation if s.final else None
        row = [text.task(s.task), name]
        row += [s.run["split"]] if several else []
        row += [outcome(s), _deviation(deviation, s.accuracy), str(len(s.results))]
        row += [_paper_metric(known, s)] if with_paper else []
        row += [text.number(seconds.mean) if seconds else "–"]
        row += [_number(known.seconds if known else None)] if with_paper else []
        row += [_evaluations(s, evaluations.mean if evaluations else None)]
        rows.append(tuple(row))
    columns = ["task", "method", *(["split"] if several else [])]
    columns += ["final metric (range)", "deviation", "seeds"]
    columns += ["paper"] if with_paper else []
    columns += ["s an epoch"]
    columns += ["paper's s"] if with_paper else []
    columns += ["evaluations"]
    return Table(title, tuple(columns), tuple(rows), 3 if several else 2, _best(series))


def duels(series: Sequence[Series]) -> Table:
    """Against whom CoCD wins on which task, and by how much: a column for each of its labels."""
    found = words.duels(series)
    columns = list(dict.fromkeys((c.one.task, c.one.label, c.one.epochs) for c in found))
    cells: dict[str, dict[tuple[str, str, int], str]] = {}
    for c in found:
        early = f" ({c.epoch} of {c.one.epochs} epochs)" if c.epoch < c.one.epochs else ""
        own = cells.setdefault(c.other.label, {})
        place = c.one.task, c.one.label, c.one.epochs
        own[place] = f"{words.VERDICTS[c.verdict]}{_margin(c)}{early}"
    lengths = {task: {e for other, _, e in columns if other == task} for task, _, _ in columns}
    heads = (
        f"{text.task(task)}: {label}" + (f", {e} epochs" if len(lengths[task]) > 1 else "")
        for task, label, e in columns
    )
    rows = ((label, *(own.get(c, "–") for c in columns)) for label, own in cells.items())
    title = "Where CoCD wins, by how much, and where it does not"
    return Table(title, ("against", *heads), tuple(rows), note=_MARGINS if found else "")


_MARGINS = (
    "Mean of the last five epochs. ×: the other's loss over CoCD's; + and −: points of accuracy "
    "that CoCD has more or less. Level: seeds, test rows or these epochs do not agree on who leads."
)


def _margin(made: words.Comparison) -> str:
    if not made.lately or made.left is None or made.right is None:
        return ""
    if made.one.accuracy:
        gap = round(100 * fmean(ours - theirs for ours, theirs in made.lately), 1)
        return f" {gap:+.1f}".replace("-", "−") if gap else " 0.0"
    if min(min(pair) for pair in made.lately) <= 0:
        return ""
    return f" {exp(fmean(log(theirs / ours) for ours, theirs in made.lately)):.2g}×"


def _entry(series: Series) -> paper.Entry | None:
    if series.run["smoke"]:
        return None
    return paper.entry(series.task, series.method, series.settings)


def _paper_metric(known: paper.Entry | None, series: Series) -> str:
    if known is None:
        return "–"
    shown = text.metric(known.metric, accuracy=series.accuracy)
    return shown if series.epochs == paper.EPOCHS else f"{shown} after {paper.EPOCHS} epochs"


def _deviation(value: float | None, accuracy: bool) -> str:
    return "–" if value is None else text.metric(value, accuracy=accuracy)


def _number(value: float | None) -> str:
    return "–" if value is None else text.number(value)


def _evaluations(series: Series, count: float | None) -> str:
    if count is None:
        return "–"
    return f"{count:,.0f}{' + backward' if series.first_order else ''}"


def _best(series: Sequence[Series]) -> tuple[int, ...]:
    """For each task, split and length the rows with the best final metric without gradients.

    Of those that ended, among all that were tried: one alone is not the best.
    """
    places: dict[tuple[str, str, int], list[int]] = {}
    for index, s in enumerate(series):
        if not s.first_order:
            places.setdefault((s.task, s.run["split"], s.epochs), []).append(index)
    found: list[int] = []
    for tried in places.values():
        ended = {
            index: s.final.mean
            for index in tried
            if (s := series[index]).final is not None and not s.diverged and s.reached == s.epochs
        }
        if ended and len(tried) > 1:
            best = (max if series[tried[0]].accuracy else min)(ended.values())
            found += [index for index, mean in ended.items() if mean == best]
    return tuple(sorted(found))


def tuning(series: Sequence[Series]) -> list[Table]:
    """The grid of each task and method (or group, where there are any), with the winner marked."""

    def place(s: Series) -> tuple[str, str, str]:
        return s.task, s.run["group"], s.method

    tables = []
    for grid in dict.fromkeys(map(place, series)):
        own = [s for s in series if place(s) == grid]
        varied = sorted(
            name
            for name in {name for s in own for name in s.settings}
            if len({repr(s.settings.get(name)) for s in own}) > 1
        )
        best = _best(own)
        head = f"{text.task(grid[0])}, {method_name(own)}"
        places = {tuple(repr(s.settings.get(name)) for name in varied) for s in own}
        if len(varied) == 2 and len(places) == len(own):
            tables.append(_grid(head, own, varied, best))
        else:
            tables.append(_list(head, own, varied, best))
    return tables


def method_name(series: Sequence[Series]) -> str:
    """What series of one method are called: their label if they share it, else the method."""
    labels = {s.label for s in series}
    return labels.pop() if len(labels) == 1 else series[0].method


def _grid(title: str, own: list[Series], varied: list[str], best: tuple[int, ...]) -> Table:
    down, across = varied
    keys = {name: _values(own, name) for name in varied}
    cells = {
        (repr(s.settings.get(down)), repr(s.settings.get(across))): outcome(s)
        + (" ★" if index in best else "")
        for index, s in enumerate(own)
    }
    rows = tuple(
        (text.plain(value), *(cells.get((repr(value), repr(other)), "–") for other in keys[across]))
        for value in keys[down]
    )
    columns = tuple(text.setting(across, value) for value in keys[across])
    corner = text.SETTINGS.get(down, down.replace("_", " "))
    return Table(title, (corner, *columns), rows, note="★ the best")


def _values(own: Sequence[Series], name: str) -> list[Any]:
    found = {repr(s.settings.get(name)): s.settings.get(name) for s in own}
    return sorted(found.values(), key=sort_key)


def _list(title: str, own: list[Series], varied: list[str], best: tuple[int, ...]) -> Table:
    columns = tuple(text.SETTINGS.get(name, name.replace("_", " ")) for name in varied)
    rows = tuple(
        (
            s.label,
            *(text.plain(s.settings[n]) if n in s.settings else "–" for n in varied),
            outcome(s) + (" ★" if index in best else ""),
        )
        for index, s in enumerate(own)
    )
    return Table(title, ("method", *columns, "metric"), rows, 1, best, "★ the best")


# What stands first, where it is measured.
_MEASURES = (
    *("network", "n", "parameters", "compute_budget", "error", "minibatch_error", "bound"),
    *("weight_bytes", "state_bytes", "tensor_peak_bytes", "peak_bytes", "least_peak_bytes"),
    "most_peak_bytes",
)


def measures(title: str, series: Sequence[Series]) -> Table:
    """Measure rows as they are, a column for each thing measured."""
    found = {key for s in series for r in s.results for row in r.measures for key in row}
    keys = sorted(found - {"row"}, key=lambda key: rank(key, _MEASURES))
    rows = []
    for s, name in zip(series, text.names(list(series)), strict=True):
        for place in range(max((len(r.measures) for r in s.results), default=0)):
            told = [r.measures[place] for r in s.results if place < len(r.measures)]
            rows.append((text.task(s.task), name, *(_measure(key, told) for key in keys)))
    return Table(title, ("task", "method", *(_heading(key) for key in keys)), tuple(rows), 2)


_CALLED = {
    "L_eps": "largest change over distance",  # L_eps, from below
    "tensor_peak_bytes": "peak of tensors, kB",
    "peak_bytes": "peak of the process, kB",
    "least_peak_bytes": "least, kB",
    "most_peak_bytes": "most, kB",
}


def _heading(key: str) -> str:
    if key in _CALLED:
        return _CALLED[key]
    for suffix, unit in (("_bytes", "kB"), ("_mb", "MB"), ("_seconds", "s"), ("_ms", "ms")):
        if key.endswith(suffix):
            return f"{key.removesuffix(suffix).replace('_', ' ')}, {unit}"
    return key.replace("_", " ")


def _measure(key: str, rows: list[dict[str, Any]]) -> str:
    values = [row.get(key) for row in rows]
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if not numbers:
        return next((str(v) for v in values if v is not None), "–")
    mean = sum(numbers) / len(numbers)
    if key.endswith("_bytes"):
        return f"{mean / 1e3:,.1f}"
    return f"{mean:,.0f}" if all(isinstance(v, int) for v in numbers) else text.number(mean)


def runs(series: Sequence[Series]) -> Table:
    """Every run with every setting."""
    keys = sorted({name for s in series for name in s.settings})
    columns = ["run", "task", "label", "group", "split", "seed", "epochs", "steps an epoch"]
    columns += [text.SETTINGS.get(key, key.replace("_", " ")) for key in keys]
    columns += ["parameters", "status", "evaluations", "seconds", "started", "versions", "machine"]
    rows = []
    for s in series:
        for r in s.results:
            run, last = r.run, r.last
            status = {"unfinished": r.progress, "diverged": ended_how(r)}.get(r.status, r.status)
            cells = [run["key"], run["task"], run["label"], run["group"], run["split"]]
            by_evaluations = run["settings"].get("compute_budget") == "auto"
            steps = "–" if by_evaluations else run["steps_per_epoch"]
            cells += [run["seed"], run["epochs"], steps]
            cells += [run["settings"].get(key) for key in keys]
            cells += [run["parameters"], status, last.get("evaluations"), last.get("seconds")]
            cells += [run["started"], _pairs(run["versions"]), _pairs(run["machine"])]
            rows.append(tuple("–" if c in (None, "") else text.plain(c) for c in cells))
    return Table("Every run", tuple(columns), tuple(rows), 5)


def ended_how(result: Any) -> str:
    """When and how a run diverged."""
    how = result.last.get("how")
    return f"diverged in epoch {result.last.get('epoch', 0)}" + (f": {how}" if how else "")


def _pairs(values: Any) -> str:
    if not isinstance(values, dict):
        return str(values)
    return ", ".join(f"{key} {value}" for key, value in sorted(values.items()))
