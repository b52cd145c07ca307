"""Charts as PNG and SVG, drawn by matplotlib. Equal rows give equal files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import ceil, log10
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import (
    AutoLocator,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

from .charts import Chart, Curve, Panel

# A hash salt instead of random identities, text as shapes: the same picture everywhere.
_STYLE: dict[Any, Any] = {"svg.hashsalt": "cocd", "svg.fonttype": "path", "path.simplify": True}
_METADATA: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
_TICKS = 12  # so many places on a logarithmic axis can be named one by one
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
    legends = [_legend_rows(panel) for panel in chart.panels]
    # Each row of panels is as high as its tallest legend wants.
    tallest = [max(legends[i : i + columns]) for i in range(0, len(legends), columns)]
    height = sum(3.5 + 0.16 * lines for lines in tallest) + 0.4
    size = (_WIDTHS.get(columns, 4.0 * columns), height)
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
    for curve in panel.curves:
        _curve(axes, curve, low, high)
    for line in panel.lines:
        axes.axhline(line.value, color=line.colour, ls=(0, (1, 2)), lw=1.3, label=line.name)
    axes.set_xlabel(panel.x, fontsize=9)
    axes.set_ylabel(panel.y, fontsize=9)
    places = sorted({p.x for c in panel.curves for p in c.points})
    if panel.log_x and len(places) <= _TICKS:
        axes.xaxis.set_major_locator(FixedLocator(places))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    if panel.percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    elif panel.log_y:
        decades = log10(high / low)
        # Less than a decade has no round power of ten to be labelled.
        axes.yaxis.set_major_locator(
            AutoLocator()
            if decades < 0.9
            else LogLocator(subs=(1, 2, 5) if decades < 2 else (1, 3) if decades < 3.5 else (1,))
        )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="both", labelsize=9, length=0)
    axes.grid(color="#e5e5e5", lw=0.8)
    axes.grid(which="minor", visible=False)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    if panel.curves:
        _legend(axes)


def tick(value: float) -> str:
    """A place on an axis.

    >>> [tick(v) for v in (0, 0.1, 2048, 2_500_000, 1e7)]
    ['0', '0.1', '2,048', '2.5 M', '10 M']
    """
    return f"{value / 1e6:,.10g} M" if abs(value) >= 1e6 else f"{value:,.10g}"


def _legend(axes: Axes) -> None:
    """Below the axes, where it hides nothing; short names side by side."""
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(-0.02, -0.14),
        ncols=_legend_columns(labels),
        frameon=False,
        fontsize=7.5,
        handlelength=2.2,
        columnspacing=1.2,
    )


def _legend_columns(labels: Sequence[str]) -> int:
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    return 3 if longest < 12 else 2 if longest < 28 else 1


def _legend_rows(panel: Panel) -> int:
    """Lines of text in the legend of a panel."""
    labels = [_label(c) for c in panel.curves] + [line.name for line in panel.lines]
    lines = sum(1 + label.count("\n") for label in labels)
    return ceil(lines / _legend_columns(labels))


def _label(curve: Curve) -> str:
    name = curve.name + (f" ({curve.ended})" if curve.ended else "")
    return "\n".join(textwrap.wrap(name, 40, break_on_hyphens=False))


def _curve(axes: Axes, curve: Curve, low: float, high: float) -> None:
    x = [p.x for p in curve.points]
    dash = [float(part) / 2 for part in curve.dash.split()]
    style: Any = (0, tuple(dash)) if dash else "-"
    marker = "o" if len(x) < 12 else None
    label = _label(curve)
    means: list[Any] = [p.y.mean for p in curve.points]
    axes.plot(x, means, color=curve.colour, ls=style, lw=1.8, label=label, marker=marker, ms=3)
    if any(len(p.y.values) > 1 for p in curve.points):
        lows, highs = [p.y.low for p in curve.points], [p.y.high for p in curve.points]
        axes.fill_between(x, lows, highs, color=curve.colour, alpha=0.15, lw=0)
    if not curve.steady:
        end = min(max(means[-1], low), high)
        axes.plot(x[-1], end, "x", color=curve.colour, ms=8, mew=2, clip_on=False)
