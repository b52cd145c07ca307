"""``python -m benchmarks.blackbox.shares ROWS...``: Markdown tables of the contest's rows."""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

from .classes import TARGETS
from .contest import BUDGETS, Row, load

TENS = tuple(10.0**-k for k in range(1, 10))  # the targets of the data profiles
LEVEL = 1e-12  # of f(x0) - optimum: smaller errors are a draw


def shares(rows: list[Row], budget: int) -> dict[str, dict[str, str]]:
    """For each method and class how many per cent of the runs reached the targets."""
    met: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["budget"] == budget:
            met[row["method"], row["kind"]].append(row["error"])
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for (method, kind), errors in met.items():
        parts = [100 * mean(e <= target for e in errors) for target in TARGETS[kind]]
        found[method][kind] = " / ".join(f"{part:.0f}" for part in parts)
    return found


def profile(rows: list[Row], kind: str) -> dict[str, str]:
    """For each method the share of pairs of a run and a target that were reached, by budget.

    A problem counts at a budget for those methods that have run it.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for method in sorted({row["method"] for row in rows}):
        for budget in BUDGETS:
            wanted = (method, kind, budget)
            errors = [
                row["error"]
                for row in rows
                if (row["method"], row["kind"], row["budget"]) == wanted
            ]
            reached = [error <= target for error in errors for target in TENS]
            found[method].append(f"{100 * mean(reached):.0f}" if reached else "-")
    return {method: " / ".join(cells) for method, cells in found.items()}


def ranks(rows: list[Row], budget: int, least: int) -> dict[str, float]:
    """The mean rank of each method over the problems of at least so many coordinates."""
    problems: dict[Any, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["budget"] == budget and row["n"] >= least:
            problems[row["problem"], row["n"]][row["method"]].append(row["error"])
    methods = {row["method"] for row in rows if row["budget"] == budget}
    found: dict[str, list[float]] = defaultdict(list)
    for by_method in problems.values():
        if by_method.keys() != methods:
            continue
        ends = {name: max(median(errors), LEVEL) for name, errors in by_method.items()}
        for name, end in ends.items():
            lower = sum(other < end for other in ends.values())
            equal = sum(other == end for other in ends.values())
            found[name].append(lower + (equal + 1) / 2)
    return {name: mean(values) for name, values in found.items()}


def main() -> None:
    """Print a table for each budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="+", type=Path)
    parser.add_argument("--held", choices=("all", "only", "without"), default="all")
    parser.add_argument("--method", nargs="+", help="these alone, and ranks among these")
    parser.add_argument("--profiles", action="store_true", help="nine targets from 1e-1 to 1e-9")
    args = parser.parse_args()
    rows = load(args.rows)
    if args.held != "all":
        rows = [row for row in rows if row["held"] == (args.held == "only")]
    if args.method:
        rows = [row for row in rows if row["method"] in args.method]
    if args.profiles:
        table = {kind: profile(rows, kind) for kind in TARGETS}
        print(f"| method | {' | '.join(TARGETS)} |\n| :-- |" + " --: |" * len(TARGETS))
        for name in sorted({row["method"] for row in rows}):
            print(f"| {name} | {' | '.join(table[kind][name] for kind in TARGETS)} |")
        return
    for budget in BUDGETS:
        by_method, order = shares(rows, budget), ranks(rows, budget, 40)
        columns = [*TARGETS]
        print(f"\n{budget}n\n\n| method | {' | '.join(columns)} | mean rank, n >= 40 |")
        print("| :-- |" + " --: |" * (len(columns) + 1))
        for name in sorted(by_method, key=lambda name: order.get(name, 99.0)):
            cells = [by_method[name].get(kind, "-") for kind in columns]
            rank = f"{order[name]:.1f}" if name in order else "-"
            print(f"| {name} | {' | '.join(cells)} | {rank} |")


if __name__ == "__main__":
    main()
