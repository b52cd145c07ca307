"""The simulated ranks as a picture, from rows alone."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from .measure import Row
from .scaling_ranks import by_lane, dominates_from

NAME = "distributed-ranks"
# Okabe and Ito's colours, told apart by most colour-blind readers.
_COLOURS = {"step": "#0072B2", "own": "#009E73", "exchange": "#D55E00", "other": "#777777"}


def write(rows: list[Row], folder: Path) -> list[Path]:
    """Draw the rows as PNG and SVG into `folder`; the files."""
    lanes = by_lane(rows)
    across = min(3, len(lanes))
    down = -(-len(lanes) // across)
    figure = Figure(figsize=(4.6 * across, 3.7 * down + 0.5), dpi=150, layout="constrained")
    places = figure.subplots(down, across, squeeze=False).flatten()
    for axes, ((workload, engine), mine) in zip(places, lanes.items(), strict=False):
        _panel(axes, f"{workload}, {engine} engine, B = {mine[0]['compute_budget']:,}", mine)
    for axes in places[len(lanes) :]:
        axes.set_axis_off()
    figure.legend(
        *places[0].get_legend_handles_labels(),
        loc="outside lower left",
        ncols=across,
        frameon=False,
        fontsize=8,
    )
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{NAME}.{kind}" for kind in ("png", "svg")]
    with rc_context({"svg.hashsalt": NAME}):  # no date and no random ids: same rows, same file
        for path in paths:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _panel(axes: Axes, title: str, rows: list[Row]) -> None:
    x = [row["ranks"] for row in rows]
    lines = (
        ("step_seconds", "step", "-", "a step, exchanges by doubling (modelled)"),
        ("ring_step_seconds", "step", ":", "a step, exchanges on a ring (modelled)"),
        ("exchange_seconds", "exchange", "-", "exchanges by doubling (modelled from two ranks)"),
        ("rank_seconds", "own", "o-", "pass, slice of probes, update of a rank (measured)"),
    )
    for part, colour, style, label in lines:
        shown = [row for row in rows if row["ranks"] > 1] if colour == "exchange" else rows
        axes.plot(
            [row["ranks"] for row in shown],
            [1e3 * row[part] for row in shown],
            style,
            color=_COLOURS[colour],
            ms=3.5,
            lw=2.2 if part == "step_seconds" else 1.2,
            label=label,
        )
    for row in rows:
        if row["measured_rank_seconds"]:
            axes.plot(
                row["ranks"],
                1e3 * row["measured_rank_seconds"],
                "x",
                color="black",
                ms=7,
                mew=2,
                label="the same of the slower of two real ranks (measured)",
            )
    if (point := dominates_from(rows)) is not None:
        axes.axvline(point, color=_COLOURS["other"], lw=1, ls="--")
        axes.annotate(
            f"{point:,} ranks: communication\nis more than half",
            (point, 0.98),
            xycoords=("data", "axes fraction"),
            xytext=(-4, 0),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=7.5,
            color=_COLOURS["other"],
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(x[::2])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("ranks", fontsize=9)
    axes.set_ylabel("ms a step", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(color="#e5e5e5", lw=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
