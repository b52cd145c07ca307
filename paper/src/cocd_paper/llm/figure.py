"""The curves of the rows: loss and accuracy over evaluations and over seconds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import mean

from ..plans.llm import METHODS, SUBSETS
from .table import Rows

_AXES = {"evaluations": "evaluations", "seconds": "seconds of one core"}
_VALUES = {"loss": "training loss", "dev": "development rows, %"}
_PANELS = [("evaluations", "loss"), ("evaluations", "dev"), ("seconds", "dev")]


def draw(rows: Rows, subsets: Iterable[str], path: Path) -> None:
    """Means over seeds of each method's longest runs, one line of panels for each subset."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    runs = [row for row in rows if not row["tuning"] and row["how"] == "done"]
    shown = [name for name in subsets if any(row["subset"] == name for row in runs)]
    if not shown:
        raise ValueError("figure: no run of these subsets is among the rows")
    size = (10, 1 + 2.6 * len(shown))
    figure, grid = pyplot.subplots(
        len(shown), len(_PANELS), figsize=size, sharex="col", squeeze=False, layout="constrained"
    )
    legend = {}
    for line, subset in zip(grid, shown, strict=True):
        for axis, (along, value) in zip(line, _PANELS, strict=True):
            for number, (method, label) in enumerate(METHODS.items()):
                some = [r for r in runs if (r["subset"], r["method"]) == (subset, method)]
                x, y = _curve(some, along, value)
                if x:
                    (legend[label],) = axis.plot(x, y, f"C{number}.-")
            axis.set_xscale("log")
            axis.grid(alpha=0.3)
            axis.set_ylabel(_VALUES[value])
        line[0].set_title(SUBSETS[subset], loc="left")
    for axis, (along, _) in zip(grid[-1], _PANELS, strict=True):
        axis.set_xlabel(_AXES[along])
    figure.legend([*legend.values()], [*legend], loc="outside lower center", ncols=3)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _curve(rows: Rows, along: str, value: str) -> tuple[list[float], list[float]]:
    longest = max((row["evaluations"] for row in rows), default=0)
    curves = [row["curve"] for row in rows if row["evaluations"] == longest]
    points = [point for point in zip(*curves, strict=False) if point[0]["evaluations"]]
    scale = 100 if value == "dev" else 1
    x = [mean(p[along] for p in point) for point in points]
    return x, [scale * mean(p[value] for p in point) for point in points]
