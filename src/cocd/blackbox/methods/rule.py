"""What decides where to evaluate next: its protocol, and points made only when they are read."""

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
    """Bounds as two vectors, infinite where there is none."""

    lower: Vector
    upper: Vector


class Probes:
    """Copies of a point in which one coordinate differs, one row each; row 0 is the point itself.

    Only what differs is stored: a step of B probes on n coordinates costs O(n + B) memory, and
    each row n when it is read.

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
        """Whether one of the rows is x, without making them."""
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
    """Some of the rows, as lazily as they came."""
    return points.take(rows) if isinstance(points, Probes) else points[list(rows)]


class Settled(NamedTuple):
    """A point where nothing near is lower: its value and what was found there, in one sentence."""

    value: float
    why: str


class Rule(Protocol):
    """A method, turned inside out: it says which points it needs and learns their values.

    Points come in phases. `ask` gives the points of the current one and changes nothing; `tell`
    takes all their values at once and begins the next. One step may take several phases. The
    first point of the first phase is x0.
    Everything is float64; points are flat. A rule is built from a flat x0 and, among others,
    ``bounds: Box | None`` and ``rng: numpy.random.Generator``; what it draws from the latter
    it draws in its constructor or in `tell`.
    """

    @property
    def x(self) -> Vector:
        """The current iterate."""

    @property
    def nit(self) -> int:
        """Whole steps made."""

    @property
    def skipped(self) -> int:
        """Estimates not stored because an evaluation failed."""

    @property
    def converged(self) -> str:
        """Why there is nothing more to gain, in one sentence, or ""."""

    @property
    def settled(self) -> Settled | None:
        """The last point where a test held, while the search looks further."""

    @property
    def averaged(self) -> tuple[Vector, float] | None:
        """With noise: the point to report, and its mean value."""

    @property
    def final_evaluations(self) -> int:
        """Evaluations of the last iterate that tell what it is worth."""

    def ask(self, limit: int | None) -> Points:
        """The points of the current phase, at most `limit` of them.

        With no points at all if not even the smallest phase fits.
        """

    def tell(self, values: Vector) -> None:
        """The values of exactly these points, NaN where an evaluation failed.

        The first value of the first phase is never NaN. Raises `NonFiniteLoss` only where the
        rule cannot go on; the run ends there.
        """

    def state_dict(self) -> State:
        """All that a resumed run needs: numbers, strings, lists, dicts, NumPy arrays; copied."""

    def load_state_dict(self, state: State) -> None: ...
