"""The curves of the rows: loss and accuracy over evaluations and over seconds."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

from ..plans.llm import METHODS
from .table import Rows

_AXES = {"evaluations": "evaluations", "seconds": "seconds of one core"}
_VALUES = {"loss": "training loss", "dev": "accuracy on development rows, %"}


def draw(rows: Rows, subset: str, path: Path) -> None:
    """Means over seeds of the longest runs, one line a method."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    chosen = [row for row in rows if row["subset"] == subset and not row["tuning"]]
    figure, axes = pyplot.subplots(
        2, 2, figsize=(9, 7), sharex="col", sharey="row", layout="constrained"
    )
    for line, (value, name) in zip(axes, _VALUES.items(), strict=True):
        for axis, (along, label) in zip(line, _AXES.items(), strict=True):
            for number, method in enumerate(METHODS):
                x, y = _curve([row for row in chosen if row["method"] == method], along, value)
                axis.plot(x, y, f"C{number}.-", label=METHODS[method] if x else None)
            axis.set_xscale("log")
            axis.grid(alpha=0.3)
            if value == "dev":
                axis.set_xlabel(label)
        line[0].set_ylabel(name)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _curve(rows: list[dict[str, Any]], along: str, value: str) -> tuple[list[float], list[float]]:
    longest = max((row["evaluations"] for row in rows), default=0)
    curves = [r["curve"] for r in rows if r["evaluations"] == longest and r["how"] == "done"]
    points = [point for point in zip(*curves, strict=False) if point[0]["evaluations"]]
    scale = 100 if value == "dev" else 1
    x = [mean(p[along] for p in point) for point in points]
    return x, [scale * mean(p[value] for p in point) for point in points]
