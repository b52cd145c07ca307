"""Leave a minimum for a better one: wide differences smooth the function, then radii shrink.

A central difference with radius R is the slope of the function averaged over R. Shorter ripples
cancel, more so because each sweep draws new radii. Steps follow the minimum of the smoothed
function while R shrinks. They compare no values, because values contain the ripples.
"""

from __future__ import annotations

import numpy as np

from ...parts.types import State
from ..stencil import Stencil
from .rule import Points, Vector
from .saving import fields, restore
from .surface import Surface, differences, probes

_SHRINK = 0.75  # factor on the radius after each sweep
_LAST = 0.15  # of a coordinate's scale: below this radius a descent takes over
_SHARE = 0.7  # fraction of the step to the minimum of the smoothed function
_MEMORY = 3  # sweeps over which curvatures are averaged


class Continuation:
    """Starts at x with a radius of `width` times the scale of each coordinate."""

    def __init__(
        self, surface: Surface, x: Vector, f: float, width: float, rng: np.random.Generator
    ) -> None:
        self.surface, self._rng = surface, rng
        self.x, self.f, self.steps, self.skipped, self.done = x.copy(), f, 0, 0, ""
        self._size = surface.scales(x)
        self._width = width
        self._c = np.zeros(len(x))
        self._seen = 0
        self._draw()
        self._stencil: Stencil

    def _draw(self) -> None:
        self._radii = self._width * self._size * self._rng.uniform(0.5, 1.5, len(self.x))

    def ask(self, limit: int | None) -> Points:
        """A whole sweep, or nothing."""
        n = len(self.x)
        if limit is not None and limit < 2 * n + 1:
            return np.empty((0, n))
        self._stencil = self.surface.stencil(np.arange(n), self.x, self._radii)
        return probes(self.x, self._stencil)

    def tell(self, values: Vector) -> None:
        """Make a step and shrink the radius."""
        f = float(values[0])
        self.f = f if np.isfinite(f) else self.f
        g, c, _ = differences(self._stencil, self.f, values[1:])
        g = np.where(np.isfinite(g), g, 0.0)
        self._seen = min(self._seen + 1, _MEMORY)
        self._c += np.where(np.isfinite(c), c - self._c, 0.0) / self._seen
        h = self._stencil.width / 2
        # The mean curvature keeps a coordinate that looks flat from running away.
        bend = np.abs(self._c) + 0.3 * float(np.abs(self._c).mean()) + 1e-300
        self.x = self.surface.inside(self.x + np.clip(-_SHARE * g / bend, -h, h))
        self._width *= _SHRINK
        self.steps += 1
        if self._width < _LAST:
            self.done = "the radius is small"
        self._draw()

    # --- saving --------------------------------------------------------------------------------

    _FIELDS = ("x", "f", "steps", "skipped", "done", "_size", "_width", "_c", "_seen", "_radii")

    def state_dict(self) -> State:
        """Everything that a resumed run needs."""
        return fields(self, self._FIELDS)

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state."""
        restore(self, state, self._FIELDS)
