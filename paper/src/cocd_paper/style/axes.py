"""Axes of matplotlib as the package draws them: a grid, no frame."""

from __future__ import annotations

from matplotlib.axes import Axes

GRID, SOFT = "#e5e5e5", "#555555"


def bare(axes: Axes, size: float = 9) -> None:
    """Take the frame and the tick marks away and lay a quiet grid behind the curves."""
    axes.tick_params(which="both", labelsize=size, length=0)
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
