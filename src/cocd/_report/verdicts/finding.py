"""A verdict, and the numbers that it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, log
from typing import NamedTuple

from .. import paper, words
from ..series import Series

SEEN, PART, NOT, OPEN = "seen", "in part", "not seen", "open"


class Finding(NamedTuple):
    """What a claim has come to."""

    verdict: str
    here: str


def together(held: Iterable[bool]) -> str:
    """Seen if all hold, in part if some do.

    >>> together([True, True]), together([True, False]), together([False])
    ('seen', 'in part', 'not seen')
    """
    kept = list(held)
    if all(kept):
        return SEEN
    return PART if any(kept) else NOT


def gap(made: words.Comparison) -> float:
    """By how much ours is better: points of accuracy, or the logarithm of the losses' ratio."""
    if made.left is None or made.right is None:
        return -inf if made.left is None else inf
    left, right = made.left.mean, made.right.mean
    if made.one.accuracy or min(left, right) <= 0:
        return left - right if made.one.accuracy else right - left
    return log(right / left)


def as_the_paper(series: Sequence[Series], method: str) -> dict[str, Series]:
    """By task, the runs of table 2 as the paper sets them, with the engine that all others use."""
    return {
        s.task: s
        for s in series
        if (s.plan, s.method) == ("table-main", method)
        and "engine" not in s.settings
        and paper.entry(s.task, s.method, s.settings)
    }
