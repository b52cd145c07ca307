"""Tables from rows: which method is best, which loses to which, and where."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from .measure import Key, Row

Table = tuple[str, list[str], list[list[str]]]  # title, columns, cells

OURS = "cocd"
SOLVED = 1e-8  # COCO's last target: what is below it is rounding, and a draw
NEAR = 1.1


def groups(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    """The rows of each suite and dimension."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["suite"], row["dimension"]), []).append(row)
    return found


def methods(rows: Iterable[Row]) -> list[str]:
    """The methods in the rows: ours first, the others in order of appearance."""
    names = list(dict.fromkeys(row["method"] for row in rows))
    return sorted(names, key=lambda name: name != OURS)


def budgets(rows: Iterable[Row]) -> list[int]:
    """The budgets in ascending order."""
    return sorted({row["budget"] for row in rows})


def errors(rows: Iterable[Row], budget: int, name: str = "error") -> dict[Key, dict[str, float]]:
    """For each problem, the value of each method by `budget`; solved ones are draws."""
    found: dict[Key, dict[str, float]] = {}
    for row in rows:
        if row["budget"] == budget:
            problem = tuple(row[part] for part in ("function", "instance", "start", "bounded"))
            value = math.inf if row[name] is None else max(row[name], SOLVED)
            found.setdefault((*problem, row["seed"], row["maxfev"]), {})[row["method"]] = value
    return found


def ranking(rows: list[Row], skipped: dict[str, str]) -> Table:
    """On how many problems each method is the best, and within 10 % of the best."""
    shown = budgets(rows)
    count = max(len(errors(rows, budget)) for budget in shown)
    columns = ["method"]
    for budget in shown:
        columns += [f"best at {budget} n", "within 10 %"]
    columns.append("µs an evaluation")
    cells = []
    for name in methods(rows):
        line = [name]
        for budget in shown:
            met = [found for found in errors(rows, budget).values() if name in found]
            for slack in (1.0, NEAR):
                line.append(str(sum(f[name] <= slack * min(f.values()) < math.inf for f in met)))
        overhead = median(row["overhead"] for row in rows if row["method"] == name)
        cells.append([*line, f"{1e6 * overhead:,.0f}"])
    for name, reason in skipped.items():
        cells.append([f"{name}: {reason}", *["–"] * (len(columns) - 1)])
    return f"{_where(rows)}: the best of {count} problems, draws for each", columns, cells


def duels(rows: list[Row]) -> Table | None:
    """Ours against each of the others: wins, draws, losses."""
    others = [name for name in methods(rows) if name != OURS]
    if OURS not in methods(rows) or not others:
        return None
    shown = budgets(rows)
    cells = [
        [name, *("{} / {} / {}".format(*duel(rows, name, budget)) for budget in shown)]
        for name in others
    ]
    title = f"{_where(rows)}: {OURS} wins / draws / loses against"
    return title, ["method", *(f"{budget} n" for budget in shown)], cells


def duel(rows: list[Row], other: str, budget: int, name: str = "error") -> tuple[int, int, int]:
    """On how many problems ours is below, level with and above another method."""
    pairs = [
        (found[OURS], found[other])
        for found in errors(rows, budget, name).values()
        if OURS in found and other in found
    ]
    wins, losses = (sum(a < b for a, b in pairs), sum(a > b for a, b in pairs))
    return wins, len(pairs) - wins - losses, losses


def figures(rows: list[Row]) -> Table:
    """What each method has reached on each function in the end: the median of the instances."""
    top, names = budgets(rows)[-1], methods(rows)
    titles = {row["function"]: row["problem"] for row in rows}
    cells = []
    for function in sorted(titles):
        line = [titles[function]]
        for name in names:
            values = [
                found[name]
                for problem, found in errors(rows, top).items()
                if problem[0] == function and name in found
            ]
            line.append(f"{median(values):.2g}" if values else "–")
        cells.append(line)
    return f"{_where(rows)}: distance from the optimum after {top} n", ["function", *names], cells


def losses(rows: list[Row]) -> list[str]:
    """A sentence for each peer that ours loses to with the largest budget, by name."""
    top = budgets(rows)[-1]
    titles = {row["function"]: row["problem"] for row in rows}
    sentences = []
    for name in methods(rows):
        lost = [
            (problem, found)
            for problem, found in errors(rows, top).items()
            if name != OURS and OURS in found and name in found and found[OURS] > found[name]
        ]
        if lost:
            several = len({problem[1] for problem in errors(rows, top)}) > 1
            listed = "; ".join(
                f"{titles[problem[0]]}{f' ({problem[1]})' if several else ''} "
                f"{found[OURS]:.2g} against {found[name]:.2g}"
                for problem, found in sorted(lost, key=lambda pair: pair[0])
            )
            sentences.append(f"After {top} n {OURS} loses to {name} on {len(lost)}: {listed}.")
    return sentences


def failures(rows: list[Row]) -> list[str]:
    """A sentence for each method that an exception of its own ended, with the first of them."""
    top = budgets(rows)[-1]
    failed: dict[str, list[str]] = {}
    for row in rows:
        if row.get("failure") and row["budget"] == top:
            failed.setdefault(row["method"], []).append(row["failure"])
    return [
        f"{name} failed on {len(why)}, and counts with what it had by then: {why[0]}."
        for name, why in failed.items()
    ]


def overheads(rows: list[Row], skipped: dict[str, str]) -> Table:
    """The time of each method per evaluation, without that of the function."""
    cells = [
        [row["method"], f"{1e6 * row['overhead']:,.1f}", f"{row['evaluations']:,}"]
        for row in sorted(rows, key=lambda row: float(row["overhead"]))
    ]
    cells += [[f"{name}: {reason}", "–", "–"] for name, reason in skipped.items()]
    title = f"Overhead at n = {rows[0]['dimension']:,}"
    return title, ["method", "µs an evaluation", "evaluations"], cells


def _where(rows: list[Row]) -> str:
    return f"{rows[0]['suite']}, {rows[0]['dimension']}-D"
