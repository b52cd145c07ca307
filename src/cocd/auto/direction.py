"""The direction of a step: every slope divided by its own curvature.

The 2B probes of a block give two numbers for each of its coordinates, at no extra cost:

    g_i = (f(x + r e_i) - f(x - r e_i)) / 2r
    c_i = (f(x + r e_i) - 2 f(x) + f(x - r e_i)) / r^2

Along one coordinate the best move is -g_i / c_i, in any units of parameter and loss. If the
curvature is negative or lost in rounding, its size or a floor replaces it. No coordinate moves
further than a trust radius: a measurement within r says little about points far beyond it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def scaled(g: Vector, c: Vector, damping: Vector | float) -> Vector:
    """-g / |c|, coordinate by coordinate.

    `damping` is added to the curvature: a second difference below it is rounding or noise.

    >>> import numpy as np
    >>> scaled(np.array([2.0, 2.0, 2.0]), np.array([4.0, -4.0, 0.0]), 1.0)
    array([-0.4, -0.4, -2. ])
    """
    return np.asarray(-g / (np.abs(c) + damping))


def shortened(p: Vector, reach: Vector | float) -> Vector:
    """The same direction, shortened so that no coordinate moves further than `reach`.

    >>> import numpy as np
    >>> shortened(np.array([3.0, -1.0]), 1.5)
    array([ 1.5, -0.5])
    """
    return p * min(1.0, float((reach / np.maximum(np.abs(p), 1e-300)).min(initial=1.0)))


class Direction(NamedTuple):
    """The direction of a block: one number per coordinate, 0 if unknown."""

    p: Vector
    g: Vector  # slopes of the objective
    longest: float  # multiple of p at which the first coordinate is at the end of its reach

    @property
    def slope(self) -> float:
        """The slope of the objective along p; below 0."""
        return float(self.g @ self.p)


def propose(
    g: Vector,
    c: Vector,
    radius: Vector,
    reach: Vector,
    scale: Vector,
    damping: float,
    floor: float,
) -> Direction | None:
    """The step that a block proposes (docs/adaptive.md, equation 3).

    None if no slope is known, or no gain is expected. A coordinate with a non-finite slope or
    curvature does not move. `damping` is a share of the mean curvature, `floor` a share of the
    steepest slope over its radius. `scale` is the relative length of each coordinate's step; if one
    would go beyond `reach`, all become shorter.

    >>> import numpy as np
    >>> one = np.ones(3)
    >>> g, c = np.array([4.0, -8.0, np.nan]), np.array([1.0, 4.0, 1.0])
    >>> propose(g, c, one, 3 * one, one, damping=0.0, floor=0.0).p
    array([-3. ,  1.5, -0. ])
    """
    good = np.isfinite(g) & np.isfinite(c)
    if not good.any():
        return None
    g, c = np.where(good, g, 0.0), np.where(good, c, np.inf)
    least = damping * float(np.abs(c[good]).mean())
    least = max(least, floor * float(np.abs(g / radius).max()), np.finfo(float).tiny)
    p = shortened(scale * scaled(g, c, least), reach)
    longest = float((reach / np.maximum(np.abs(p), 1e-300)).min())
    found = Direction(p, g, longest)
    return found if found.slope < 0 else None
