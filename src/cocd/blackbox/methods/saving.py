"""Save fields of an object as data, and restore them with checks of type, shape and value."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

import numpy as np

from ...auto.line_search import Search
from ...parts.types import State


def fields(owner: object, names: Iterable[str]) -> State:
    """The fields `names`, arrays copied."""
    found = {name: getattr(owner, name) for name in names}
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in found.items()}


def restore(owner: object, state: State, names: Iterable[str]) -> None:
    """Set the fields to saved values; types and shapes must match and arrays must be finite."""
    for name in names:
        old, new = getattr(owner, name), state[name]
        if isinstance(old, np.ndarray):
            new = np.array(new, dtype=old.dtype)
            fits = new.shape == old.shape and bool(np.isfinite(new).all())
        elif isinstance(old, float):
            fits = isinstance(new, (int, float)) and not isinstance(new, bool) and not isnan(new)
            new = float(new) if fits else new
        elif isinstance(old, int) and not isinstance(old, bool):
            fits = isinstance(new, int) and not isinstance(new, bool) and new >= 0
        else:
            fits = isinstance(new, type(old))
        if not fits:
            raise ValueError(f"{name.lstrip('_')} is {new!r}"[:120])
        setattr(owner, name, new)


def numbers(values: Iterable[float]) -> list[float]:
    """A list of numbers, none of them NaN."""
    found = [float(value) for value in values]
    if any(isnan(value) for value in found):
        raise ValueError("NaN among numbers")
    return found


def search_state(search: Search | None) -> State | None:
    """A line search as data."""
    if search is None:
        return None
    return {
        **fields(search, ("f0", "slope", "length", "rounding", "rounds")),
        "lengths": list(search.lengths),
        "seen": [list(pair) for pair in search.seen],
    }


def search_of(state: State | None) -> Search | None:
    """A line search that was saved."""
    if state is None:
        return None
    search = Search(0.0, 0.0, 0.0)
    restore(search, state, ("f0", "slope", "length", "rounding", "rounds"))
    search.lengths = numbers(state["lengths"])
    search.seen = [(s, v) for s, v in map(numbers, state["seen"])]
    if not search.lengths or search.rounds > 1:
        raise ValueError("a search without an end")
    return search
