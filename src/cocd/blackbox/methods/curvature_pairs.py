"""Curvature between coordinates: pairs of a step and the change of all slopes along it.

If all n slopes are known at both ends of a step, the pair costs no evaluation. The two loops of
L-BFGS (Nocedal and Wright, algorithm 7.4) turn the last pairs into a direction. The curvature along
the coordinates scales the subspace that no pair covers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...parts.types import State
from .rule import Vector

MOST = 6  # remembered pairs: older ones mislead if curvature changes
_ROUND = 1e-10  # of |s| |y|: a product below it is rounding, or a direction without curvature


class CurvaturePairs:
    """The last pairs, the newest at the end.

    >>> pairs = CurvaturePairs(2)
    >>> hessian = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> for s in np.eye(2):
    ...     pairs.add(s, hessian @ s)
    >>> pairs.direction(hessian @ np.array([0.0, 1.0]), np.array([0.5, 0.3])).round(12) + 0.0
    array([ 0., -1.])
    """

    def __init__(self, n: int) -> None:
        self._s: NDArray[np.float64] = np.empty((0, n))
        self._y: NDArray[np.float64] = np.empty((0, n))

    def __len__(self) -> int:
        return len(self._s)

    def add(self, s: Vector, y: Vector) -> None:
        """Add a step and the change of the slopes; ignored if the curvature is not positive."""
        if s @ y > _ROUND * np.sqrt((s @ s) * (y @ y)):
            self._s = np.vstack([self._s[1 - MOST :], s])
            self._y = np.vstack([self._y[1 - MOST :], y])

    def clear(self) -> None:
        """Forget everything."""
        self._s, self._y = self._s[:0], self._y[:0]

    def direction(self, g: Vector, inverse: Vector | Callable[[Vector], Vector]) -> Vector:
        """Minus the inverse Hessian times g; coordinates with g = 0 (at a bound) do not move.

        `inverse` is the initial inverse Hessian: one number per coordinate, or a function.
        """
        free = g != 0
        q, used = g.copy(), []
        for s, y in zip(self._s[::-1], self._y[::-1], strict=True):
            s, y = s * free, y * free
            product = float(s @ y)
            if product <= _ROUND * float(np.sqrt((s @ s) * (y @ y))):
                continue
            a = float(s @ q) / product
            q -= a * y
            used.append((a, s, y, product))
        r = inverse(q) if callable(inverse) else inverse * q
        for a, s, y, product in reversed(used):
            r += (a - float(y @ r) / product) * s
        return np.asarray(-r * free)

    def state_dict(self) -> State:
        """Both halves."""
        return {"s": self._s.copy(), "y": self._y.copy()}

    def load_state_dict(self, state: State) -> None:
        """As they were saved."""
        s, y = (np.array(state[name], dtype=np.float64) for name in ("s", "y"))
        shape = (len(s), self._s.shape[1])
        if s.shape != shape or y.shape != shape or len(s) > MOST:
            raise ValueError(f"pairs of shape {s.shape} and {y.shape}")
        if not (np.isfinite(s).all() and np.isfinite(y).all()):
            raise ValueError("pairs that are not finite")
        self._s, self._y = s, y
