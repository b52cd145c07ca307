"""The points that are out with the answers so far, how a search can end, and what it saves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..parts.types import State
from .methods.rule import Points, Rule, Vector

VERSION = 3  # of the saved state

RUNNING, CONVERGED, MAXFEV, MAXITER, FAILED, STUCK, INTERRUPTED, STOPPED = -1, 0, 1, 2, 3, 4, 5, 99

_STATUS = (RUNNING, CONVERGED, MAXFEV, MAXITER, FAILED, STUCK, INTERRUPTED, STOPPED)


class Phase(NamedTuple):
    """Points of which some values are known; NaN for those that failed and that are not known."""

    points: Points
    limit: int | None  # what the rule was asked with, to ask again when a state is loaded
    last: bool  # the final iterate alone: nothing of it goes to the rule
    opening: bool  # the first one, which begins with x0
    values: Vector
    told: NDArray[np.bool_]

    @classmethod
    def of(cls, points: Points, limit: int | None, last: bool, opening: bool) -> Phase:
        """With no answers."""
        k = len(points)
        return cls(points, limit, last, opening, np.full(k, np.nan), np.zeros(k, dtype=np.bool_))

    def rows(self, index: Any) -> NDArray[np.intp]:
        """The rows that an answer is about: all, or those that `index` names; none twice."""
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
        """With some more answers."""
        values, told = self.values.copy(), self.told.copy()
        values[rows], told[rows] = new, True
        return self._replace(values=values, told=told)

    def state_dict(self) -> State:
        """The answers; the points come from the rule again."""
        return {
            "limit": self.limit,
            "last": self.last,
            "opening": self.opening,
            "values": self.values.copy(),
            "told": self.told.copy(),
        }

    @classmethod
    def restored(cls, state: State, rule: Rule) -> Phase:
        """The phase that was saved, of a rule that has been restored."""
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


class Books(NamedTuple):
    """What a search counts and knows beside its rule."""

    best: Vector
    fun: float
    first: float
    counts: tuple[int, int, int]
    verdict: tuple[int, str]
    end: tuple[int, str]
    final: tuple[Vector, float] | None

    @classmethod
    def read(cls, state: State, n: int) -> Books:
        """From a saved state, with each value looked at."""

        def vector(value: Any) -> Vector:
            found = np.array(value, dtype=np.float64)
            if found.shape != (n,) or not np.isfinite(found).all():
                raise ValueError("a point that is not finite or of another shape")
            return found

        def verdict(pair: Any) -> tuple[int, str]:
            status, message = pair
            if status not in _STATUS or not isinstance(message, str):
                raise ValueError(f"status is {status!r}")
            return int(status), message

        nfev, nfailed, streak = counts = tuple(state["counts"])
        if not all(isinstance(k, int) for k in counts) or not 0 <= max(streak, nfailed) <= nfev:
            raise ValueError(f"counts are {counts}")
        final = state["final"]
        return cls(
            vector(state["best"]),
            float(state["fun"]),
            float(state["first"]),
            (nfev, nfailed, streak),
            verdict(state["verdict"]),
            verdict(state["end"]),
            None if final is None else (vector(final[0]), float(final[1])),
        )


def refuse_state(state: Any, settings: State) -> None:
    """Say in one sentence why a saved state does not fit, if it does not."""
    if not isinstance(state, dict) or "version" not in state:
        raise ValueError("state is not that of a cocd.AskTell")
    if state["version"] != VERSION:
        raise ValueError(f"state has version {state['version']!r}, this release reads {VERSION}")
    there = state.get("settings") or {}
    for name, here in settings.items():
        if there.get(name) != here:
            raise ValueError(
                f"state belongs to another problem: it has {name}={there.get(name)!r}, this one "
                f"has {name}={here!r}"
            )
