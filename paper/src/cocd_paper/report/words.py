"""What the rows say, in sentences. No sentence is here that rows do not bear out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from . import paper, text
from .series import Series, Spread, better

OURS = "cocd"
_EQUAL = 0.01  # budgets of evaluations that differ by less are called equal


_TEST_ROWS = 10_000  # of MNIST and of CIFAR-10
_LAST = 5  # epochs: who leads in one of them only does not lead


@dataclass(frozen=True)
class Comparison:
    """Two series at the last epoch that both have; a side without a value diverged, all of it."""

    one: Series
    other: Series
    epoch: int
    left: Spread | None
    right: Spread | None

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``level``, ``none`` or '' (nothing to say).

        Level is where ranges over seeds overlap, where accuracies differ by less than the choice
        of test rows makes them differ, and where each was ahead in one of the last epochs. None is
        where some seeds diverged and others did not.
        """
        if any(0 < len(s.diverged) < len(s.results) for s in (self.one, self.other)):
            return "none"
        if self.left is None or self.right is None:
            if self.left is None and self.right is None:
                return ""
            return "worse" if self.left is None else "better"
        if self.left.low <= self.right.high and self.right.low <= self.left.high:
            return "level"
        wins = better(self.left.mean, self.right.mean, accuracy=self.one.accuracy)
        if _level(self.left.mean, self.right.mean, self.one.accuracy) or any(
            better(a, b, accuracy=self.one.accuracy) != wins for a, b in self.lately
        ):
            return "level"
        return "better" if wins else "worse"

    @property
    def lately(self) -> list[tuple[float, float]]:
        """Both in the last epochs up to this one, as far as both have values."""
        first = max(1, self.epoch - _LAST + 1)
        both = [(self.one.at(e), self.other.at(e)) for e in range(first, self.epoch + 1)]
        return [(a.mean, b.mean) for a, b in both if a is not None and b is not None]

    @property
    def amount(self) -> str:
        """The other's value, and how it compares with ours."""
        if self.other.diverged:
            return how_many(self.other)
        if self.right is None:
            return "no value"
        shown = text.metric(self.right.mean, accuracy=self.one.accuracy)
        if self.left is None:
            return shown
        return f"{shown}, {difference(self.right.mean, self.left.mean, self.one.accuracy)}"


def _level(a: float, b: float, accuracy: bool) -> bool:
    """Equal, or accuracies that differ by less than the choice of test rows makes them differ."""
    gap = abs(a - b)
    return gap == 0 or (accuracy and gap**2 < 4 * 2 * b * (1 - b) / _TEST_ROWS)


def how_many(series: Series) -> str:
    """How many of its seeds diverged."""
    count, total = len(series.diverged), len(series.results)
    return "diverged" if count == total == 1 else f"diverged, {count} of {text.seeds(total)}"


def compare(one: Series, other: Series) -> Comparison | None:
    """Compare two series of a task, or None where one of them has no rows to compare."""
    if not any(r.epochs for r in one.results) or not any(r.epochs for r in other.results):
        return None
    whole = [s.reached for s in (one, other) if len(s.diverged) < len(s.results)]
    epoch = min(whole, default=0)
    if not epoch:
        return None
    left, right = (s.at(epoch) for s in (one, other))
    if any(v is None and not s.diverged for v, s in ((left, one), (right, other))):
        return None
    return Comparison(one, other, epoch, left, right)


def difference(value: float, base: float, accuracy: bool) -> str:
    """How `value` differs from `base`: points of accuracy, or a factor of the loss.

    >>> difference(0.27, 0.95, True), difference(353.0, 26.0, False), difference(20.0, 25.0, False)
    ('68.00 points less', '13.6 times the loss', '20 % less loss')
    """
    if accuracy:
        gap = 100 * (value - base)
        return f"{abs(gap):.2f} points {'more' if gap > 0 else 'less'}"
    if base <= 0 or value <= 0:
        return f"{text.number(abs(value - base))} {'more' if value > base else 'less'}"
    ratio = value / base
    if ratio >= 2:
        return f"{ratio:.3g} times the loss"
    return f"{100 * abs(ratio - 1):.0f} % {'more' if ratio > 1 else 'less'} loss"


def standings(series: Sequence[Series]) -> list[str]:
    """For each task: where CoCD wins against which baseline, by how much, and where it does not."""
    sentences = []
    for task, split, epochs in dict.fromkeys((s.task, s.run["split"], s.epochs) for s in series):
        own = [s for s in series if (s.task, s.run["split"], s.epochs) == (task, split, epochs)]
        several = len({s.run["split"] for s in series if s.task == task}) > 1
        where = text.task(task) + (f" ({split} split)" if several else "")
        named = dict(zip(map(id, own), text.names(own), strict=True))
        rivals = [s for s in own if s.method != OURS and not s.first_order]
        for ours in (s for s in own if s.method == OURS):
            like = [rival for rival in rivals if _alike(ours, rival)]
            found = [c for rival in like if (c := compare(ours, rival)) is not None]
            if sentence := _standing(where, named, ours, found):
                sentences.append(sentence)
        sentences += _best(where, named, own)
    return sentences


def duels(series: Sequence[Series]) -> list[Comparison]:
    """CoCD under each of its labels against each method without gradients, where that ended."""
    found = []
    for ours in (s for s in series if s.method == OURS):
        for rival in series:
            same = (rival.task, rival.run["split"], rival.epochs) == (
                (ours.task, ours.run["split"], ours.epochs)
            )
            if not same or rival.method == OURS or rival.first_order or not _alike(ours, rival):
                continue
            made = compare(ours, rival)
            if made is not None and made.verdict in VERDICTS:
                found.append(made)
    return found


VERDICTS = {"better": "wins", "worse": "loses", "level": "level"}


def _alike(one: Series, other: Series) -> bool:
    """Whether two series are to be compared: where both vary a setting, at its same value."""
    vary = one.run["vary"]
    if not vary or vary != other.run["vary"]:
        return True
    return bool(one.settings.get(vary) == other.settings.get(vary))


def _standing(where: str, named: dict[int, str], ours: Series, found: list[Comparison]) -> str:
    by = {v: [c for c in found if c.verdict == v] for v in ("better", "worse", "level", "none")}
    epochs = sorted({c.epoch for c in found if c.verdict})
    last = epochs[-1] if epochs else 0
    phrases = []
    for verdict, words in (
        ("better", "better than"),
        ("worse", "worse than"),
        ("level", "not to be told apart from"),
        ("none", "no verdict against"),
    ):
        if by[verdict]:
            them = (
                f"{named[id(c.other)]} ({c.amount}{_budget(c)}{_then(c, last)})"
                for c in by[verdict]
            )
            phrases.append(f"{words} {text.listed(them)}")
    if not phrases:
        return ""
    if ours.diverged:
        state = how_many(ours)
    else:
        value = ours.at(last)
        shown = text.spread(value, accuracy=ours.accuracy) if value else "no value"
        state = f"{shown} {after(last, ours.epochs)}, {text.seeds(len(ours.results))}"
    shorter = len(epochs) > 1 or (not ours.diverged and last < ours.reached)
    early = " Runs of which fewer epochs are done are compared there." if shorter else ""
    return f"{where}, {named[id(ours)]}: {state}; {'; '.join(phrases)}.{early}"


def _then(made: Comparison, last: int) -> str:
    """What ours had where the two are compared, if that is not where it is named."""
    if made.epoch == last or made.left is None:
        return ""
    ours = text.metric(made.left.mean, accuracy=made.one.accuracy)
    return f"; after {made.epoch} epochs, where ours is {ours}"


def after(epoch: int, planned: int) -> str:
    """How far runs have come.

    >>> after(12, 50), after(50, 50)
    ('after 12 of 50 epochs', 'after 50 epochs')
    """
    return f"after {epoch} epochs" if epoch == planned else f"after {epoch} of {planned} epochs"


def _budget(made: Comparison) -> str:
    """Who spent how much more, where the evaluations are not equal."""
    if made.one.diverged or made.other.diverged:
        return ""
    left, right = (s.at(made.epoch, "evaluations") for s in (made.one, made.other))
    if left is None or right is None or not left.mean or not right.mean:
        return ""
    ratio = right.mean / left.mean
    return "" if abs(ratio - 1) < _EQUAL else f", with {ratio:.3g} times the evaluations"


def _best(where: str, named: dict[int, str], own: list[Series]) -> list[str]:
    """The best without gradients, and what gradients reach, where runs are complete."""
    whole = [
        (s, s.final)
        for s in own
        if s.final is not None and s.status == "done" and s.reached == s.epochs
    ]
    accuracy = any(s.accuracy for s in own)
    free = [pair for pair in whole if not pair[0].first_order]
    exact = [pair for pair in whole if pair[0].first_order]
    if len(free) < 2:
        return []
    pick = max if accuracy else min
    winner, value = pick(free, key=lambda pair: pair[1].mean)
    out = f"{where}, best without gradients: {named[id(winner)]}"
    out += f", {text.spread(value, accuracy=accuracy)}"
    if exact:
        them = (f"{named[id(s)]} {text.metric(v.mean, accuracy=accuracy)}" for s, v in exact)
        out += f"; with exact gradients: {text.listed(them)}"
    return [f"{out}."]


@dataclass(frozen=True)
class Beside:
    """A final metric of ours and the paper's; `word` is better, worse, equal or level: why."""

    ours: Spread
    theirs: float
    word: str


def beside_paper(series: Series) -> Beside | None:
    """Where a series that repeats the paper's settings stands; None if it does not, or diverged."""
    known = paper.entry(series.task, series.method, series.settings)
    value = series.final if series.reached and not series.diverged else None
    if series.run["smoke"] or known is None or value is None:
        return None
    word = "better" if better(value.mean, known.metric, accuracy=series.accuracy) else "worse"
    if value.mean == known.metric:
        word = "equal"
    elif _level(value.mean, known.metric, series.accuracy):
        word = "level: the choice of test rows makes as much"
    elif len(value.values) > 1 and value.low <= known.metric <= value.high:
        word = "level: within our range"
    return Beside(value, known.metric, word)


def against_paper(series: Sequence[Series]) -> list[str]:
    """Ours beside the paper's, for the series that repeat the paper's settings."""
    sentences = []
    for s, name in zip(series, text.names(list(series)), strict=True):
        known = paper.entry(s.task, s.method, s.settings)
        if s.run["smoke"] or known is None:
            continue
        theirs = text.metric(known.metric, accuracy=s.accuracy)
        split = f", {s.run['split']} split" if s.run["split"] not in ("", "test") else ""
        head = f"{text.task(s.task)}, {name}{split}: paper {theirs}"
        if s.diverged:
            sentences.append(f"{head}, ours {how_many(s)}.")
        elif place := beside_paper(s):
            ours = text.spread(place.ours, accuracy=s.accuracy)
            gap = difference(place.ours.mean, place.theirs, s.accuracy)
            if place.word == "equal":
                gap = "no difference"
            sentences.append(
                f"{head} after {paper.EPOCHS} epochs, ours {ours} {after(s.reached, s.epochs)}; "
                f"{gap} ({place.word})."
            )
    return sentences


def caution(series: Sequence[Series]) -> list[str]:
    """What a reader must know before reading on, as far as rows tell."""
    out = []
    if any(s.run["smoke"] for s in series):
        out.append("Small form on generated data: these numbers say that the plan runs, no more.")
    trained = [s for s in series if any(r.epochs for r in s.results)]
    if trained and all(len(s.results) == 1 for s in trained):
        out.append("One seed each: small differences mean little.")
    unfinished = sum(r.status == "unfinished" for s in series for r in s.results)
    if unfinished:
        total = sum(len(s.results) for s in series)
        out.append(f"{unfinished} of {total} runs are not finished.")
    if any(s.run["split"] == "published" for s in series):
        out.append(
            "Published split: SARCOS as it is distributed, whose test rows are also among the "
            "training rows; scores on it are too good."
        )
    return out


_SPLITS = {
    "test": "Test split: trained on all training rows, scored on rows that are not among them.",
    "validation": "Validation split: scored on a part of the training rows; no test row was used.",
}


def notes(series: Sequence[Series]) -> list[str]:
    """How the rows were made, as far as the paper leaves it open."""
    trained = [s for s in series if any(r.epochs for r in s.results) and not s.run["smoke"]]
    splits = {s.run["split"] for s in trained}
    out = [sentence for name, sentence in _SPLITS.items() if name in splits]
    if any(s.diverged for s in trained):
        out.append(
            "Diverged: the held-out loss is a million times the first or not finite, or a step "
            "could not be taken. A run that ends above its start has not diverged in this sense."
        )
    used = sorted({str(s.settings.get("activation", "")) for s in trained} - {""})
    if used:
        out.append(f"The paper names no activation; these runs use {text.listed(used)}.")
    return out


_PEAKS = (
    ("tensor_peak_bytes", "the tensors of a step peak"),  # the same in every process
    ("peak_bytes", "in a step the process peaks"),
)
PLAIN, FAST = "one evaluation a probe, M = 1", "many probes at once, for speed"
_LIGHT = (
    (PLAIN, ("cocd", "closure", 1.0)),
    ("one evaluation a probe, M = 0.25", ("cocd", "closure", 0.25)),
    (FAST, ("cocd", None, 1.0)),
    ("MeZO", ("mezo", None, None)),
)


def memory(series: Sequence[Series]) -> list[str]:
    """The paper's claim, network by network: the peak of a step beside backpropagation's."""
    out = []
    for task in dict.fromkeys(s.task for s in series):
        what, found = lightness(task, series)
        if len(found) > 1:
            parts = "; ".join(f"{ratio:.2g} ({name})" for name, ratio in found.items())
            out.append(
                f"{text.task(task)}: {what} at this many times the memory of backpropagation with "
                f"SGD: {parts}."
            )
    return out


def lightness(task: str, series: Sequence[Series]) -> tuple[str, dict[str, float]]:
    """What peaks, and the peaks over that of backpropagation with SGD, by name."""

    def who(run: dict[str, Any]) -> tuple[str, Any, Any]:
        own = run["settings"]
        return run["method"], own.get("engine"), own.get("memory_budget")

    own = [s for s in series if s.task == task]
    for key, what in _PEAKS:
        peaks = {who(s.run): peak for s in own if (peak := _mean_of(s, key))}
        if backward := peaks.get(("sgd", None, None)):
            return what, {name: peaks[one] / backward for name, one in _LIGHT if one in peaks}
    return "", {}


def _mean_of(series: Series, key: str) -> float | None:
    rows = (row for result in series.results for row in result.measures)
    values = [row[key] for row in rows if row.get(key) is not None]
    return fmean(values) if values else None
