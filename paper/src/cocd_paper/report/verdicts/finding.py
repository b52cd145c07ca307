"""A verdict, the numbers that it rests on, and which rows may speak."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from math import inf, log
from typing import NamedTuple

from .. import paper, text, words
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


def end(series: Series) -> float:
    """Where it ended; a run that diverged, in one seed or all, ended worse than any that did not.

    Of a run that is under way this is where it is: see `ended`.
    """
    if series.diverged or series.final is None:
        return -inf if series.accuracy else inf
    return series.final.mean


def ended(series: Series) -> bool:
    """Whether nothing more is to come of it, and it has come to something."""
    return series.status != "unfinished" and bool(series.reached or series.diverged)


def shown(series: Series) -> str:
    """Where it ended, in words."""
    if series.diverged:
        return words.how_many(series)
    final = series.final
    return "no value" if final is None else text.metric(final.mean, accuracy=series.accuracy)


def furthest(series: Iterable[Series]) -> Series | None:
    """Of runs of one setting the one that was to go, or has gone, furthest."""
    return max(series, key=lambda s: (s.epochs if ended(s) else s.reached, s.epochs), default=None)


def by_task(series: Iterable[Series]) -> dict[str, Series]:
    """Of each task the one that has come furthest."""
    own = list(series)
    found = {task: furthest(s for s in own if s.task == task) for task in {s.task for s in own}}
    ranked = sorted(found, key=lambda task: next(i for i, s in enumerate(own) if s.task == task))
    return {task: s for task in ranked if (s := found[task]) is not None}


def as_the_paper(series: Sequence[Series], method: str) -> dict[str, Series]:
    """By task, the runs of table 2 as the paper sets them, with the engine that all others use."""
    return by_task(
        s
        for s in series
        if (s.plan, s.method) == ("table-main", method)
        and "engine" not in s.settings
        and paper.entry(s.task, s.method, s.settings)
    )


def labelled(series: Sequence[Series], label: str) -> dict[str, Series]:
    """By task, the runs of the main table of that label."""
    return by_task(s for s in series if (s.plan, s.label) == ("table-main", label))


def pairs(ours: dict[str, Series], theirs: dict[str, Series]) -> list[words.Comparison]:
    """Both on each task that both have."""
    made = [words.compare(one, theirs[task]) for task, one in ours.items() if task in theirs]
    return [c for c in made if c is not None]


def wins(made: words.Comparison) -> bool:
    """Whether ours is better; what diverged, in one seed or all, is not."""
    if made.one.diverged or made.other.diverged:
        return not made.one.diverged
    return made.verdict == "better"


def against(made: Sequence[words.Comparison]) -> str:
    """All of them, in words."""
    parts = []
    for c in made:
        left, right = (
            words.how_many(s)
            if s.diverged or v is None
            else text.metric(v.mean, accuracy=s.accuracy)
            for s, v in ((c.one, c.left), (c.other, c.right))
        )
        early = f" {words.after(c.epoch, c.one.epochs)}" if c.epoch < c.one.epochs else ""
        parts.append(f"{text.task(c.one.task)} {left} against {right}{early}")
    return "; ".join(parts)


def gap(made: words.Comparison) -> float:
    """By how much ours is better: the logarithm of the ratio of losses, or of errors."""
    if made.one.diverged or made.left is None:
        return -inf
    if made.other.diverged or made.right is None:
        return inf
    left, right = made.left.mean, made.right.mean
    if made.one.accuracy:
        left, right = 1 - left, 1 - right
    return log(right / left) if min(left, right) > 0 else right - left


def whole(verdict: str, found: Sized, wanted: int) -> str:
    """What is seen of some things that the paper speaks of is seen in part.

    >>> whole("seen", ["sarcos"], 3), whole("not seen", ["sarcos"], 3)
    ('in part', 'not seen')
    """
    return PART if verdict == SEEN and len(found) < wanted else verdict
