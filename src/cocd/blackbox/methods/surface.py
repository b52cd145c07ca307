"""What a run knows about its function (bounds, scales, noise), and the radii that follow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...parts.types import State
from ..radius import ROUNDING, noise_level, scales
from ..stencil import Stencil, stencil_of
from .rule import Box, Probes, Vector

ABOVE = 6.0  # within the radius, curvature must change a value by this many times the noise
_ROUNDED = 1e3  # noise below this many times the rounding of the values counts as none
_VISIBLE = 1e4  # without noise: by this many times the rounding of the value
_FINEST = 1e-3  # the least radius, as a part of the usual one
_PAIRS = 7  # pairs of values at the same point, whose median difference gives the noise


class Surface:
    """Bounds and noise. `noise` is a standard deviation, 0 where there is none.

    A table of differences (`cocd.blackbox.radius`) measures the noise at the start. Later, pairs of
    values at the same point update it.
    """

    def __init__(self, n: int, box: Box | None, eps: float | None) -> None:
        self.n, self.box, self.eps = n, box, eps
        self.noise = 0.0
        self.relative = 0.0  # the first measurement, relative to the range of the values
        self._twice: list[float] = []

    # --- noise ---------------------------------------------------------------------------------

    def measure(self, table: Vector, relative: float) -> None:
        """Measure the noise from equally spaced, close values."""
        size = float(np.abs(table).max())
        level = noise_level(table / size) if 0 < size < np.inf else 0.0
        self.noise = level * size if level > _ROUNDED * ROUNDING else 0.0
        self.relative = relative if self.noise else 0.0

    def twice(self, one: float, other: float) -> None:
        """Learn from two values at one point; equal ones prove nothing: noise may depend on x."""
        if np.isfinite(one) and np.isfinite(other) and (one != other or self._twice):
            self._twice = [*self._twice[1 - _PAIRS :], abs(one - other)]
            self.noise = float(np.median(self._twice)) / 0.954  # of |N(0, 2)|

    # --- where to probe ------------------------------------------------------------------------

    def inside(self, x: Vector) -> Vector:
        """Clip x to the bounds."""
        return x if self.box is None else np.clip(x, *self.box)

    def scales(self, x: Vector) -> Vector:
        """The size of each coordinate, no wider than its bounds."""
        return scales(x, self.box)

    def least(self, x: Vector, f: float, c: Vector) -> Vector:
        """The least useful radii, given rounding and noise; `c` holds second differences.

        Within the radius, curvature must change a value by `ABOVE` times the noise (Moré and Wild),
        but no radius exceeds the scale of its coordinate.
        """
        size = self.scales(x)
        least = size * float(np.cbrt(np.clip(self.relative, ROUNDING, 1.0)))
        bend = np.abs(c)
        if not self.noise:
            usual = size * float(np.cbrt(ROUNDING))
            # If x has smaller units than `size`, curvature is visible at a smaller radius.
            fine = np.sqrt(_VISIBLE * ROUNDING * abs(f) / np.maximum(bend, 1e-300))
            finest = _FINEST * float(np.cbrt(ROUNDING)) * np.abs(x)
            return np.asarray(np.where(bend > 0, np.clip(fine, finest, usual), usual))
        known = bend > 0
        wanted = np.sqrt(2 * ABOVE * self.noise / np.where(known, bend, 1.0))
        return np.asarray(np.where(known, np.minimum(wanted, size), least))

    def stencil(self, block: NDArray[np.intp], x: Vector, h: Vector) -> Stencil:
        """The probe positions of a block."""
        box = self.box
        part = None if box is None else Box(box.lower[block], box.upper[block])
        return stencil_of(block, x[block], h[block], part)

    # --- saving --------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """The measured noise."""
        return {"noise": self.noise, "relative": self.relative, "twice": list(self._twice)}

    def load_state_dict(self, state: State) -> None:
        """Restore the measured noise."""
        self.noise, self.relative = float(state["noise"]), float(state["relative"])
        self._twice = [float(value) for value in state["twice"]]
        if not all(0 <= v < np.inf for v in (self.noise, self.relative, *self._twice)):
            raise ValueError("noise is not a finite number")


def probes(x: Vector, stencil: Stencil, again: bool = False) -> Probes:
    """X and both sides of each coordinate; `again` repeats x at the end."""
    values = np.stack([stencil.up, stencil.down], axis=1).ravel()
    moved = ~np.isnan(values)
    index, to = np.repeat(stencil.block, 2)[moved], values[moved]
    if again:
        index, to = np.append(index, 0), np.append(to, x[0])
    return Probes(x, index, to)


def differences(stencil: Stencil, f: float, values: Vector) -> tuple[Vector, Vector, Vector]:
    """Slopes, curvatures and all values (B, 2) of a block; NaN where an evaluation failed.

    A coordinate probed on one side has a one-sided slope and no curvature; one fixed by its bounds
    has slope 0 and no curvature.
    """
    moved = stencil.moved
    seen = np.full(moved.shape, f)
    seen[moved] = values
    g = (seen[:, 0] - seen[:, 1]) / stencil.width
    g[~moved.any(axis=1)] = 0.0
    both = moved.all(axis=1)
    c = np.where(both, (seen[:, 0] - 2 * f + seen[:, 1]) / (stencil.width / 2) ** 2, np.nan)
    return g, c, seen
