"""Measure the whole Hessian: one evaluation for each pair of coordinates.

n (n - 1) / 2 evaluations at x + h_i e_i + h_j e_j and a sweep at the same radii give all mixed
differences. They cost as much as n / 4 sweeps of central differences; curvature pairs need about n
sweeps to learn the same. The method assumes a smooth function without noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...parts.types import State
from ..radius import ROUNDING
from ..stencil import Stencil
from .rule import Matrix, Points, Probes, Vector
from .saving import fields, restore

_RELIABLE = 4.0  # rounding errors in one mixed difference
_LOST = 10.0  # a curvature within this many such errors is unknown
_TINY = 1e-100
_CLEAR = 1e8  # curvature should change a value by this many times its rounding

_AGAIN = 2.0  # evaluations before the next measurement, in units of its price
_ROOM = 4  # sweeps that `maxfev` should leave room for after a measurement
_STEPS = 5  # parabolic steps in a row before a measurement
_PARABOLA = 0.03  # a step is parabolic if gain / (slope times length) is this close to a half

MOST = 500  # the most coordinates for a dense matrix


def cost(n: int) -> int:
    """Evaluations of a measurement, without the sweep."""
    return n * (n - 1) // 2


def radii(size: Vector, f: float, c: Vector) -> Vector:
    """Radii at which second differences are exact to about 1e-8, wider than for slopes."""
    usual = size * ROUNDING**0.25
    fine = np.sqrt(_CLEAR * ROUNDING * abs(f) / np.maximum(np.abs(c), 1e-300))
    return np.asarray(np.minimum(usual, fine))


class Demand:
    """Decides when a Hessian is worth its price.

    It is due once sweeps have cost as many evaluations as a measurement, fun was a parabola along
    the last steps, and `maxfev` leaves room for some steps with the Hessian.
    """

    def __init__(self) -> None:
        self.spent = 0  # evaluations since the last measurement
        self._patience = 1.0  # evaluations before the next one, in units of its price
        self._parabolas = 0  # parabolic steps in a row

    def due(self, n: int, limit: int | None) -> bool:
        """Whether to measure a Hessian now."""
        price = cost(n)
        room = limit is None or limit >= price + _ROOM * 2 * n
        paid = self.spent >= self._patience * price
        return 1 < n <= MOST and room and paid and self._parabolas >= _STEPS

    def stepped(self, share: float) -> None:
        """Record that a step along pairs gained this share of its slope times its length."""
        self._parabolas = self._parabolas + 1 if abs(share - 0.5) <= _PARABOLA else 0

    def met(self) -> None:
        """Record that a Hessian has been measured."""
        self.spent, self._patience = 0, max(_AGAIN, self._patience)

    def refused(self) -> None:
        """Record that a Hessian was useless; the next one must wait longer."""
        self._patience *= 4

    # --- saving --------------------------------------------------------------------------------

    _FIELDS = ("spent", "_patience", "_parabolas")

    def state_dict(self) -> State:
        """Everything that a resumed run needs."""
        return fields(self, self._FIELDS)

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state."""
        restore(self, state, self._FIELDS)


class Hessian:
    """Measures the matrix row by row; `solve` then applies its inverse.

    A coordinate without room on both sides has no mixed differences, only its curvature in `c`.
    """

    def __init__(self, x: Vector, f: float, up: Vector, rise: Vector, c: Vector) -> None:
        """`up` is the probed value of each coordinate (or x), `rise` the change of f there."""
        self._n = len(x)
        self._x, self._f, self._up, self._rise = x.copy(), f, up.copy(), rise.copy()
        self._matrix: Matrix = np.diag(c)
        self._row = 0  # the next one
        self._free: NDArray[np.bool_] | None = None
        self._inverse: Matrix = np.empty((0, 0))

    @classmethod
    def begun(cls, x: Vector, f: float, stencil: Stencil, seen: Matrix, c: Vector) -> Hessian:
        """Begin after a sweep of `stencil` with the values `seen`."""
        both = np.isfinite(seen).all(axis=1) & stencil.moved.all(axis=1)
        up = np.where(both, stencil.up, x)
        return cls(x, f, up, np.where(both, seen[:, 0] - f, 0.0), c)

    @classmethod
    def empty(cls, n: int) -> Hessian:
        """An empty matrix for `load_state_dict` to fill."""
        return cls(*(np.zeros(n), 0.0), *(np.zeros(n) for _ in range(3)))

    @property
    def done(self) -> bool:
        """Whether all rows have been measured."""
        return self._row >= self._n - 1

    def ask(self) -> Points:
        """The points of a row: one coordinate moves, together with each later one in turn."""
        i = self._row
        moved = self._x.copy()
        moved[i] = self._up[i]
        later = np.arange(i + 1, self._n)
        return Probes(moved, later, self._up[later]).take(range(1, self._n - i))

    def tell(self, values: Vector) -> None:
        """Store the mixed differences of a row: 0 if the value failed or a radius is 0."""
        i = self._row
        h = self._up - self._x
        mixed = values - self._f - self._rise[i] - self._rise[i + 1 :]
        area = h[i] * h[i + 1 :]
        good = np.isfinite(mixed) & (area != 0)
        self._matrix[i, i + 1 :] = np.where(good, mixed, 0.0) / np.where(area != 0, area, 1.0)
        self._matrix[i + 1 :, i] = self._matrix[i, i + 1 :]
        self._row += 1
        if self.done:
            self._make_positive()

    def _make_positive(self) -> None:
        """Replace eigenvalues of the scaled matrix by their absolute values, above rounding."""
        h = np.abs(self._up - self._x)
        bend = np.abs(np.diag(self._matrix))
        error = _RELIABLE * ROUNDING * abs(self._f) / np.where(h > 0, h, np.inf) ** 2
        lost = bend <= _LOST * error  # curvature lost in rounding; so are its mixed differences
        bend = np.maximum(bend, np.where(lost, error, 0.0))
        unit = 1 / np.sqrt(np.maximum(bend, _TINY * bend.max(initial=_TINY)))
        scaled = self._matrix * np.outer(unit, unit)
        scaled[lost], scaled[:, lost] = 0.0, 0.0
        scaled[np.diag_indices(self._n)] = np.where(lost, 1.0, np.diag(scaled))
        if not np.isfinite(scaled).all():
            scaled = np.eye(self._n)
        # A bound on the error of the scaled matrix, from the errors of its entries.
        least = max(float((error * unit**2)[~lost].sum()), 1e-14)
        values, vectors = np.linalg.eigh(scaled)
        sizes = np.maximum(np.abs(values), least)
        self._matrix = (vectors * sizes) @ vectors.T / np.outer(unit, unit)

    def solve(self, q: Vector, free: NDArray[np.bool_]) -> Vector:
        """The inverse times q, restricted to the free coordinates."""
        if self._free is None or not np.array_equal(free, self._free):
            self._free = free.copy()
            self._inverse = np.asarray(np.linalg.inv(self._matrix[np.ix_(free, free)]), np.float64)
        r = np.zeros_like(q)
        r[free] = self._inverse @ q[free]
        return r

    # --- saving --------------------------------------------------------------------------------

    _FIELDS = ("_x", "_f", "_up", "_rise", "_matrix", "_row")

    def state_dict(self) -> State:
        """Everything that a resumed run needs; the inverse follows."""
        return fields(self, self._FIELDS)

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state."""
        restore(self, state, self._FIELDS)
        self._free = None
