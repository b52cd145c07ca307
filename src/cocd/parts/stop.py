"""When enough coordinates have been probed."""

from __future__ import annotations


def agrees(fresh: float, stale: float, tolerance: float) -> bool:
    """Whether two slopes have one sign, and neither is larger than `tolerance` times the other.

    Zero agrees with nothing, not even with zero: a weight without effect says nothing about the
    others. Neither does NaN.

    >>> agrees(1.05, 1.0, 1.1), agrees(1.2, 1.0, 1.1), agrees(-1.0, 1.0, 1.1), agrees(0.0, 0.0, 1.1)
    (True, False, False, False)
    """
    low, high = sorted((abs(fresh), abs(stale)))
    return fresh * stale > 0 and high <= tolerance * low
