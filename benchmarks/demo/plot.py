"""The plot as PNG: test accuracy and loss over evaluations, from the rows alone."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from cocd_paper.style.axes import SOFT, bare
from cocd_paper.style.colours import colour
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, PercentFormatter

from .look import label
from .results import Results, note


def write(results: Results, path: Path) -> None:
    """Draw `results` into `path`."""
    # No pyplot: no global state. The pads, in inches, keep everything off the edges.
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    figure = Figure(figsize=(10, 4.6), dpi=150, layout=layout)
    accuracy, loss = figure.subplots(1, 2)
    for axes, key, title in (
        (accuracy, "test_accuracy", "test accuracy"),
        (loss, "test_loss", "test loss"),
    ):
        _curves(axes, results, key)
        axes.set_title(title, loc="left", fontsize=11)
    accuracy.set_ylim(0, 1)
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    accuracy.legend(loc="lower right", frameon=False, fontsize=9)
    loss.set_ylim(bottom=0)
    parameters = results["task"]["parameters"]
    figure.suptitle(
        f"Handwritten digits, a tanh network of {parameters:,} parameters",
        x=0.01,
        ha="left",
        fontsize=13,
        fontweight="bold",
    )
    footnote = textwrap.fill(note(results), 140)
    figure.supxlabel(footnote, x=0.01, ha="left", fontsize=8, color=SOFT)
    figure.savefig(path)


def _curves(axes: Axes, results: Results, key: str) -> None:
    for row in results["rows"]:
        name = label(row)
        if row["first_order"]:
            # Its evaluations mean something else: only where it ended can be compared.
            if row[key] is not None:
                axes.axhline(row[key], color=colour(row["method"]), ls="--", lw=1.2, label=name)
            continue
        points = [p for p in row["curve"] if p[key] is not None]
        x: list[Any] = [p["evaluations"] for p in points]
        axes.plot(x, [p[key] for p in points], color=colour(row["method"]), lw=2, label=name)
        if row["diverged_at"] is not None and points:
            axes.plot(x[-1], points[-1][key], "x", color=colour(row["method"]), ms=8, mew=2)
    axes.set_xlim(left=0)
    axes.set_xlabel("evaluations of the loss", fontsize=9)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    bare(axes)
