"""Claims about the main table."""

from __future__ import annotations

from collections.abc import Sequence

from .. import text, words
from ..series import Series
from .finding import NOT, PART, SEEN, Finding, as_the_paper, gap, together


def _tuned(series: Sequence[Series], method: str) -> dict[str, Series]:
    """By task, the runs at the same budget whose settings were chosen on validation rows."""
    named = {"cocd": "CoCD (tuned)", "bccd": "BCCD (tuned)"}[method]
    return {s.task: s for s in series if (s.plan, s.label) == ("table-main", named)}


def _pairs(ours: dict[str, Series], theirs: dict[str, Series]) -> list[words.Comparison]:
    made = [words.compare(one, theirs[task]) for task, one in ours.items() if task in theirs]
    return [c for c in made if c is not None]


def _against(pairs: Sequence[words.Comparison]) -> str:
    parts = []
    for c in pairs:
        left, right = (
            "diverged" if v is None else text.metric(v.mean, accuracy=c.one.accuracy)
            for v in (c.left, c.right)
        )
        early = f" {words.after(c.epoch, c.one.epochs)}" if c.epoch < c.one.epochs else ""
        parts.append(f"{text.task(c.one.task)} {left} against {right}{early}")
    return "; ".join(parts)


def ordering(series: Sequence[Series]) -> Finding | None:
    """Better on all tasks."""
    pairs = _pairs(as_the_paper(series, "cocd"), as_the_paper(series, "bccd"))
    return (
        Finding(together(c.verdict == "better" for c in pairs), _against(pairs)) if pairs else None
    )


def numbers(series: Sequence[Series]) -> Finding | None:
    """At the paper's number or better, or not to be told apart from it, on all tasks."""
    found = [s for s in as_the_paper(series, "cocd").values() if s.reached]
    placed = [(s, place) for s in found if (place := words.beside_paper(s)) is not None]
    if not placed:
        return None
    here = "; ".join(
        f"{text.task(s.task)} {text.spread(place.ours, accuracy=s.accuracy)}, paper "
        f"{text.metric(place.theirs, accuracy=s.accuracy)}"
        for s, place in placed
    )
    return Finding(together(place.word != "worse" for _, place in placed), here)


def memory_is_why(series: Sequence[Series]) -> Finding | None:
    """Seen where half of the gap or more is left when both are tuned."""
    tuned = _pairs(_tuned(series, "cocd"), _tuned(series, "bccd"))
    whole = _pairs(as_the_paper(series, "cocd"), as_the_paper(series, "bccd"))
    before = {c.one.task: gap(c) for c in whole}
    found = [c for c in tuned if c.one.task in before]
    if not found:
        return None
    held = [gap(c) >= 0.5 * before[c.one.task] for c in found]
    ahead = all(c.verdict == "better" for c in found)
    verdict = together(held) if any(held) or not ahead else PART
    return Finding(verdict, f"each with settings of its own: {_against(found)}")


def no_extra_time(series: Sequence[Series]) -> Finding | None:
    """At most a tenth more time, of runs of the same engine and budget."""
    ours, theirs = (
        {t: s.seconds_per_epoch.mean for t, s in _tuned(series, m).items() if s.seconds_per_epoch}
        for m in ("cocd", "bccd")
    )
    found = {task: ours[task] / theirs[task] for task in ours if theirs.get(task)}
    if not found:
        return None
    here = ", ".join(f"{text.task(task)} {ratio:.2f}" for task, ratio in found.items())
    return Finding(
        together(r <= 1.1 for r in found.values()), f"times BCCD's seconds an epoch: {here}"
    )


def guessing(series: Sequence[Series]) -> Finding | None:
    """Seen if it ends within two points of chance."""
    s = as_the_paper(series, "bccd").get("cifar10")
    if s is None or s.final is None or not s.reached:
        return None
    shown = text.spread(s.final, accuracy=True)
    verdict = SEEN if abs(s.final.mean - 0.1) < 0.02 else NOT
    return Finding(verdict, f"{shown} {words.after(s.reached, s.epochs)}")
