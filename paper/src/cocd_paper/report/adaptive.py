"""AutoCoCD: does it diverge, how soon is it where the paper ends, what is each part worth?"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from statistics import median

import numpy as np

from ..style.colours import colour
from . import paper, text
from .charts import Line
from .read import Row
from .series import Series, better
from .tables import Table, outcome

AUTO, PLAIN = "auto", "cocd"
_CELL = ("activation", "inputs", "width")


def paper_lines(task: str, series: Sequence[Series]) -> tuple[Line, ...]:
    """Where the paper's CoCD ends, drawn across."""
    own = next(s for s in series if s.task == task)
    entry = _papers(own)
    if entry is None:
        return ()
    shown = text.metric(entry.metric, accuracy=own.accuracy)
    return (Line(f"paper's CoCD {shown}", colour(PLAIN), entry.metric),)


def _papers(series: Series) -> paper.Entry | None:
    known = {} if series.run["smoke"] else paper.settings(series.task, PLAIN)
    return paper.entry(series.task, PLAIN, known) if known else None


def soon(series: Sequence[Series]) -> list[str]:
    """After how many evaluations each is where the paper's CoCD ends, on average over seeds."""
    out = []
    for s in series:
        entry = _papers(s)
        if entry is None or s.method != AUTO:
            continue
        target = text.metric(entry.metric, accuracy=s.accuracy)
        who = f"{text.task(s.task)}, {s.label}"
        if (spent := spent_until(s, entry.metric)) is not None:
            out.append(
                f"{who}: at the paper's final {target} or beyond after {spent:,.0f} "
                f"evaluations, {spent / paper.EVALUATIONS[s.task]:.1%} of the paper's number."
            )
        else:
            out.append(f"{who}: has not come to the paper's final {target}.")
    return out


def spent_until(series: Series, metric: float) -> float | None:
    """Evaluations after which it is as good for the first time, on average over seeds."""
    for point in series.curve("metric", "evaluations"):
        if not better(metric, point.y.mean, accuracy=series.accuracy):
            return point.x
    return None


def found(series: Sequence[Series]) -> list[str]:
    """What runs have settled by themselves: budgets, how bold steps are, and longer ones."""
    out = []
    for s in series:
        last = [r.epochs[-1] for r in s.results if r.epochs and "compute_budget" in r.epochs[-1]]
        if last:
            each = (f"B = {row['compute_budget']:,} and {row['boldness']:.2g}" for row in last)
            said = f"{text.task(s.task)}, {s.label}: found {text.listed(each)} of each step"
            longer = [_longer(row["scales"]) for row in last if row.get("scales")]
            out.append(f"{said}; longer ones: {text.listed(longer)}." if longer else f"{said}.")
    return out


def _longer(scales: dict[str, float]) -> str:
    return ", ".join(f"{name} × {times:.2g}" for name, times in scales.items())


def batches(series: Sequence[Series]) -> tuple[Table, list[str]]:
    """The same evaluations on larger batches, and the line over 1 / rows on which they lie."""
    series = sorted(series, key=lambda s: int(s.settings["batch_size"]))
    rows = [(text.plain(s.settings["batch_size"]), outcome(s), str(len(s.results))) for s in series]
    columns = ("rows in a batch", "final metric (range)", "seeds")
    ended = [s for s in series if s.final and not s.diverged and s.status != "unfinished"]
    sizes = [float(s.settings["batch_size"]) for s in ended]
    said: list[str] = []
    if len(set(sizes)) > 2 and not any(s.accuracy for s in ended):
        ends = [s.final.mean for s in ended if s.final]
        slope, height = np.polyfit([1 / size for size in sizes], ends, 1)
        miss = max(abs(height + slope / b - end) for b, end in zip(sizes, ends, strict=True))
        each = text.listed(map(text.plain, sizes))
        said = [
            f"{text.task(ended[0].task)}: over batches of {each} rows "
            f"the loss at the end is {height:.2f} + {slope:.0f} / rows, to within {miss:.2f}."
        ]
    title = f"Larger batches at as many evaluations, {text.task(series[0].task)}"
    return Table(title, columns, tuple(rows), 1), said


def cells(series: Sequence[Series]) -> tuple[Table, list[str]]:
    """One set of defaults on many networks, beside the paper's settings on each."""
    rows: list[tuple[str, ...]] = []
    best: list[int] = []
    ended: list[bool] = []  # for each network on which CoCD does: is AutoCoCD better?
    networks = runs = risen = 0
    for task, cell in dict.fromkeys((s.task, _cell(s)) for s in series):
        found = {s.method: s for s in series if (s.task, _cell(s)) == (task, cell)}
        auto, plain = found.get(AUTO), found.get(PLAIN)
        if auto is None and plain is None:
            continue  # of a method that is not compared here
        first = (auto or found[PLAIN]).at(0)
        rows.append(
            (
                text.task(task),
                *(text.plain(value) if value is not None else "–" for value in cell),
                outcome(auto) if auto else "–",
                outcome(plain) if plain else "–",
                text.spread(first, accuracy=(auto or found[PLAIN]).accuracy) if first else "–",
            )
        )
        if auto is not None:
            networks += 1
            runs += len(auto.results)
            risen += _risen(auto)
        if auto is not None and plain is not None:
            wins = better(_median(auto), ours := _median(plain), accuracy=plain.accuracy)
            ended += [wins] if isfinite(ours) else []
            best += [len(rows) - 1] if wins else []
    columns = ("task", *_CELL, "AutoCoCD", "CoCD (paper's settings)", "at first")
    said = [
        f"AutoCoCD with the same settings{_but_budgets(series)} on {networks} networks: "
        f"{risen or 'none'} of {runs} runs ended above where it started."
        if runs
        else ""
    ]
    if ended:
        said.append(
            f"Its median is the better one on {sum(ended)} of the {len(ended)} networks on which "
            f"most runs of CoCD with the paper's settings do not diverge."
        )
    return Table("One set of defaults", columns, tuple(rows), 4, tuple(best)), [*filter(None, said)]


def _but_budgets(series: Sequence[Series]) -> str:
    """Where they are not the same: B by task."""
    found = {s.task: s.settings.get("compute_budget") for s in series if s.method == AUTO}
    if len(set(found.values())) < 2:
        return ""
    each = (f"{text.plain(B)} on {text.task(task)}" for task, B in found.items())
    return f" but B ({text.listed(each)})"


def _cell(series: Series) -> tuple[object, ...]:
    return tuple(series.settings.get(name) for name in _CELL)


def _median(series: Series) -> float:
    """Over seeds; one that diverged is the worst there is."""
    worst = -inf if series.accuracy else inf
    last = [result.epochs[-1].get("metric") if result.epochs else None for result in series.results]
    return median(
        worst if value is None or result.status == "diverged" else value
        for value, result in zip(last, series.results, strict=True)
    )


def _risen(series: Series) -> int:
    return sum(
        result.status == "diverged" or (len(result.epochs) > 1 and _rose(result.epochs))
        for result in series.results
    )


def _rose(epochs: Sequence[Row]) -> bool:
    first, last = (epochs[i].get("loss") for i in (0, -1))
    return last is None or (first is not None and last > first)


def beside_the_first(title: str, head: str, series: Sequence[Series], first: Series) -> Table:
    """Each variant, and how many times the loss of `first` it ends with, or points above it."""
    base = first.final
    beside = "points above the first" if first.accuracy else "× the first"
    rows = []
    for s in [first, *(s for s in series if s is not first)]:
        ratio = "–"
        if base and s.final and not s.diverged:
            ends, start = s.final.mean, base.mean
            ratio = f"{100 * (ends - start):+.2f}" if s.accuracy else f"{ends / start:.2f}"
        rows.append((s.label, outcome(s), ratio))
    return Table(title, (head, "final metric", beside), tuple(rows), 1)


def wrong_lengths(series: Sequence[Series], right: Series) -> list[str]:
    """What a first length costs that is wrong by ten."""
    base = right.final
    others = [s.final.mean for s in series if s is not right and s.final and not s.diverged]
    where = f"{text.task(right.task)}: a first length that is wrong by ten"
    if gone := [s.label for s in series if s is not right and s.diverged]:
        return [f"{where} can diverge: {text.listed(gone)} did."]
    if not base or not others:
        return []
    if right.accuracy:
        lost = 100 * (base.mean - min(others))
        ending = f"with at most {lost:.2f} points less" if lost > 0 else "no lower"
    else:
        lost = max(others) / base.mean - 1
        ending = f"with at most {lost:.0%} more of the loss" if lost >= 0 else "no higher"
    either = " in either direction" if len(others) > 1 else ""
    return [f"{where}{either} ends {ending}."]
