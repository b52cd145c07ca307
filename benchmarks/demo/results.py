"""The results file: every setting, the versions and the rows; all that table, plot and page read.

A run that is not finite somewhere has null there: NaN is not JSON.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import cocd

from .train import Row

Results = dict[str, Any]


def collect(rows: Iterable[Row], *, seed: int, task: dict[str, Any]) -> Results:
    """Rows in the order of what the run gave, with all it takes to run it again."""
    return {
        "seed": seed,
        "task": task,
        "versions": {
            "cocd": cocd.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy", "scikit-learn")},
        },
        "machine": {
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "rows": [_json(asdict(row)) for row in sorted(rows, key=_rank)],
    }


def write(results: Results, path: Path) -> None:
    """Write `results` as JSON."""
    path.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def note(results: Results) -> str:
    """What a reader must know to compare the rows fairly."""
    equal = [row for row in results["rows"] if not row["first_order"]]
    oracles = [row for row in results["rows"] if row["first_order"]]
    counts = sorted({row["evaluations"] for row in equal if row["diverged_at"] is None})
    number = f" ({counts[0]:,})" if counts else ""
    sentences = [
        f"{_listed(row['method'] for row in equal)} see losses alone and get the same number of "
        f"evaluations{number}."
    ]
    sentences += [
        f"{row['method']} is the first-order oracle: as many steps as CoCD, each of them one "
        "forward and backward pass."
        for row in oracles
    ]
    return " ".join([*sentences, "One seed."])


def _rank(row: Row) -> tuple[bool, float, float]:
    return row.diverged_at is not None, -row.test_accuracy, row.test_loss


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
