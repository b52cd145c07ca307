"""Search around a minimum, one coordinate at a time, for another valley within a wide radius.

The first sweep draws a radius for each coordinate around `width`. If a value rises far less than
the curvature at the minimum predicts, a valley may be nearby: further rounds probe those
coordinates closer and closer to their lowest value. Random lines come first, because at a kink all
coordinates and slopes may lead up while other directions lead down.
"""

from __future__ import annotations

import numpy as np

from ...parts.types import State
from .rule import Points, Probes, Vector
from .saving import fields, restore
from .surface import Surface

_ROUNDS = 6  # the first sweep and further rounds at promising coordinates
_LITTLE = 0.1  # a smaller fraction of the predicted rise is promising
_MANY = 0.25  # more promising probes per coordinate mean valleys everywhere
_LINES = 5  # random lines
_NEAR = (-3.0, -0.5)  # range of their radii, as powers of ten times the scale
_MANY_LINES = 25  # random lines if slopes jump
_SPREAD = 0.35  # of the radius in the second round; halves with each further one


class CoordinateScan:
    """Scans around the minimum x with value f and curvatures c."""

    def __init__(
        self,
        surface: Surface,
        x: Vector,
        f: float,
        c: Vector,
        width: float,
        rng: np.random.Generator,
        kink: bool = False,
    ) -> None:
        n = len(x)
        self.surface, self._rng = surface, rng
        self.x, self.f, self.steps, self.skipped, self.done = x.copy(), f, 0, 0, ""
        self._c = np.abs(c)
        self.rippled = False  # valleys nearly everywhere: none deserves a closer look
        self.lowest, self.where = np.inf, x.copy()
        radii = width * surface.scales(x) * rng.uniform(0.7, 1.4, n)
        # For both sides of each coordinate: the next probe, the lowest value and its position.
        self._index = np.tile(np.arange(n), 2)
        self._next = np.concatenate([x + radii, x - radii])
        k = (_MANY_LINES if kink else _LINES) if c.any() else 0  # a plateau has no kinks
        lines = 10 ** rng.uniform(*_NEAR, (k, 1)) * rng.standard_normal((k, n))
        lines *= surface.scales(x)
        self._near = surface.inside(x + np.concatenate([lines, -lines]))
        self._found = np.concatenate([x, x])
        self._value = np.full(2 * n, np.inf)
        self._fit()

    def _fit(self) -> None:
        box = self.surface.box
        if box is not None:
            self._next = np.clip(self._next, box.lower[self._index], box.upper[self._index])

    def ask(self, limit: int | None) -> Points:
        """The probes of a round, or nothing if they do not fit."""
        if limit is not None and limit < 1 + max(len(self._index), len(self._near)):
            return np.empty((0, len(self.x)))
        if len(self._near):
            return self._near
        return Probes(self.x, self._index, self._next)

    def tell(self, values: Vector) -> None:
        """Keep the promising coordinates."""
        if len(self._near):
            self._nearby(values)
            return
        seen = np.where(np.isfinite(values[1:]), values[1:], np.inf)
        better = seen < self._value
        self._value = np.where(better, seen, self._value)
        self._found = np.where(better, self._next, self._found)
        k = int(self._value.argmin())
        if self._value[k] < self.lowest:
            self.lowest, self.where = float(self._value[k]), self.x.copy()
            self.where[self._index[k]] = self._found[k]
        self.steps += 1
        away = self._found - self.x[self._index]
        foretold = 0.5 * self._c[self._index] * away**2
        keep = (self._value - self.f < _LITTLE * foretold) & (away != 0)
        self.rippled = self.rippled or int(keep.sum()) > _MANY * len(self.x)
        if self.steps >= _ROUNDS or not keep.any() or self.rippled:
            self.done = "all around has been looked at"
            return
        spread = _SPREAD / 2 ** (self.steps - 1)
        self._index, self._value = self._index[keep], self._value[keep]
        self._found, away = self._found[keep], away[keep]
        self._next = self._found + away * spread * self._rng.uniform(-1, 1, len(away))
        self._fit()

    def _nearby(self, values: Vector) -> None:
        """End the scan if one of the random lines has led to a lower point."""
        seen = np.where(np.isfinite(values), values, np.inf)
        k = int(seen.argmin())
        if seen[k] < self.f:
            self.lowest, self.where = float(seen[k]), self._near[k].copy()
            self.done = "a point nearby is lower"
            self.steps += 1
        self._near = self._near[:0]

    # --- saving --------------------------------------------------------------------------------

    _FIELDS = ("x", "f", "steps", "skipped", "done", "lowest", "where", "rippled", "_c")
    _LISTS = ("_index", "_next", "_found", "_value")

    def state_dict(self) -> State:
        """Everything that a resumed run needs."""
        return fields(self, (*self._FIELDS, *self._LISTS, "_near"))

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state."""
        restore(self, state, self._FIELDS)
        self._near = np.array(state["_near"], dtype=np.float64).reshape(-1, len(self.x))
        index = np.array(state["_index"])
        rest = [np.array(state[name], dtype=np.float64) for name in self._LISTS[1:]]
        n = len(self.x)
        fits = index.dtype.kind == "i" and index.ndim == 1 and len(index) > 0
        if not fits or index.min() < 0 or index.max() >= n or np.isnan(rest).any():
            raise ValueError("coordinates that there are not, or numbers that are none")
        self._index, (self._next, self._found, self._value) = index, rest
