"""The protocol of methods, and probes that are stored sparsely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...parts.types import State

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

FTOL = 1e-10  # the default of `ftol`


class Box(NamedTuple):
    """Bounds as two vectors, infinite for a missing bound."""

    lower: Vector
    upper: Vector


class Probes:
    """Copies of a point, one per row, that differ in one coordinate; row 0 is the point itself.

    Only the differences are stored: a step of B probes on n coordinates takes O(n + B) memory.
    Reading a row makes its n numbers.

    >>> import numpy as np
    >>> probes = Probes(np.zeros(2), np.array([0, 1]), np.array([0.5, -0.5]))
    >>> np.asarray(probes)
    array([[ 0. ,  0. ],
           [ 0.5,  0. ],
           [ 0. , -0.5]])
    >>> np.asarray(probes.take([2]))
    array([[ 0. , -0.5]])
    >>> probes.holds(np.array([0.5, 0.0])), probes.holds(np.array([0.5, -0.5]))
    (True, False)
    """

    def __init__(self, x: Vector, index: NDArray[np.intp], values: Vector) -> None:
        self.x = x.copy()
        self._index: list[int | None] = [None, *index.tolist()]  # None: nothing differs
        self._values: list[float] = [0.0, *values.tolist()]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.x)

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, row: int) -> Vector:
        point, i = self.x.copy(), self._index[row]
        if i is not None:
            point[i] = self._values[row]
        return point

    def __iter__(self) -> Iterator[Vector]:
        return map(self.__getitem__, range(len(self)))

    def take(self, rows: Sequence[int]) -> Probes:
        """Some of the rows."""
        some = copy(self)
        some._index = [self._index[row] for row in rows]
        some._values = [self._values[row] for row in rows]
        return some

    def holds(self, x: Vector) -> bool:
        """Whether x is one of the rows; makes no row."""
        where = np.flatnonzero(x != self.x)
        differs = None if not len(where) else int(where[0])
        return len(where) <= 1 and any(
            i == differs and (i is None or x[i] == value)
            for i, value in zip(self._index, self._values, strict=True)
        )

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Matrix:
        array = np.tile(self.x, (len(self), 1))
        moved = [(row, i) for row, i in enumerate(self._index) if i is not None]
        if moved:
            rows, index = zip(*moved, strict=True)
            array[rows, index] = np.array(self._values)[list(rows)]
        return array


Points = Matrix | Probes  # (k, n), one point a row


def holds(points: Points, x: Vector) -> bool:
    """Whether x is among the points."""
    return points.holds(x) if isinstance(points, Probes) else bool((points == x).all(axis=1).any())


def some_of(points: Points, rows: Sequence[int]) -> Points:
    """Some of the rows; `Probes` stay sparse."""
    return points.take(rows) if isinstance(points, Probes) else points[list(rows)]


class Settled(NamedTuple):
    """A converged point: its value, and the reason in one sentence."""

    value: float
    why: str


class Rule(Protocol):
    """A method that asks for points and learns their values.

    Points come in phases. `ask` returns the points of the current phase and changes nothing; `tell`
    takes all their values at once and begins the next phase. One step may take several phases. The
    first point of the first phase is x0.
    Everything is float64; points are flat. The constructor takes a flat x0 and, among others,
    ``bounds: Box | None`` and ``rng: numpy.random.Generator``. Only the constructor and `tell` draw
    random numbers.
    """

    @property
    def x(self) -> Vector:
        """The current iterate."""

    @property
    def nit(self) -> int:
        """Completed steps."""

    @property
    def skipped(self) -> int:
        """Estimates not stored because an evaluation failed."""

    @property
    def converged(self) -> str:
        """Why the method has converged, in one sentence, or ""."""

    @property
    def settled(self) -> Settled | None:
        """The last point that passed the convergence test, while the search continues."""

    @property
    def averaged(self) -> tuple[Vector, float] | None:
        """With noise: the point to report, and its mean value."""

    @property
    def final_evaluations(self) -> int:
        """Evaluations to make at the last iterate."""

    def ask(self, limit: int | None) -> Points:
        """The points of the current phase, at most `limit`; none if no phase fits."""

    def tell(self, values: Vector) -> None:
        """Learn the values of exactly these points, NaN where an evaluation failed.

        The first value of the first phase is never NaN. If the method cannot continue it raises
        `NonFiniteLoss`, and the run ends.
        """

    def state_dict(self) -> State:
        """A copy of all that a resumed run needs: numbers, strings, lists, dicts, NumPy arrays."""

    def load_state_dict(self, state: State) -> None: ...
