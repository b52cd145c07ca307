"""What table, plot and page have in common."""

from __future__ import annotations

from typing import Any

COLUMNS = ("method", "test accuracy", "test loss", "evaluations", "seconds")


def cells(row: dict[str, Any]) -> list[str]:
    """A row under `COLUMNS`. A run that diverged has no accuracy to be compared."""
    if row["diverged_at"] is not None:
        scores = [f"diverged at step {row['diverged_at']:,}", "-"]
    else:
        scores = [f"{row['test_accuracy']:.1%}", f"{row['test_loss']:.3f}"]
    backward = " + backward" if row["first_order"] else ""
    return [row["method"], *scores, f"{row['evaluations']:,}{backward}", f"{row['seconds']:.1f}"]


def label(row: dict[str, Any]) -> str:
    """A method, its accuracy, and what has to be said about it."""
    if row["diverged_at"] is not None:
        return f"{row['method']}: diverged"
    end = " after its last step" if row["first_order"] else ""
    return f"{row['method']}: {row['test_accuracy']:.1%}{end}"


def settings(row: dict[str, Any]) -> str:
    """The settings of a row on one line.

    >>> settings({"settings": {"lr": 0.1, "decay": 0.95}})
    'lr 0.1, decay 0.95'
    """
    return ", ".join(
        f"{name.replace('_', ' ')} {value:g}" for name, value in row["settings"].items()
    )
