"""Average slopes instead of comparing values, for steps whose gain the noise hides.

Each sweep makes one step from its own differences, without a line search. The step is scaled by a
share that falls only when steps reverse direction (Kesten's rule). With a share of 1/k the iterate
averages k sweeps, and the effect of noise falls with k. Curvatures are averaged, too. The radii are
as small as the noise allows for the curvature to remain visible, so slopes are as exact as the
noise permits.
"""

from __future__ import annotations

import numpy as np

from ...parts.types import State
from ..stencil import Stencil
from .curvature_pairs import CurvaturePairs
from .rule import Points, Vector
from .saving import fields, restore
from .surface import Surface, differences, probes

_MEMORY = 10  # sweeps over which curvatures are averaged
_REACH = 2.0  # the most radii that a coordinate may move


class Averaging:
    """Averages from x on while evaluations remain."""

    done = ""

    def __init__(
        self, surface: Surface, x: Vector, f: float, c: Vector, pairs: CurvaturePairs
    ) -> None:
        self.surface, self.pairs = surface, pairs
        self.x, self.f, self.steps, self.skipped = x.copy(), f, 0, 0
        self.c = c.copy()
        self._seen = 0  # sweeps in the mean of the curvatures
        self._turns = 0
        self._d = np.zeros(len(x))
        self._stencil: Stencil
        self.began = surface.noise
        self.at = (x.copy(), f)  # the last evaluated point and its mean value

    def ask(self, limit: int | None) -> Points:
        """A whole sweep, with x twice to measure the noise; nothing if a sweep does not fit."""
        n = len(self.x)
        B = n if limit is None else min(n, (limit - 2) // 2)
        if n > B:  # a partial sweep would move part of x by noise that nothing averages
            return np.empty((0, n))
        least = self.surface.least(self.x, self.f, self.c)
        # Averaging allows smaller radii, whose truncation error is smaller.
        h = least / (1 + self._turns) ** 0.25
        if self.surface.eps is not None:
            h = np.full(n, self.surface.eps)
        self._stencil = self.surface.stencil(np.arange(n), self.x, h)
        return probes(self.x, self._stencil, again=True)

    def tell(self, values: Vector) -> None:
        """Make a step."""
        stencil, surface = self._stencil, self.surface
        here = values[[0, -1]]
        surface.twice(*map(float, here))
        here = here[np.isfinite(here)]
        f = float(here.mean()) if len(here) else self.f
        self.at = (self.x.copy(), f)
        g, c, _ = differences(stencil, f, values[1:-1])
        self.skipped += int((~np.isfinite(g)).sum())
        g = np.where(np.isfinite(g), g, 0.0)
        h = stencil.width / 2
        self._seen = min(self._seen + 1, _MEMORY)
        share = 1 / (self._seen + 1)
        self.c += share * np.where(np.isfinite(c), c - self.c, 0.0)
        if surface.box is not None:
            low, high = surface.box
            g[(self.x <= low) & (g > 0) | (self.x >= high) & (g < 0)] = 0.0
        # A curvature below what noise alone produces is not reliable.
        floor = surface.noise / h**2 * np.sqrt(6 * share)
        bend = np.maximum(np.abs(self.c), floor)
        d = self.pairs.direction(g, 1 / np.maximum(bend, 1e-300))
        if not (np.isfinite(d).all() and float(g @ d) < 0):
            d = -g / np.maximum(bend, 1e-300)
        d = np.clip(d, -_REACH * h, _REACH * h)
        if float((d * bend) @ self._d) < 0:
            self._turns += 1
        self._d = d
        self.f = f
        self.x = surface.inside(self.x + d / (1 + self._turns))
        self.steps += 1

    # --- saving --------------------------------------------------------------------------------

    _FIELDS = ("x", "f", "steps", "skipped", "c", "_seen", "_turns", "_d", "began")

    def state_dict(self) -> State:
        """Everything that a resumed run needs."""
        at = [self.at[0].copy(), self.at[1]]
        return {**fields(self, self._FIELDS), "at": at, "pairs": self.pairs.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state."""
        restore(self, state, self._FIELDS)
        self.pairs.load_state_dict(state["pairs"])
        x, f = state["at"]
        self.at = (np.array(x, dtype=np.float64).reshape(len(self.x)), float(f))
