"""Claims about random directions, a larger network, the theorem and memory."""

from __future__ import annotations

from collections.abc import Sequence

from .. import claims, errors, paper, text, words
from ..series import Series
from .finding import (
    NOT,
    OPEN,
    PART,
    SEEN,
    Finding,
    as_the_paper,
    end,
    ended,
    furthest,
    labelled,
    shown,
    together,
    whole,
    wins,
)

_DIRECTIONS = {"spsa": "SPSA", "zosgd": "ZO-SGD"}


# --- random directions -------------------------------------------------------------------


def diverge(series: Sequence[Series]) -> Finding | None:
    """SPSA and ZO-SGD on SARCOS with CoCD's rate, the longest runs of each."""
    rate = paper.settings("sarcos", "cocd")["lr"]
    plans = ("figure-random", "table-main")
    own = [s for s in series if s.plan in plans and s.task == "sarcos" and ended(s)]
    random = {
        name: furthest(s for s in own if s.method == method and s.settings.get("lr") == rate)
        for method, name in _DIRECTIONS.items()
    }
    found = {name: s for name, s in random.items() if s is not None}
    if len(found) < len(_DIRECTIONS):
        return None
    up, parts = [], []
    for name, s in found.items():
        if s.diverged:
            parts.append(f"{name} {words.how_many(s)}")
            continue
        curve = s.curve("metric")
        if not curve:
            return None
        lowest = min(curve, key=lambda point: point.y.mean)
        up.append(end(s) > 1.25 * lowest.y.mean)
        turn = f", {text.number(lowest.y.mean)} after {lowest.x:.0f}" if up[-1] else ""
        parts.append(f"{name} {shown(s)} {words.after(s.reached, s.epochs)}{turn}")
    ours = as_the_paper(series, "cocd").get("sarcos")
    if ours is not None and ours.final is not None:
        parts.append(f"CoCD {text.spread(ours.final)} {words.after(ours.reached, ours.epochs)}")
    gone = [len(s.diverged) == len(s.results) for s in found.values()]
    if all(gone):
        return Finding(SEEN, "; ".join(parts))
    if any(s.diverged for s in found.values()) or any(up):
        return Finding(PART, "; ".join(parts))
    whole = min(s.reached for s in found.values()) >= paper.EPOCHS
    return Finding(NOT if whole else OPEN, "; ".join(parts))


def match(series: Sequence[Series]) -> Finding | None:
    """SPSA and ZO-SGD on MNIST, each at its best."""
    plans = ("figure-random", "table-main")
    own = [s for s in series if s.plan in plans and s.task == "mnist" and ended(s)]
    base = furthest(
        s for s in own if s.method == "cocd" and paper.entry(s.task, "cocd", s.settings)
    )
    best = {}
    for method, name in _DIRECTIONS.items():
        like = [s for s in own if s.method == method and base and s.epochs == base.epochs]
        if like:
            best[name] = max(like, key=end)
    if base is None or not best:
        return None
    held = [abs(end(s) - end(base)) <= 0.02 for s in best.values()]
    each = ", ".join(f"{name} {shown(s)}" for name, s in best.items())
    here = f"CoCD {shown(base)}, {each} {words.after(base.reached, base.epochs)}"
    verdict = whole(together(held), held, len(_DIRECTIONS))
    return Finding(verdict if base.epochs >= paper.EPOCHS else OPEN, here)


def twice_as_fast(series: Sequence[Series]) -> Finding | None:
    """On SARCOS, with one evaluation a probe on both sides, which ZO-SGD cannot do without."""
    like = [
        s
        for s in series
        if (s.plan, s.task, s.settings.get("engine")) == ("table-main", "sarcos", "sequential")
        and s.method in ("cocd", "bccd")
    ]
    plain, random = furthest(like), labelled(series, "ZO-SGD (tuned)").get("sarcos")
    if plain is None or random is None:
        return None
    ours, theirs = plain.seconds_per_epoch, random.seconds_per_epoch
    if ours is None or theirs is None or not ours.mean:
        return None
    ratio = theirs.mean / ours.mean
    here = (
        f"ZO-SGD {theirs.mean:.3g} s an epoch, {plain.label.partition(' (')[0]} with one "
        f"evaluation a probe {ours.mean:.3g}: {ratio:.2g} times"
    )
    fast = labelled(series, "CoCD (tuned)").get("sarcos")
    if fast is not None and (seconds := fast.seconds_per_epoch) is not None and seconds.mean:
        here += f"; with the engine for coordinates {seconds.mean:.3g}"
    return Finding(SEEN if ratio >= 1.9 else PART if ratio > 1 else NOT, here)


# --- a larger network --------------------------------------------------------------------


def resnet(series: Sequence[Series]) -> Finding | None:
    """The size that has come furthest, if there are several."""
    own = [s for s in series if s.plan == "figure-resnet" and ended(s)]
    sizes = dict.fromkeys((s.run["group"], s.epochs, s.run["steps_per_epoch"]) for s in own)
    made = [(steps * epochs, _resnet(own, (size, epochs, steps))) for size, epochs, steps in sizes]
    kept = [(steps, found) for steps, found in made if found is not None]
    return max(kept, key=lambda pair: pair[0])[1] if kept else None


def _resnet(series: Sequence[Series], size: tuple[str, int, int]) -> Finding | None:
    _, epochs, steps = size
    own = [s for s in series if (s.run["group"], s.epochs, s.run["steps_per_epoch"]) == size]
    gamma = {s.settings.get("decay", 0.0 if s.method == "bccd" else 1.0): s for s in own}
    if 0.0 not in gamma or len(gamma) < 2:
        return None
    bare = gamma[0.0]
    others = {value: s for value, s in sorted(gamma.items()) if value}
    here = ", ".join(f"γ {text.plain(value)} {shown(s)}" for value, s in others.items())
    here += f"; γ 0 {shown(bare)}; {epochs * steps:,} steps"
    budget, count = bare.settings.get("compute_budget"), bare.run["parameters"]
    if isinstance(budget, int) and isinstance(count, int):
        probed = min(epochs * steps * budget, count)
        here += f", which probe {probed:,} of {count:,} coordinates"
    if all(claims.guesses(s.final) for s in own):
        return Finding(OPEN, f"{here}: all of them guess")
    made = [words.compare(s, bare) for s in others.values()]
    return Finding(together(c is not None and wins(c) for c in made), here)


# --- theory, memory ----------------------------------------------------------------------


def falls(series: Sequence[Series]) -> Finding | None:
    """The error over the budget, on one batch and on batches that change."""
    found = _errors(series)
    here = "; ".join(f"{one.name}: error ∝ B^{fit.slope:.2f}" for one, fit in found)
    return Finding(together(one.falls for one, _ in found), here) if found else None


def straight(series: Sequence[Series]) -> Finding | None:
    """A straight line over log B, where the error falls at all."""
    found = [(one, fit, one.line) for one, fit in _errors(series) if one.falls]
    kept = [(one, fit, line) for one, fit, line in found if line is not None]
    here = "; ".join(
        f"{one.name}: it explains {100 * line.explained:.1f} % of the variance, a power of B "
        f"{100 * fit.explained:.1f} %"
        for one, fit, line in kept
    )
    return Finding(together(line.explained >= 0.95 for *_, line in kept), here) if kept else None


def bound(series: Sequence[Series]) -> Finding | None:
    """On one batch, for which alone the theorem speaks."""
    found = [one for one, _ in _errors(series) if one.ratios]
    if not found:
        return None
    here = "; ".join(
        f"the bound is {text.number(min(one.ratios))} times the error" for one in found
    )
    return Finding(together(not one.exceeded for one in found), f"{here}, or more")


def _errors(series: Sequence[Series]) -> list[tuple[errors.Measured, errors.Fit]]:
    own = [s for s in series if s.plan == "figure-error-bound"]
    return [(one, fit) for one in errors.measured_errors(own) if (fit := one.power) is not None]


def light(series: Sequence[Series]) -> Finding | None:
    """The peak of a step over that of backpropagation with SGD, network by network."""
    own = [s for s in series if s.plan == "table-memory"]
    found = {task: words.lightness(task, own)[1] for task in dict.fromkeys(s.task for s in own)}
    plain, fast = (
        {task: ratios[name] for task, ratios in found.items() if name in ratios}
        for name in (words.PLAIN, words.FAST)
    )
    if not plain:
        return None
    here = "; ".join(
        f"{name}: " + ", ".join(f"{text.task(task)} {ratio:.2g}" for task, ratio in ratios.items())
        for name, ratios in ((words.PLAIN, plain), (words.FAST, fast))
        if ratios
    )
    slim = all(r < 1 for r in plain.values())
    verdict = SEEN if slim and all(r < 1 for r in fast.values()) else PART if slim else NOT
    return Finding(verdict, here)
