"""Charts as PNG and SVG, drawn by matplotlib. Equal rows give equal files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogFormatter, PercentFormatter

from .._look.axes import bare
from .charts import Chart, Curve, Panel

# A hash salt instead of random identities, text as shapes: the same picture everywhere.
_STYLE: dict[Any, Any] = {"svg.hashsalt": "cocd", "svg.fonttype": "path", "path.simplify": True}
_METADATA: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
_WIDTHS = {1: 8.0, 2: 11.0, 3: 13.0}


def write(chart: Chart, folder: Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Draw `chart` into a file of `folder` for each of the `kinds`; gives the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{chart.name}.{kind}" for kind in kinds]
    with matplotlib.rc_context(_STYLE):
        figure = draw(chart)
        for file, kind in zip(files, kinds, strict=True):
            figure.savefig(file, metadata=_METADATA[kind])
    return files


def draw(chart: Chart) -> Figure:
    """The chart as a figure of matplotlib. No pyplot: no global state."""
    columns = min(chart.columns, len(chart.panels))
    rows = ceil(len(chart.panels) / columns)
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    size = (_WIDTHS.get(columns, 4.0 * columns), 4.0 * rows + 0.5)
    figure = Figure(figsize=size, dpi=120, layout=layout)
    grid = figure.subplots(rows, columns, squeeze=False)
    places = [axes for row in grid for axes in row]
    for axes, panel in zip(places, chart.panels, strict=False):
        _panel(axes, panel)
    for axes in places[len(chart.panels) :]:
        axes.set_axis_off()
    figure.suptitle(chart.title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    return figure


def _panel(axes: Axes, panel: Panel) -> None:
    low, high = panel.y_range
    axes.set_title(panel.title, loc="left", fontsize=11)
    if panel.log_x:
        axes.set_xscale("log")
    if panel.log_y:
        axes.set_yscale("log")
    axes.set_ylim(low, high)
    for line in panel.lines:
        axes.axhline(line.value, color=line.colour, ls=(0, (1, 2)), lw=1.3, label=line.name)
    for curve in panel.curves:
        _curve(axes, curve, low, high)
    axes.set_xlabel(panel.x, fontsize=9)
    axes.set_ylabel(panel.y, fontsize=9)
    if not panel.log_x:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if panel.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    elif panel.log_y:
        # Less than a decade has no round power of ten to be labelled.
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(_Few(minor_thresholds=(1.5, 0.6)))
    bare(axes)
    axes.tick_params(axis="y", which="minor", labelsize=8)
    if panel.curves:
        axes.legend(frameon=False, fontsize=7.5, handlelength=2.4)


class _Few(LogFormatter):  # type: ignore[misc, unused-ignore]
    """Plain numbers beside the minor ticks, where there is room for some."""

    def __call__(self, x: float, pos: Any = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def _curve(axes: Axes, curve: Curve, low: float, high: float) -> None:
    x = [p.x for p in curve.points]
    dash = [float(part) / 2 for part in curve.dash.split()]
    style: Any = (0, tuple(dash)) if dash else "-"
    name = curve.name + (f"\n({curve.ended})" if curve.ended else "")
    marker = "o" if len(x) < 12 else None
    label = "\n".join(textwrap.wrap(name, 44, break_on_hyphens=False))
    means: list[Any] = [p.y.mean for p in curve.points]
    axes.plot(x, means, color=curve.colour, ls=style, lw=1.8, label=label, marker=marker, ms=3)
    if any(len(p.y.values) > 1 for p in curve.points):
        lows, highs = [p.y.low for p in curve.points], [p.y.high for p in curve.points]
        axes.fill_between(x, lows, highs, color=curve.colour, alpha=0.15, lw=0)
    if not curve.steady:
        end = min(max(means[-1], low), high)
        axes.plot(x[-1], end, "x", color=curve.colour, ms=8, mew=2, clip_on=False)
