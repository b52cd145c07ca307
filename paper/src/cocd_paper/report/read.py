"""Rows from disk: every ``*.jsonl`` below a folder whose first line is a run row.

Both layouts are read alike, ``PLAN/KEY/rows.jsonl`` and ``PLAN/KEY.jsonl``. A line that cannot be
read costs that line and a sentence, never the report.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
SCHEMA = 1

# What a run row must have; the rest has defaults.
_NEEDED: dict[str, type | tuple[type, ...]] = {
    "plan": str,
    "key": str,
    "task": str,
    "method": str,
    "label": str,
    "seed": int,
    "settings": dict,
    "epochs": int,
    "steps_per_epoch": int,
}
_WORDS = ("group", "vary", "split", "command")  # where they are there
_NUMBERS = ("evaluations", "loss", "metric", "seconds", "step", "train_loss")


@dataclass(frozen=True)
class Result:
    """One run: its first row, a row for each epoch or measurement, and how it ended, if it did."""

    run: Row
    epochs: tuple[Row, ...]
    measures: tuple[Row, ...]
    end: Row | None
    file: str

    @property
    def status(self) -> str:
        """``done``, ``diverged`` or ``unfinished``."""
        return "unfinished" if self.end is None else str(self.end["status"])

    @property
    def progress(self) -> str:
        """How far it came, for a reader.

        >>> Result({"epochs": 50}, ({"epoch": 0}, {"epoch": 12}), (), None, "").progress
        '12 of 50 epochs'
        """
        return f"{self.last.get('epoch', 0)} of {self.run['epochs']} epochs"

    @property
    def last(self) -> Row:
        """The last row that counts evaluations and seconds; empty where there is none."""
        return self.end or (self.epochs[-1] if self.epochs else {})


@dataclass(frozen=True)
class Rows:
    """All that was found below a folder, and a sentence for each thing that is wrong with it."""

    results: tuple[Result, ...]
    problems: tuple[str, ...]


def read(folder: Path) -> Rows:
    """Read `folder`. The order of the results does not depend on the file system."""
    if not folder.exists():
        raise ValueError(f"there is no folder {folder}: give one that `reproduce` wrote to")
    found: dict[tuple[str, str], Result] = {}
    problems: list[str] = []
    for path in _files(folder):
        result, wrong = _read(path, path.relative_to(folder).as_posix() or path.name)
        problems += wrong
        if result is None:
            continue
        identity = (result.run["plan"], result.run["key"])
        other = found.get(identity)
        if other is None or _length(result) > _length(other):
            found[identity] = result
        if other is not None and (other.epochs, other.end) != (result.epochs, result.end):
            kept = found[identity].file
            problems.append(f"{other.file} and {result.file} are the same run: {kept} is shown.")
    return Rows(tuple(found[identity] for identity in sorted(found)), tuple(problems))


def _files(folder: Path) -> list[Path]:
    if folder.is_file():
        raise ValueError(f"{folder} is a file: give the folder that it lies in")
    return sorted(
        Path(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith(".jsonl")
    )


def _length(result: Result) -> tuple[bool, int]:
    return result.end is not None, len(result.epochs) + len(result.measures)


def _read(path: Path, name: str) -> tuple[Result | None, list[str]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        return None, [f"{name} cannot be read ({error.strerror}): it is left out."]
    lines = data.split(b"\n")
    first = _object(lines[0])
    if first is None:
        return None, [f"{name}, line 1: {_what(lines[0])}; the file is left out."]
    if first.get("row") != "run":
        return None, []  # somebody else's file
    wrong = _wrong(first)
    if wrong:
        return None, [f"{name}, line 1: {wrong}; the file is left out."]

    problems: list[str] = []
    epochs: dict[int, Row] = {}
    measures: list[Row] = []
    end: Row | None = None
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        row = _object(line)
        kind = None if row is None else row.get("row")
        damage = _what(line) if row is None else _damage(row)
        if row is None or damage:
            problems.append(f"{name}, line {number}: {damage}; the line is left out.")
        elif kind == "epoch":
            epochs[row["epoch"]] = row  # one that is written twice counts once, as last written
        elif kind == "measure":
            measures.append(row)
        elif kind == "end":
            end = row
    ordered = tuple(epochs[number] for number in sorted(epochs))
    return Result(_complete(first), ordered, tuple(measures), end, name), problems


def _object(line: bytes) -> Row | None:
    try:
        row = json.loads(line.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _what(line: bytes) -> str:
    if not line.strip():
        return "an empty line where the run row should be"
    return "not a JSON object (damaged, or cut short while it was written)"


def _wrong(run: Row) -> str:
    if run.get("schema", SCHEMA) != SCHEMA:
        return f"schema {run['schema']!r}, where this version reads {SCHEMA}"
    for name, kind in _NEEDED.items():
        if not isinstance(run.get(name), kind) or isinstance(run.get(name), bool):
            return f"{name!r} is missing or of the wrong kind"
    for name in _WORDS:
        if not isinstance(run.get(name, ""), str):
            return f"{name!r} is {run[name]!r}, not a word"
    if any(mark in run["plan"] for mark in "/\\"):  # figures are named by it
        return f"'plan' is {run['plan']!r}, not the name of one"
    return ""


def _damage(row: Row) -> str:
    """What is wrong with a row that is not the first; '' if nothing is."""
    kind = row.get("row")
    if kind == "epoch" and not _whole(row.get("epoch")):
        return "an epoch row without its epoch"
    if kind == "end" and row.get("status") not in ("done", "diverged"):
        return f"an end row with status {row.get('status')!r}, not 'done' or 'diverged'"
    if kind in ("epoch", "end"):
        for name in _NUMBERS:
            value = row.get(name)
            if value is not None and not _number(value):
                return f"{name!r} is {value!r}, not a number"
    return ""


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _complete(run: Row) -> Row:
    defaults = {"group": "", "vary": "", "split": "", "smoke": False, "command": ""}
    return {**defaults, "parameters": None, "versions": {}, "machine": {}, "started": "", **run}
