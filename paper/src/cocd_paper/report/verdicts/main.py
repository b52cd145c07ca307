"""Claims about the main table."""

from __future__ import annotations

from collections.abc import Sequence

from .. import paper, text, words
from ..series import Series
from .finding import (
    NOT,
    OPEN,
    PART,
    SEEN,
    Finding,
    against,
    as_the_paper,
    ended,
    gap,
    labelled,
    pairs,
    shown,
    together,
    whole,
    wins,
)


def ordering(series: Sequence[Series]) -> Finding | None:
    """CoCD against BCCD, both as the paper sets them."""
    found = pairs(as_the_paper(series, "cocd"), as_the_paper(series, "bccd"))
    if not found:
        return None
    return Finding(whole(together(map(wins, found)), found, _TASKS), against(found))


_TASKS = 3  # of table 2


def reaches(series: Sequence[Series]) -> Finding | None:
    """CoCD's three numbers."""
    return _numbers(series, "cocd", at_least=True)


def bccd(series: Sequence[Series]) -> Finding | None:
    """BCCD's."""
    return _numbers(series, "bccd")


def sgd(series: Sequence[Series]) -> Finding | None:
    """SGD's."""
    return _numbers(series, "sgd")


def _numbers(series: Sequence[Series], method: str, *, at_least: bool = False) -> Finding | None:
    held, parts = [], []
    for s in as_the_paper(series, method).values():
        entry, place = paper.entry(s.task, s.method, s.settings), words.beside_paper(s)
        if entry is None or not (ended(s) and (s.diverged or s.reached >= paper.EPOCHS)):
            continue
        there = place is not None and at_least and place.word != "worse"
        held.append(there or (place is not None and _near(place, s)))
        value = text.spread(place.ours, accuracy=s.accuracy) if place else shown(s)
        theirs = text.metric(entry.metric, accuracy=s.accuracy)
        parts.append(f"{text.task(s.task)} {value}, paper {theirs}")
    return Finding(whole(together(held), held, _TASKS), "; ".join(parts)) if held else None


def _near(place: words.Beside, series: Series) -> bool:
    distance = abs(place.ours.mean - place.theirs)
    return distance <= (0.02 if series.accuracy else 0.1 * place.theirs)


def guessing(series: Sequence[Series]) -> Finding | None:
    """BCCD on CIFAR-10."""
    s = as_the_paper(series, "bccd").get("cifar10")
    if s is None or s.final is None or not s.reached:
        return None
    here = f"{text.spread(s.final, accuracy=True)} {words.after(s.reached, s.epochs)}"
    if abs(s.final.mean - 0.1) >= 0.02:
        return Finding(NOT, here)
    return Finding(SEEN if s.reached >= paper.EPOCHS else OPEN, here)


def reuse(series: Sequence[Series]) -> Finding | None:
    """CoCD against BCCD, both tuned: what is left of the gap."""
    tuned = pairs(labelled(series, "CoCD (tuned)"), labelled(series, "BCCD (tuned)"))
    first = pairs(as_the_paper(series, "cocd"), as_the_paper(series, "bccd"))
    before = {c.one.task: gap(c) for c in first if wins(c)}
    found = [c for c in tuned if c.one.task in before]
    if not found:
        return None
    held = [gap(c) >= 0.5 * before[c.one.task] for c in found]
    some = any(held) or any(map(wins, found))
    return Finding(SEEN if all(held) else PART if some else NOT, against(found))


def no_extra_time(series: Sequence[Series]) -> Finding | None:
    """Seconds of an epoch over BCCD's, wherever both ran at the same budget and engine."""
    ratios: list[float] = []
    parts = []
    for name, ours, theirs in (
        ("paper's settings", as_the_paper(series, "cocd"), as_the_paper(series, "bccd")),
        ("tuned", labelled(series, "CoCD (tuned)"), labelled(series, "BCCD (tuned)")),
    ):
        seconds = [
            {t: s.seconds_per_epoch.mean for t, s in found.items() if s.seconds_per_epoch}
            for found in (ours, theirs)
        ]
        own = {t: seconds[0][t] / seconds[1][t] for t in seconds[0] if seconds[1].get(t)}
        ratios += own.values()
        if own:
            each = ", ".join(f"{text.task(task)} {ratio:.2f}" for task, ratio in own.items())
            parts.append(f"{name}: {each}")
    if not ratios:
        return None
    within = [r <= 1.1 for r in ratios]
    verdict = SEEN if all(within) else NOT if not any(within) else OPEN
    return Finding(verdict, "; ".join(parts))


_RANDOM = ("Random coordinates (tuned)", "SPSA (tuned)", "ZO-SGD (tuned)")


def better_than_random(series: Sequence[Series]) -> Finding | None:
    """CoCD at its best against each method that draws at random, tuned as well."""
    held: list[bool] = []
    parts = []
    for label in _RANDOM:
        rivals = labelled(series, label)
        found = []
        for task, rival in rivals.items():
            ours = [labelled(series, own).get(task) for own in _OURS]
            made = [words.compare(s, rival) for s in ours if s is not None]
            best = max((c for c in made if c is not None), key=gap, default=None)
            if best is not None:
                found.append(best)
        held += map(wins, found)
        if found:
            parts.append(f"{label.partition(' (')[0]}: {against(found)}")
    return Finding(together(held), ". ".join(parts)) if held else None


_OURS = ("CoCD (paper's settings)", "CoCD (tuned)", "CoCD (tuned, other B)")
