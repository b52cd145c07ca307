"""What pairs of stale and fresh estimates have in common, in a few numbers that can be merged.

A row holds the moments of some pairs; rows of different pairs merge into the row of all of them
(Chan, Golub and LeVeque's update, which does not cancel where means are large).
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..parts.types import State
from ..theory import smoothness_from_below

Array = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., object])

# The columns: number of pairs; means; centred sums of squares and products; sum of squared
# changes; sum and maximum of the ages; largest change over distance; estimates without a pair.
PAIRS, STALE, FRESH, SS, FF, SF, CHANGE, AGE, OLDEST, RATIO, FIRST = range(11)
COLUMNS = 11
_ROUNDING = 1e-13  # of a standard deviation beside its mean: below it there is none to speak of


def quietly(function: F) -> F:
    """Without NumPy's warnings: a run that diverges is watched, too."""
    return np.errstate(over="ignore", invalid="ignore")(function)  # one each: they may nest


@quietly
def row_of(stale: Array, fresh: Array, age: Array, distance: Array, first: int) -> Array:
    """The moments of some pairs, and the number of fresh estimates that had no stale one."""
    row = np.zeros(COLUMNS)
    row[FIRST] = first
    if len(stale):
        row[PAIRS], row[STALE], row[FRESH] = len(stale), stale.mean(), fresh.mean()
        s, f, change = stale - row[STALE], fresh - row[FRESH], fresh - stale
        row[SS], row[FF], row[SF], row[CHANGE] = s @ s, f @ f, s @ f, change @ change
        row[AGE], row[OLDEST] = age.sum(), age.max()
        near = np.isfinite(distance)
        row[RATIO] = smoothness_from_below(stale[near], fresh[near], distance[near])
    return row


@quietly
def merge(a: Array, b: Array) -> Array:
    """The row of the pairs of both; or tables of such rows."""
    merged = a + b  # the sums; what is not a sum follows
    share = b[..., PAIRS] / np.maximum(merged[..., PAIRS], 1)
    s, f = b[..., STALE] - a[..., STALE], b[..., FRESH] - a[..., FRESH]
    merged[..., STALE] = a[..., STALE] + share * s
    merged[..., FRESH] = a[..., FRESH] + share * f
    between = a[..., PAIRS] * share
    merged[..., SS] += between * s * s
    merged[..., FF] += between * f * f
    merged[..., SF] += between * s * f
    for column in (OLDEST, RATIO):
        merged[..., column] = np.maximum(a[..., column], b[..., column])
    return merged


def total(table: Array) -> Array:
    """All rows of a table merged."""
    row = np.zeros(COLUMNS)
    for other in table:
        row = merge(row, other)
    return row


@quietly
def report(row: Array) -> State:
    """A row in plain numbers, None where there is nothing to say.

    Correlation is Pearson's; the regression goes through the origin, as the decay does.
    """
    pairs = row[PAIRS]
    stale, fresh = (row[c] + pairs * row[m] ** 2 for c, m in ((SS, STALE), (FF, FRESH)))
    product = row[SF] + pairs * row[STALE] * row[FRESH]
    spread = np.sqrt(row[SS]) * np.sqrt(row[FF])
    varied = row[SS] > _ROUNDING**2 * stale and row[FF] > _ROUNDING**2 * fresh
    correlation = quotient(row[SF], spread) if varied else None
    return {
        "correlation": None if correlation is None else max(-1.0, min(1.0, correlation)),
        "relative_change": quotient(np.sqrt(row[CHANGE]), np.sqrt(stale)),
        "regression": quotient(product, stale),
        "age_mean": quotient(row[AGE], pairs),
        "age_max": int(row[OLDEST]),
        "smoothness": quotient(row[RATIO], 1.0),
        "pairs": int(pairs),
        "first": int(row[FIRST]),
    }


def quotient(above: float, below: float) -> float | None:
    """A plain number, or None where there is none."""
    if not below:
        return None
    value = float(above) / float(below)
    return value if isfinite(value) else None
