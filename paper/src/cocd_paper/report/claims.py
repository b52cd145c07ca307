"""What the paper's text says of its figures, each beside what the rows say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from . import paper, text
from .series import Series, Spread, better
from .words import after, compare, how_many

STRESS = "stress"  # the group of the runs with one coordinate a step


def ordered(series: Sequence[Series], vary: str) -> list[tuple[float, Series]]:
    """The series with a number for `vary`, small to large."""
    pairs = [(s.settings.get(vary), s) for s in series]
    numbers = [(float(v), s) for v, s in pairs if isinstance(v, (int, float))]
    return sorted(numbers, key=lambda pair: pair[0])


def chain(series: Sequence[Series], vary: str) -> str:
    """Values of what is varied and where each ended, in one phrase."""
    parts = []
    for value, s in ordered(series, vary):
        final = None if s.diverged else s.final
        shown = how_many(s) if s.diverged else "no value yet"
        if final is not None and s.reached:
            shown = text.metric(final.mean, accuracy=s.accuracy)
            if s.reached < s.epochs:
                shown += f" {after(s.reached, s.epochs)}"
        parts.append(f"{shown} at {text.plain(value)}")
    return ", ".join(parts)


def trend(series: Sequence[Series], vary: str) -> str:
    """``rising`` if each larger value does better, ``falling`` if worse, else ``mixed`` or ''."""
    finals = [(s, s.final) for _, s in ordered(series, vary) if s.reached or s.diverged]
    if len(finals) < 2 or len({s.reached for s, _ in finals if not s.diverged}) > 1:
        return ""
    steps = []
    for (one, before), (two, later) in pairwise(finals):
        if one.diverged and two.diverged:
            return "mixed"
        if one.diverged or two.diverged:
            steps.append(bool(one.diverged))
        elif before is not None and later is not None:
            steps.append(better(later.mean, before.mean, accuracy=one.accuracy))
    if all(steps):
        return "rising"
    return "mixed" if any(steps) else "falling"


def varied(series: Sequence[Series], task: str, one: str) -> list[Series]:
    """The series of a group, and those of other groups that differ in the varied setting alone.

    A run at the defaults belongs to every panel, and a plan need not make it more than once.
    """
    own = [s for s in series if s.task == task and s.run["group"] == one]
    if not own:
        return []
    vary = own[0].run["vary"]
    have = {repr(s.settings.get(vary)) for s in own}
    base = _without(own[0], vary)
    for s in series:
        value = repr(s.settings.get(vary))
        alike = (s.task, s.method, s.epochs) == (task, own[0].method, own[0].epochs)
        if alike and s.run["group"] != STRESS and value not in have and _without(s, vary) == base:
            own.append(s)
            have.add(value)
    return [s for _, s in ordered(own, vary)] or own


def _without(series: Series, name: str) -> dict[str, object]:
    return {key: value for key, value in series.settings.items() if key != name}


_TRENDS = {
    "rising": "each larger value does better",
    "falling": "each larger value does worse",
    "mixed": "no single direction",
}


def sweep(what: str, claim: str, series: Sequence[Series], vary: str) -> list[str]:
    """A setting that was varied: the paper's words, ours, and all the numbers."""
    found = trend(series, vary)
    if not found:
        return []
    paper_says = f" paper, {claim};" if claim else ""
    here = _TRENDS[found] + (_best(series, vary) if found == "mixed" else "")
    return [f"{what}:{paper_says} here, {here} ({chain(series, vary)})."]


def _best(series: Sequence[Series], vary: str) -> str:
    finals = _finals(series, vary)
    if not finals:
        return ""
    pick = max if series[0].accuracy else min
    return f", best at {text.plain(pick(finals)[1])}"


def _finals(series: Sequence[Series], vary: str) -> list[tuple[float, float]]:
    return [(s.final.mean, v) for v, s in ordered(series, vary) if s.final and not s.diverged]


ABLATION = {
    ("sarcos", "eps"): "the loss falls with each larger ε",
    ("mnist", "eps"): "smaller ε ends higher, larger ε is smoother",
    ("sarcos", "decay"): "γ = 0 is the slowest, and more is faster",
    ("mnist", "decay"): "γ = 0 is the slowest, and more is faster",
    ("sarcos", "compute_budget"): "B = 64 is needed to leave the plateau, more gains little",
    ("sarcos", "memory_budget"): "M = 0.25 is noisier and still competitive",
    ("mnist", "memory_budget"): "M = 0.25 is noisier and still competitive",
}


def stress(series: Sequence[Series]) -> list[str]:
    """The stress test: one coordinate a step."""
    out = []
    for s, name in zip(series, text.names(list(series)), strict=True):
        wanted = paper.STRESS_SETTINGS.items()
        if s.task != "sarcos" or any(s.settings.get(name) != value for name, value in wanted):
            continue
        final = s.final
        head = f"SARCOS, {name}: paper {text.number(paper.STRESS_LOSS)}"
        if s.diverged:
            out.append(f"{head}, ours diverged.")
        elif final is not None and s.reached:
            out.append(f"{head}, ours {text.spread(final)} {after(s.reached, s.epochs)}.")
    return out


def smoothing(series: Sequence[Series]) -> list[str]:
    """The smoothing figure: larger radii help CoCD and hurt BCCD, says the paper."""
    claims = {"cocd": "larger ε ends lower", "bccd": "larger ε ends higher"}
    out = []
    for task, label in dict.fromkeys((s.task, s.label) for s in series):
        own = [s for s in series if (s.task, s.label) == (task, label)]
        what = label if own[0].as_planned else f"{text.task(task)}, {label}"
        used, known = own[0].settings, paper.settings(own[0].task, own[0].method)
        # The paper speaks of its own precision and learning rate.
        its_own = all(
            used.get(name, known.get(name)) == known.get(name) for name in ("lr", "dtype")
        )
        claim = claims.get(own[0].method, "") if its_own and own[0].as_planned else ""
        out += sweep(what, claim, own, "eps")
    return out


def random_baselines(series: Sequence[Series]) -> list[str]:
    """The random baselines: who diverged, and what an epoch costs beside CoCD's."""
    out = []
    for task in dict.fromkeys(s.task for s in series):
        own = [s for s in series if s.task == task]
        others = [s for s in own if s.method in ("spsa", "zosgd")]
        gone = [s for s in others if s.diverged]
        if others and all(s.status != "unfinished" for s in others):
            says = "they match CoCD's accuracy" if own[0].accuracy else "they diverge half way"
            quoted = f" paper, {says};" if own[0].as_planned else ""
            who = text.listed(s.label for s in gone)
            longest = max(s.epochs for s in others)
            here = f"{who} diverged" if gone else f"none of them diverged within {longest} epochs"
            out.append(f"{text.task(task)}, random directions:{quoted} here, {here}.")
        base = next((s for s in own if s.method == "cocd" and s.seconds_per_epoch), None)
        for s in own:
            known = paper.RANDOM_SECONDS.get(s.method)
            if base is None or known is None or s.method == "cocd" or not s.seconds_per_epoch:
                continue
            ours = (base.seconds_per_epoch or Spread((1.0,))).mean
            theirs = s.seconds_per_epoch.mean
            ratio = f"{theirs / ours:.2g}" if ours else "?"
            quoted = (
                f" paper {known / paper.RANDOM_SECONDS['cocd']:.2g}," if task == "sarcos" else ""
            )
            out.append(
                f"{text.task(task)}, time of an epoch, {s.label} over {base.label}:"
                f"{quoted} here {ratio}."
            )
    return out


_VERDICTS = {"better": "better", "worse": "worse", "level": "level", "none": "no verdict"}


def resnet(where: str, series: Sequence[Series]) -> list[str]:
    """ResNet-20: memory against none."""
    bare = [s for s in series if s.settings.get("decay", 0 if s.method == "bccd" else 1) == 0]
    out = []
    for base in bare:
        found = [
            (s, c)
            for s in series
            if s is not base and s.settings.get("decay") and (c := compare(s, base)) is not None
        ]
        if found:
            parts = (
                f"γ {text.plain(s.settings['decay'])} {_VERDICTS.get(c.verdict, 'the same')}"
                f" ({_value(c.left, s.accuracy)})"
                for s, c in found
            )
            epochs = sorted({c.epoch for _, c in found})
            bare_value = _value(found[0][1].right, base.accuracy)
            out.append(
                f"{where}: paper, γ 0.5, 0.9 and 0.95 beat γ = 0 within "
                f"{paper.RESNET_EPOCHS} epochs; here, against γ = 0 ({bare_value}) after "
                f"{text.listed(map(str, epochs))} epochs of {base.run['steps_per_epoch']:,} steps: "
                f"{text.listed(parts)}."
            )
            if all(guesses(v) for _, c in found for v in (c.left, c.right)):
                out[-1] += " All of them guess: at this size nothing can be told."
    return out


def guesses(accuracy: Spread | None) -> bool:
    """Near the tenth that is right by chance."""
    return accuracy is not None and abs(accuracy.mean - 0.1) < 0.01


def _value(values: Spread | None, accuracy: bool) -> str:
    return "diverged" if values is None else text.spread(values, accuracy=accuracy)
