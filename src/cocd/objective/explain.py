"""A table of who probes what, and what that is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .traced import Objective, Record


def table(objective: Objective) -> str:
    """One row a parameter, plain text."""
    head = ["parameter", "size", "engine", "rule", "dense from", "work", "measured", "memory"]
    sizes = {name: p.numel() for name, p in objective.model.named_parameters()}
    rows = [
        [name, f"{sizes[name]:,}", record.engine, *_details(record)]
        for name, record in objective._records.items()
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in [head, ["-" * w for w in widths], *rows]
    ]
    note = (
        "work: numbers computed for one probe; measured: time of one evaluation of the closure "
        "over time of one probe; memory: bytes of the largest activation stored for one probe."
    )
    return "\n".join([*lines, note, f"evaluations spent on checks: {objective.checks}"])


def _details(record: Record) -> list[str]:
    plan = record.plan
    known = record.pace.gain
    gain = "" if known is None else f"{known:.1f}x" if known >= 1 else "too early to tell"
    if plan is None:
        return [record.reason, "", "", gain, ""]
    return [plan.rule, plan.dense_from or "-", f"{plan.work:,}", gain, f"{plan.peak:,}"]
