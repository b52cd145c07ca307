"""What a run knows of its function wherever it is: bounds, units, noise; so how far to probe."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...parts.types import State
from ..radius import ROUNDING, noise_level, scales
from ..stencil import Stencil, stencil_of
from .rule import Box, Probes, Vector

ABOVE = 6.0  # times the noise: what curvature must do to a value within the radius
_ROUNDED = 1e3  # times the rounding of the values: less noise than that is none
_VISIBLE = 1e4  # times the rounding of the value: what curvature must do to it, or
_FINEST = 1e-3  # this part of the usual radius is the least
_PAIRS = 7  # of values at the same point, whose median difference is the noise


class Surface:
    """Bounds and noise. `noise` is a standard deviation, 0 where there is none.

    It is measured at the start by a table of differences (`cocd.blackbox.radius`) and followed by
    values that are there twice for the same point.
    """

    def __init__(self, n: int, box: Box | None, eps: float | None) -> None:
        self.n, self.box, self.eps = n, box, eps
        self.noise = 0.0
        self.relative = 0.0  # as first measured: to how far the values reach
        self._twice: list[float] = []

    # --- noise ---------------------------------------------------------------------------------

    def measure(self, table: Vector, relative: float) -> None:
        """From equally spaced, close values."""
        size = float(np.abs(table).max())
        level = noise_level(table / size) if 0 < size < np.inf else 0.0
        self.noise = level * size if level > _ROUNDED * ROUNDING else 0.0
        self.relative = relative if self.noise else 0.0

    def twice(self, one: float, other: float) -> None:
        """Two values at the same point; equal ones say nothing, as noise may be computed."""
        if np.isfinite(one) and np.isfinite(other) and (one != other or self._twice):
            self._twice = [*self._twice[1 - _PAIRS :], abs(one - other)]
            self.noise = float(np.median(self._twice)) / 0.954  # of |N(0, 2)|

    # --- where to probe ------------------------------------------------------------------------

    def inside(self, x: Vector) -> Vector:
        """Within the bounds."""
        return x if self.box is None else np.clip(x, *self.box)

    def scales(self, x: Vector) -> Vector:
        """The size of each coordinate, no wider than its bounds."""
        return scales(x, self.box)

    def least(self, x: Vector, f: float, c: Vector) -> Vector:
        """The least radii that rounding and noise leave sensible; `c` are second differences.

        Within the radius the curvature has to change a value by `ABOVE` times the noise (Moré and
        Wild), but no radius is wider than the scale of its coordinate.
        """
        size = self.scales(x)
        least = size * float(np.cbrt(np.clip(self.relative, ROUNDING, 1.0)))
        bend = np.abs(c)
        if not self.noise:
            usual = size * float(np.cbrt(ROUNDING))
            # In smaller units than `size` the curve shows well within that.
            fine = np.sqrt(_VISIBLE * ROUNDING * abs(f) / np.maximum(bend, 1e-300))
            finest = _FINEST * float(np.cbrt(ROUNDING)) * np.abs(x)
            return np.asarray(np.where(bend > 0, np.clip(fine, finest, usual), usual))
        known = bend > 0
        wanted = np.sqrt(2 * ABOVE * self.noise / np.where(known, bend, 1.0))
        return np.asarray(np.where(known, np.minimum(wanted, size), least))

    def stencil(self, block: NDArray[np.intp], x: Vector, h: Vector) -> Stencil:
        """Where the coordinates of a block go."""
        box = self.box
        part = None if box is None else Box(box.lower[block], box.upper[block])
        return stencil_of(block, x[block], h[block], part)

    # --- saving --------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """What was measured."""
        return {"noise": self.noise, "relative": self.relative, "twice": list(self._twice)}

    def load_state_dict(self, state: State) -> None:
        """As it was saved."""
        self.noise, self.relative = float(state["noise"]), float(state["relative"])
        self._twice = [float(value) for value in state["twice"]]
        if not all(0 <= v < np.inf for v in (self.noise, self.relative, *self._twice)):
            raise ValueError("noise is not a finite number")


def probes(x: Vector, stencil: Stencil, again: bool = False) -> Probes:
    """X and both sides of each coordinate; `again`: x once more at the end."""
    values = np.stack([stencil.up, stencil.down], axis=1).ravel()
    moved = ~np.isnan(values)
    index, to = np.repeat(stencil.block, 2)[moved], values[moved]
    if again:
        index, to = np.append(index, 0), np.append(to, x[0])
    return Probes(x, index, to)


def differences(stencil: Stencil, f: float, values: Vector) -> tuple[Vector, Vector, Vector]:
    """Slopes, curvatures and all values (B, 2) of a block; NaN where an evaluation failed.

    A coordinate with one side alone has a one-sided slope and no curvature, one that its bounds
    fix neither.
    """
    moved = stencil.moved
    seen = np.full(moved.shape, f)
    seen[moved] = values
    g = (seen[:, 0] - seen[:, 1]) / stencil.width
    g[~moved.any(axis=1)] = 0.0
    both = moved.all(axis=1)
    c = np.where(both, (seen[:, 0] - 2 * f + seen[:, 1]) / (stencil.width / 2) ** 2, np.nan)
    return g, c, seen
