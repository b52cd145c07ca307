"""Claims about random directions, a larger network, the theorem and memory."""

from __future__ import annotations

from collections.abc import Sequence

from .. import claims, errors, paper, text, words
from ..series import Series
from .finding import NOT, OPEN, PART, SEEN, Finding, gap, together


def _directions(series: Sequence[Series], task: str) -> tuple[Series, list[Series]] | None:
    own = [s for s in series if (s.plan, s.task) == ("figure-random", task)]
    base = [s for s in own if s.method == "cocd" and paper.entry(task, "cocd", s.settings)]
    others = [s for s in own if s.method in ("spsa", "zosgd") and s.status != "unfinished"]
    return (base[0], others) if base and others and base[0].reached else None


def _listed(one: Series, others: Sequence[Series]) -> str:
    parts = ", ".join(f"{s.label} {_ended(s)}" for s in (one, *others))
    return f"{parts} {words.after(one.reached, one.epochs)}"


def _ended(series: Series) -> str:
    final = None if series.diverged else series.final
    return "diverged" if final is None else text.metric(final.mean, accuracy=series.accuracy)


def diverge(series: Sequence[Series]) -> Finding | None:
    """With CoCD's rate; in part if they end a quarter above the lowest that they had reached."""
    rate = paper.settings("sarcos", "cocd")["lr"]
    longest: dict[str, Series] = {}
    for s in series:
        random = s.plan in ("figure-random", "table-main") and s.method in ("spsa", "zosgd")
        if random and (s.task, s.settings.get("lr"), s.status) == ("sarcos", rate, "done"):
            kept = longest.setdefault(s.method, s)
            longest[s.method] = max(kept, s, key=lambda one: one.epochs)
        elif random and s.task == "sarcos" and s.diverged:
            longest[s.method] = s
    if not longest:
        return None
    up, parts = [], []
    for s in longest.values():
        name = s.label.partition(" (")[0]
        if s.diverged or s.final is None:
            parts.append(f"{name} {words.how_many(s)}")
            continue
        lowest = min(point.y.mean for point in s.curve("metric"))
        up.append(s.final.mean > 1.25 * lowest)
        parts.append(
            f"{name} {text.spread(s.final)} {words.after(s.reached, s.epochs)}, lowest on the way "
            f"{text.number(lowest)}"
        )
    gone = [bool(s.diverged) for s in longest.values()]
    return Finding(SEEN if all(gone) else PART if any(gone) or any(up) else NOT, "; ".join(parts))


def match(series: Sequence[Series]) -> Finding | None:
    """Each at its best within two points of CoCD."""
    found = _directions(series, "mnist")
    if found is None:
        return None
    base, others = found
    best = {}
    for method in dict.fromkeys(s.method for s in others):
        made = [(c, s) for s in others if s.method == method and (c := words.compare(base, s))]
        if made:
            best[method] = min(made, key=lambda pair: gap(pair[0]))
    if not best:
        return None
    held = (c.right is not None and abs(gap(c)) <= 0.02 for c, _ in best.values())
    return Finding(together(held), _listed(base, [s for _, s in best.values()]))


def twice_as_fast(series: Sequence[Series]) -> Finding | None:
    """CoCD's epoch takes at most as much of ZO-SGD's as in the paper."""
    found = _directions(series, "sarcos")
    theirs = next((s for s in found[1] if s.method == "zosgd"), None) if found else None
    if found is None or theirs is None:
        return None
    ours, other = found[0].seconds_per_epoch, theirs.seconds_per_epoch
    if ours is None or other is None or not ours.mean:
        return None
    ratio = other.mean / ours.mean
    wanted = paper.RANDOM_SECONDS["zosgd"] / paper.RANDOM_SECONDS["cocd"]
    verdict = SEEN if ratio >= wanted else PART if ratio > 1 else NOT
    here = f"{other.mean:.3g} against {ours.mean:.3g} s an epoch, {ratio:.2g} times as fast"
    return Finding(verdict, f"{here}, as a probe of one coordinate recomputes what it changes")


def resnet(series: Sequence[Series]) -> Finding | None:
    """Every decay above 0 better than none; open where all of them guess."""
    own = [s for s in series if s.plan == "figure-resnet" and s.final is not None and s.reached]
    bare = next((s for s in own if s.method == "bccd" or s.settings.get("decay") == 0), None)
    with_memory = [s for s in own if s is not bare]
    if bare is None or not with_memory:
        return None
    pairs = [c for s in with_memory if (c := words.compare(s, bare)) is not None]
    here = ", ".join(
        f"{text.setting('decay', s.settings.get('decay', 1.0))} {_ended(s)}" for s in with_memory
    )
    here += f"; γ 0 {_ended(bare)}"
    size = bare.run["group"]
    here += f" ({size})" if size else ""
    values = [v for c in pairs for v in (c.left, c.right)]
    if all(claims.guesses(v) for v in values):
        return Finding(OPEN, f"{here}: all of them guess")
    return Finding(together(c.verdict == "better" for c in pairs), here)


def bound(series: Sequence[Series]) -> Finding | None:
    """On one batch: it falls with each larger budget, and no error is above its bound."""
    own = [s for s in series if s.plan == "figure-error-bound"]
    found = [one for one in errors.measured_errors(own) if one.ratios and one.power]
    if not found:
        return None
    here = "; ".join(
        f"error ∝ B^{one.power.slope:.2f}, bound {text.number(min(one.ratios))} times it or more"
        for one in found
        if one.power is not None
    )
    return Finding(together(one.falls and not one.exceeded for one in found), here)


def light(series: Sequence[Series]) -> Finding | None:
    """A step, one evaluation a probe, peaks below backpropagation with SGD, on every network."""
    own = [s for s in series if s.plan == "table-memory"]
    tasks = dict.fromkeys(s.task for s in own)
    found = {task: words.lightness(task, own)[1].get(words.PLAIN) for task in tasks}
    ratios = {task: ratio for task, ratio in found.items() if ratio is not None}
    if not ratios:
        return None
    here = ", ".join(f"{text.task(task)} {ratio:.2g}" for task, ratio in ratios.items())
    verdict = together(r < 1 for r in ratios.values())
    return Finding(verdict, f"{words.PLAIN}, times backpropagation's peak: {here}")
