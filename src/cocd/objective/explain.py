"""A table of the engine of each parameter, and its gain."""

from __future__ import annotations

import re
from statistics import median
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .traced import Objective, Record

_COLUMNS = 100
_NUMBER = re.compile(r"(?:^|(?<=\.))\d+(?=\.)")  # of a layer, in a name
_FEW = 24  # parameters that all have a row of their own
_FIRST = [0, 1, 2, 3, 6]  # of the columns, where there is no room for all
_WORDS = {
    "work": "numbers computed for one probe",
    "measured": "time of one evaluation of the closure over time of one probe",
    "memory": "bytes of the largest activation stored for one probe",
}


class Row(NamedTuple):
    """The entries for one parameter, or for a group."""

    parameter: str
    size: str
    engine: str
    rule: str
    dense_from: str
    work: str
    measured: str
    memory: str


def table(objective: Objective) -> str:
    """One row per parameter, or per group of parameters that differ only in their layer."""
    sizes = {name: p.numel() for name, p in objective.model.named_parameters()}
    notes: dict[str, int] = {}
    rows = [_row(name, sizes[name], r, notes) for name, r in objective._records.items()]
    rows = _grouped(rows) if len(rows) > _FEW else rows
    head, cells, widths = _columns(rows, list(range(len(Row._fields))))
    if _spare(widths) < 0:
        head, cells, widths = _columns(rows, _FIRST)
        for i, least in (0, 40), (3, 14):  # what loses where it is still too wide
            widths[i] = max(widths[i] + min(_spare(widths), 0), min(widths[i], least))
    lines = [
        "  ".join(_cut(c, w).ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
        for line in [head, ["-" * w for w in widths], *cells]
    ]
    for note, number in notes.items():
        lines += wrap(f"[{number}] {note}", _COLUMNS, subsequent_indent="    ")
    meaning = "; ".join(f"{word}: {said}" for word, said in _WORDS.items() if word in head)
    lines += wrap(f"{meaning}.", _COLUMNS)
    return "\n".join([*lines, f"evaluations spent on checks: {objective.checks}"])


def _columns(rows: list[Row], shown: list[int]) -> tuple[list[str], list[list[str]], list[int]]:
    head = [Row._fields[i].replace("_", " ") for i in shown]
    cells = [[row[i] for i in shown] for row in rows]
    return head, cells, [max(map(len, column)) for column in zip(head, *cells, strict=True)]


def _spare(widths: list[int]) -> int:
    return _COLUMNS - sum(widths) - 2 * (len(widths) - 1)


def _row(name: str, size: int, record: Record, notes: dict[str, int]) -> Row:
    plan, known = record.plan, record.timing.gain
    gain = "" if known is None else f"{known:.1f}x" if known >= 1 else "too early"
    if plan is not None and plan.peak:
        found = (plan.rule, plan.dense_from or "-", f"{plan.work:,}", gain, f"{plan.peak:,}")
        return Row(name, f"{size:,}", record.engine, *found)
    why = "not probed yet" if plan is not None else record.reason
    if len(why) > 20:
        why = f"see [{notes.setdefault(why, len(notes) + 1)}]"
    return Row(name, f"{size:,}", record.engine, why, "", "", gain, "")


def _grouped(rows: list[Row]) -> list[Row]:
    """Parameters that differ only in layer numbers share a row."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((_NUMBER.sub("*", row.parameter), *row[1:4]), []).append(row)
    return [_merged(name, members) for (name, *_), members in groups.items()]


def _merged(name: str, rows: list[Row]) -> Row:
    first, count = rows[0], len(rows)
    if count == 1:
        return first
    gains = [float(row.measured[:-1]) for row in rows if row.measured.endswith("x")]
    gain = f"{median(gains):.1f}x" if gains else ""
    return first._replace(parameter=name, size=f"{count} x {first.size}", measured=gain)


def _cut(text: str, width: int) -> str:
    """The end of a text that is too long; it says more than the beginning."""
    return text if len(text) <= width else f"..{text[len(text) - width + 2 :]}"
