"""Probe positions of a block: both sides of each coordinate, or one if bounds leave no room."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .methods.rule import Box, Vector


class Stencil(NamedTuple):
    """Probe positions of a block (NaN for a side that is not probed) and divisors (eq. 3)."""

    block: NDArray[np.intp]
    up: Vector
    down: Vector
    width: Vector

    @property
    def moved(self) -> NDArray[np.bool_]:
        """Which of the two sides of each coordinate are evaluated, (B, 2)."""
        return ~np.isnan(np.stack([self.up, self.down], axis=1))


def stencil_of(block: NDArray[np.intp], x: Vector, h: Vector, box: Box | None) -> Stencil:
    """The stencil of the coordinates `block` with values x, radii h and bounds `box`."""
    return Stencil(block, x + h, x - h, 2 * h) if box is None else _inside(block, x, h, box)


def _inside(block: NDArray[np.intp], x: Vector, h: Vector, box: Box) -> Stencil:
    """Both sides if both fit, otherwise the side with more room, at most up to the bound."""
    above, below = box.upper - x, x - box.lower
    central = (x + h <= box.upper) & (x - h >= box.lower)
    use_up = central | (above >= below)
    use_down = central | ~use_up
    reach = np.where(central, h, np.minimum(h, np.maximum(above, below)))
    up = np.where(use_up & (above > 0), np.minimum(x + reach, box.upper), np.nan)
    down = np.where(use_down & (below > 0), np.maximum(x - reach, box.lower), np.nan)
    width = np.where(central, 2 * h, np.where(reach > 0, reach, 1.0))
    return Stencil(block, up, down, width)
