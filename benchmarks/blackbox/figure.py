"""Data profiles from rows: the share of (problem, target) pairs reached, over evaluations / n."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .measure import Row
from .report import budgets, groups, methods

NAME = "blackbox-profiles"
# Okabe and Ito's colours, told apart by most colour-blind readers; the dashes help the others.
_LOOK = {
    "cocd": ("#D55E00", "-"),
    "cma": ("#0072B2", "-"),
    "l-bfgs-b": ("#009E73", "--"),
    "powell": ("#CC79A7", "-."),
    "ngopt": ("#E69F00", "--"),
    "spsa": ("#777777", ":"),
}


def profile(rows: list[Row]) -> tuple[list[float], list[float]]:
    """The steps of one method's curve: evaluations / n, and the share that was reached by then.

    >>> row = {"dimension": 2, "budget": 10, "targets": 4, "reached": [2, 6]}
    >>> profile([row])
    ([1.0, 3.0, 10.0], [0.25, 0.5, 0.5])
    """
    times = sorted(count / row["dimension"] for row in rows for count in row["reached"])
    pairs = sum(row["targets"] for row in rows)
    shares = [(i + 1) / pairs for i in range(len(times))]
    end = float(max(row["budget"] for row in rows))
    return [*times, end], [*shares, shares[-1] if shares else 0.0]


def write(rows: list[Row], folder: Path) -> list[Path]:
    """Draw the rows as PNG and SVG into `folder`, a panel for each suite and dimension."""
    panels = {where: mine for where, mine in groups(rows).items() if where[0] != "overhead"}
    if not panels:
        return []
    across = min(2, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(5.2 * across, 3.7 * down), dpi=150, layout="constrained")
    places = figure.subplots(down, across, squeeze=False).flatten()
    for axes, ((suite, n), mine) in zip(places, panels.items(), strict=False):
        _panel(axes, f"{suite}, {n:,}-D", mine)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{NAME}.{kind}" for kind in ("png", "svg")]
    with rc_context({"svg.hashsalt": NAME}):  # no date and no random ids: same rows, same file
        for path in paths:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _panel(axes: Axes, title: str, rows: list[Row]) -> None:
    top = budgets(rows)[-1]
    for name in methods(rows):
        mine = [row for row in rows if row["method"] == name and row["budget"] == top]
        if not mine:
            continue
        x, y = profile(mine)
        colour, style = _LOOK[name]
        width = 2.2 if name == "cocd" else 1.4
        axes.step(x, y, style, where="post", color=colour, lw=width, label=name)
    axes.set_xscale("log")
    axes.set_xlim(right=top)
    axes.set_ylim(0, 1)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("evaluations / n", fontsize=9)
    axes.set_ylabel("share of (problem, target) pairs", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.tick_params(labelsize=8)
    axes.grid(color="#e5e5e5", lw=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
