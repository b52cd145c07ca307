"""The test of whether a step has probed enough coordinates."""

from __future__ import annotations


def agrees(fresh: float, stale: float, tolerance: float) -> bool:
    """Whether two slopes have the same sign and differ at most by the factor `tolerance`.

    Zero agrees with nothing, not even zero, because a weight without effect reveals nothing about
    the others. NaN agrees with nothing either.

    >>> agrees(1.05, 1.0, 1.1), agrees(1.2, 1.0, 1.1), agrees(-1.0, 1.0, 1.1), agrees(0.0, 0.0, 1.1)
    (True, False, False, False)
    """
    low, high = sorted((abs(fresh), abs(stale)))
    return fresh * stale > 0 and high <= tolerance * low
