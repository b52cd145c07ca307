"""Rows as a Markdown table: means over seeds."""

from __future__ import annotations

from statistics import mean
from typing import Any

from ..plans.llm import METHODS, SUBSETS

Rows = list[dict[str, Any]]


def best(rows: Rows) -> dict[str, Any]:
    """The row with the best accuracy on the development rows; of equals, the lower loss there."""
    done = [row for row in rows if row["how"] == "done"] or rows
    return max(done, key=lambda row: (row["dev"], -row["curve"][-1]["dev_loss"]))


def table(rows: Rows) -> str:
    """One line for each subset, length, method and schedule."""
    groups: dict[tuple[str, str, int, str], Rows] = {}
    for row in rows:
        if not row["tuning"]:
            schedule = row.get("schedule", "constant")
            key = (row["subset"], row["method"], row["evaluations"], schedule)
            groups.setdefault(key, []).append(row)
    order = sorted(
        groups, key=lambda k: ([*SUBSETS].index(k[0]), k[2], [*METHODS].index(k[1]), k[3])
    )
    lines = [
        "| trained | n | evaluations | method | lr | loss | dev % | test % | seconds | seeds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for subset, method, evaluations, schedule in order:
        some = groups[subset, method, evaluations, schedule]
        done = [row for row in some if row["how"] == "done"]
        lr = "/".join(dict.fromkeys(f"{row['lr']:g}" for row in some)) if some[0]["lr"] else "-"
        falling = ", cosine" if schedule == "cosine" else ""
        cells = [SUBSETS[subset], f"{some[0]['n']:,}", f"{evaluations:,}"]
        cells += [METHODS[method] + falling, lr]
        if done:
            cells += [f"{mean(row['loss'] for row in done):.3f}"]
            cells += [f"{100 * mean(row[name] for row in done):.1f}" for name in ("dev", "test")]
            cells += [f"{mean(row['seconds'] for row in done):.1f}"]
        else:
            cells += ["diverged", "-", "-", "-"]
        lines.append(f"| {' | '.join([*cells, str(len(some))])} |")
    return "\n".join(lines)
