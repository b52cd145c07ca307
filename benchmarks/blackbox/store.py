"""Rows in a file: read to resume, and rewritten as a whole after each run."""

from __future__ import annotations

import json
import os
from pathlib import Path

from .measure import Row, key


def load(path: Path) -> list[Row]:
    """The rows of an earlier run of the command; none if there is no file or nothing in it."""
    if not path.exists() or not path.stat().st_size:
        return []
    try:
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))
        for row in rows:
            key(row)
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} does not hold rows of the benchmark blackbox: give another file, or move this"
        ) from None
    return rows


def save(rows: list[Row], path: Path) -> None:
    """Write a new file and then replace the old one, so that an interruption loses nothing."""
    beside = path.with_name(path.name + ".part")
    lines = ",\n".join(json.dumps(row, allow_nan=False) for row in rows)
    beside.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    os.replace(beside, path)
