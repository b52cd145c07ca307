"""`Phase`: the points under evaluation, with the values known so far."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..parts.types import State
from .methods.rule import Points, Rule, Vector


class Phase(NamedTuple):
    """Points and their values: NaN where an evaluation failed or the value is not known yet."""

    points: Points
    limit: int | None  # the argument of `Rule.ask`, to ask again when a state is loaded
    last: bool  # only the final iterate; the rule does not learn its values
    opening: bool  # the first phase, which begins with x0
    values: Vector
    told: NDArray[np.bool_]

    @classmethod
    def of(cls, points: Points, limit: int | None, last: bool, opening: bool) -> Phase:
        """A phase without values."""
        k = len(points)
        return cls(points, limit, last, opening, np.full(k, np.nan), np.zeros(k, dtype=np.bool_))

    def rows(self, index: ArrayLike | None) -> NDArray[np.intp]:
        """The rows that values belong to: all, or those in `index`, each told only once."""
        k = len(self.told)
        if index is None:
            if self.told.any():
                raise ValueError(
                    f"index is needed: {self.told.sum()} of {k} values have been told already; "
                    "`pending` names the rows that are left"
                )
            return np.arange(k)
        rows = np.atleast_1d(np.asarray(index))
        whole = rows.ndim == 1 and (rows.dtype.kind in "iu" or not rows.size)
        if not whole or (rows.size and not (rows.min() >= 0 and rows.max() < k)):
            raise ValueError(f"index must hold row numbers from 0 to {k - 1}, got {index!r}")
        rows = rows.astype(np.intp)
        if len(np.unique(rows)) < len(rows) or self.told[rows].any():
            raise ValueError(f"index names a row twice, or one that has been told: {index!r}")
        return rows

    def answered(self, rows: NDArray[np.intp], new: Vector) -> Phase:
        """A copy of this phase with more values."""
        values, told = self.values.copy(), self.told.copy()
        values[rows], told[rows] = new, True
        return self._replace(values=values, told=told)

    def state_dict(self) -> State:
        """The values; a restored rule makes the points again."""
        return {
            "limit": self.limit,
            "last": self.last,
            "opening": self.opening,
            "values": self.values.copy(),
            "told": self.told.copy(),
        }

    @classmethod
    def restored(cls, state: State, rule: Rule) -> Phase:
        """The saved phase; `rule` must have been restored before."""
        last, limit = bool(state["last"]), state["limit"]
        if limit is not None and not (isinstance(limit, int) and limit >= 0):
            raise ValueError(f"limit is {limit!r}")
        count = len(state["values"]) if last else 0
        points = np.repeat(rule.x[None], count, axis=0) if last else rule.ask(limit)
        values = np.array(state["values"], dtype=np.float64)
        told = np.array(state["told"], dtype=np.bool_)
        if values.shape != (len(points),) or told.shape != (len(points),):
            raise ValueError(f"{len(values)} answers for {len(points)} points")
        if told.all():
            raise ValueError("a phase with all its answers that is not over")
        if np.isfinite(values[~told]).any() or np.isinf(values).any():
            raise ValueError("values that have not been told, or are infinite")
        return cls(points, limit, last, bool(state["opening"]), values, told)
