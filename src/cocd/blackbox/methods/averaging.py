"""Where steps gain less than the noise hides: averages of slopes instead of comparisons of values.

Each sweep makes a step by its own differences, no search. A step's share falls only when steps
begin to turn back (Kesten): a share of 1/k makes the iterate an average over k sweeps, and what
noise does to it falls with k. Curvatures are averaged, too. Radii are where curvature stands out of
the noise, so that slopes are as exact as the noise allows.
"""

from __future__ import annotations

import numpy as np

from ...parts.types import State
from ..stencil import Stencil
from .curvature_pairs import CurvaturePairs
from .rule import Points, Vector
from .saving import fields, restore
from .surface import Surface, differences, probes

_MEMORY = 10  # sweeps that curvatures are averaged over
_REACH = 2.0  # no coordinate moves further than so many radii


class Averaging:
    """From x on, as long as there are evaluations."""

    done = ""

    def __init__(
        self, surface: Surface, x: Vector, f: float, c: Vector, pairs: CurvaturePairs
    ) -> None:
        self.surface, self.pairs = surface, pairs
        self.x, self.f, self.steps, self.skipped = x.copy(), f, 0, 0
        self.c = c.copy()
        self._seen = 0  # sweeps that curvatures are the mean of
        self._turns = 0
        self._d = np.zeros(len(x))
        self._stencil: Stencil
        self.began = surface.noise
        self.at = (x.copy(), f)  # the last point that was evaluated, and its mean

    def ask(self, limit: int | None) -> Points:
        """A whole sweep and x twice, whose difference is noise; or as much as fits."""
        n = len(self.x)
        B = n if limit is None else min(n, (limit - 2) // 2)
        if n > B:  # a part of a sweep would move a part of x by noise that nothing averages
            return np.empty((0, n))
        least = self.surface.least(self.x, self.f, self.c)
        # Averages tell what smaller differences say, which the curve falsifies less.
        h = least / (1 + self._turns) ** 0.25
        if self.surface.eps is not None:
            h = np.full(n, self.surface.eps)
        self._stencil = self.surface.stencil(np.arange(n), self.x, h)
        return probes(self.x, self._stencil, again=True)

    def tell(self, values: Vector) -> None:
        """A step."""
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
        # Less than what noise alone makes of a second difference is no curvature.
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
        """All that a resumed run needs."""
        at = [self.at[0].copy(), self.at[1]]
        return {**fields(self, self._FIELDS), "at": at, "pairs": self.pairs.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Continue where another one stopped."""
        restore(self, state, self._FIELDS)
        self.pairs.load_state_dict(state["pairs"])
        x, f = state["at"]
        self.at = (np.array(x, dtype=np.float64).reshape(len(self.x)), float(f))
