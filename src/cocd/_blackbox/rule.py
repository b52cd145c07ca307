"""What decides where to evaluate next: the protocol, and points that are made when they are read."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

FTOL = 1e-10  # the default of `ftol`


class Box(NamedTuple):
    """Bounds as two vectors, infinite where there is none."""

    lower: Vector
    upper: Vector


class Probes:
    """A point and copies of it in which one coordinate differs, one row each.

    Row 0 is the point. Of the others only what differs is stored: a step of B probes on n
    coordinates costs O(n + B) memory, and each row n when it is read.

    >>> import numpy as np
    >>> np.asarray(Probes(np.zeros(2), np.array([0, 1]), np.array([0.5, -0.5])))
    array([[ 0. ,  0. ],
           [ 0.5,  0. ],
           [ 0. , -0.5]])
    """

    def __init__(self, x: Vector, index: NDArray[np.intp], values: Vector) -> None:
        self.x = x.copy()
        self._index: list[int] = index.tolist()
        self._values: list[float] = values.tolist()

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.x)

    def __len__(self) -> int:
        return len(self._index) + 1

    def __getitem__(self, row: int) -> Vector:
        if not 0 <= row < len(self):
            raise IndexError(row)
        point = self.x.copy()
        if row:
            point[self._index[row - 1]] = self._values[row - 1]
        return point

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Matrix:
        rows = np.tile(self.x, (len(self), 1))
        rows[np.arange(1, len(self)), self._index] = self._values
        return rows


Points = Matrix | Probes  # (k, n), one point a row


class Rule(Protocol):
    """A method, turned inside out: it says which points it needs and learns their values.

    Points come in phases. `ask` gives the points of the current one and changes nothing; `tell`
    takes all their values at once and begins the next. One step may take several phases.
    Everything is float64; points are flat. A rule is built from a flat x0 and, among others,
    ``bounds: Box | None`` and ``rng: numpy.random.Generator``; what it draws from the latter
    it draws in its constructor or in `tell`.
    """

    x: Vector  # the current iterate
    nit: int  # whole steps made
    skipped: int  # estimates not stored because an evaluation failed
    converged: str  # why there is nothing more to gain, in one sentence, or ""

    def ask(self, limit: int | None) -> Points:
        """The points of the current phase, at most `limit` of them.

        With no points at all if not even the smallest phase fits.
        """

    def tell(self, values: Vector) -> None:
        """The values of exactly these points, NaN where an evaluation failed.

        Raises `NonFiniteLoss`, with nothing changed, only where the rule cannot go on.
        """

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs: numbers, strings, lists, dicts, NumPy arrays; copied."""

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
