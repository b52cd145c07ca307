"""The counts and results that a search keeps outside its rule, and checks of saved states."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..parts.types import State
from .methods.rule import Vector

VERSION = 5  # of the saved state

RUNNING, CONVERGED, MAXFEV, MAXITER, FAILED, STUCK, INTERRUPTED, STOPPED = -1, 0, 1, 2, 3, 4, 5, 99

_STATUS = (RUNNING, CONVERGED, MAXFEV, MAXITER, FAILED, STUCK, INTERRUPTED, STOPPED)


class Progress(NamedTuple):
    """The counts and results that a search keeps outside its rule."""

    best: Vector
    fun: float
    first: float
    counts: tuple[int, int, int]
    verdict: tuple[int, str]
    end: tuple[int, str]
    final: tuple[Vector, float] | None

    @classmethod
    def read(cls, state: State, n: int) -> Progress:
        """Read a saved state and check each value."""

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
    """Raise ValueError if a saved state does not fit these settings."""
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
