"""What the paper claims, and by which rule the rows show it.

Each rule yields pieces of evidence: whether it holds (None: it cannot tell), and the numbers. A
claim is reproduced if all of them hold, partly if some do. A run that diverged, in one seed or
all, counts as worse than any other; two runs are compared at the last epoch that both have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import inf
from operator import attrgetter
from statistics import fmean
from typing import NamedTuple

from . import errors, paper, text
from .plans import STRESS, ordered, varied
from .series import Series, gap
from .tables import Table

YES, PARTLY, NO, OPEN = "reproduced", "partly", "not reproduced", "inconclusive"
ABOUT = (
    "Each claim of the paper beside our rows. Partly: a part of it, or some tasks. "
    "Inconclusive: not run, or the runs cannot decide. One seed where no range is given."
)
Evidence = Iterator[tuple[bool | None, str]]
Rule = Callable[[Sequence[Series]], Evidence]
Panel = Mapping[float, Series]  # by the value of what is varied, small to large
_level, _length = attrgetter("level"), attrgetter("reached", "epochs")


class Claim(NamedTuple):
    """Where the paper says what, when that counts as reproduced, and how many pieces it takes."""

    where: str
    says: str
    when: str
    rule: Rule
    wanted: int


CLAIMS: list[Claim] = []


def _claim(where: str, says: str, when: str, wanted: int = 1) -> Callable[[Rule], Rule]:
    """Add the rule below to the claims."""

    def add(rule: Rule) -> Rule:
        CLAIMS.append(Claim(where, says, when, rule, wanted))
        return rule

    return add


def table(series: Sequence[Series]) -> Table:
    """A row for each claim."""
    real = [s for s in series if s.as_planned and s.run["split"] == "test" and not s.run["smoke"]]
    rows = []
    for claim in CLAIMS:
        held, shown = [*zip(*claim.rule(real), strict=True)] or [(), ()]
        here = "; ".join(filter(None, shown)) or "nothing run tells"
        rows.append((claim.where, claim.says, claim.when, verdict(held, claim.wanted), here))
    columns = ("paper", "claim", "counts as reproduced if", "verdict", "here")
    return Table("The paper's claims", columns, tuple(rows), 5)


def verdict(held: Sequence[bool | None], wanted: int = 1) -> str:
    """What pieces of evidence come to, of as many as the paper speaks of.

    >>> verdict([True, True], 3), verdict([False]), verdict([True, None]), verdict([])
    ('partly', 'not reproduced', 'inconclusive', 'inconclusive')
    """
    if not held or None in held:
        return OPEN
    return YES if all(held) and len(held) >= wanted else PARTLY if any(held) else NO


# --- what rules are made of --------------------------------------------------------------------


def _best_of(panel: Panel) -> float:
    return min(s.level for s in panel.values())


def _longest(series: Iterable[Series]) -> Series | None:
    return max(series, key=_length, default=None)


def _by_task(series: Iterable[Series]) -> dict[str, Series]:
    """Of each task the one that has come furthest."""
    found = {s.task: s for s in sorted(series, key=_length) if s.reached or s.diverged}
    return {task: found[task] for task in ("sarcos", "mnist", "cifar10") if task in found}


def _paper(series: Sequence[Series], method: str) -> dict[str, Series]:
    """By task, the runs of table 2 as the paper sets them."""
    return _by_task(
        s
        for s in series
        if (s.plan, s.method) == ("table-main", method)
        and "engine" not in s.settings
        and paper.entry(s.task, s.method, s.settings)
    )


def _labelled(series: Sequence[Series], label: str) -> dict[str, Series]:
    """By task, the runs of the main table of that label."""
    return _by_task(s for s in series if (s.plan, s.label) == ("table-main", label))


def _pairs(series: Sequence[Series], *, tuned: bool) -> list[tuple[Series, Series]]:
    """CoCD and BCCD on each task."""
    ours = _labelled(series, "CoCD (tuned)") if tuned else _paper(series, "cocd")
    theirs = _labelled(series, "BCCD (tuned)") if tuned else _paper(series, "bccd")
    return [(s, theirs[task]) for task, s in ours.items() if task in theirs]


def _against(a: Series, b: Series) -> str:
    """Both where they are compared."""
    epoch = min((s.reached for s in (a, b) if not s.diverged), default=0)
    values = (None if s.diverged else s.at(epoch) for s in (a, b))
    shown = ("diverged" if v is None else text.metric(v.mean, accuracy=a.accuracy) for v in values)
    early = f" after {epoch} epochs" if epoch < a.epochs else ""
    return f"{text.task(a.task)} {' against '.join(shown)}{early}"


def _chain(panel: Panel) -> str:
    return ", ".join(f"{text.outcome(s)} at {text.plain(value)}" for value, s in panel.items())


def _falls(panel: Panel) -> bool:
    return all(b < a for a, b in pairwise(s.level for s in panel.values()))


def _measured(series: Sequence[Series], plan: str, key: str) -> dict[str, float]:
    """By task, the mean of what was measured."""
    found: dict[str, list[float]] = {}
    for s in (s for s in series if s.plan == plan):
        for row in (row for r in s.results for row in r.measures if key in row):
            found.setdefault(s.task, []).append(row[key])
    return {task: fmean(values) for task, values in found.items()}


@_claim("table 2", "CoCD is better than BCCD at the same rate on every task", "better on each", 3)
def _ordering(series: Sequence[Series]) -> Evidence:
    for a, b in _pairs(series, tuned=False):
        yield gap(a, b) > 0, _against(a, b)


def _ends_at(series: Sequence[Series], method: str) -> Evidence:
    for s in _paper(series, method).values():
        known = paper.entry(s.task, s.method, s.settings)
        if known is not None and s.final is not None and s.ended:
            mine, theirs = s.final.mean, known.metric
            near = abs(mine - theirs) <= (0.02 if s.accuracy else 0.1 * theirs)
            shown = text.metric(theirs, accuracy=s.accuracy)
            better = method == "cocd" and (mine > theirs) == s.accuracy
            yield near or better, f"{text.task(s.task)} {text.outcome(s)}, paper {shown}"


_NEAR = "within a tenth of the loss, or two points"
for _method, _says, _when in (
    ("cocd", "CoCD reaches 31.18, 95.48 % and 45.08 %", f"there or better, or {_NEAR}"),
    ("bccd", "BCCD ends at 188.73, 27.03 % and 10.13 % (guessing)", _NEAR),
    ("sgd", "SGD ends at 5.38, 99.21 % and 62.51 %", _NEAR),
):
    _claim("table 2", _says, _when, 3)(partial(_ends_at, method=_method))


@_claim(
    "conclusion",
    "reusing stale slopes is far better than discarding them, each tuned",
    "of the gap at the paper's rate half is left (as a logarithm) where both are tuned",
)
def _reuse(series: Sequence[Series]) -> Evidence:
    before = {a.task: gap(a, b) for a, b in _pairs(series, tuned=False)}
    for a, b in _pairs(series, tuned=True):
        if before.get(a.task, 0) > 0:
            yield gap(a, b) > 0, _against(a, b)
            yield gap(a, b) >= 0.5 * before[a.task], ""


@_claim(
    "abstract",
    "a deterministic order is better than random directions and coordinates",
    "the best form of CoCD is ahead of each of them, tuned, on every task",
)
def _better_than_random(series: Sequence[Series]) -> Evidence:
    forms = ("CoCD (paper's settings)", "CoCD (tuned)", "CoCD (tuned, other B)")
    for label in ("Random coordinates (tuned)", "SPSA (tuned)", "ZO-SGD (tuned)"):
        for task, rival in _labelled(series, label).items():
            ours = [found[task] for form in forms if task in (found := _labelled(series, form))]
            if ours:
                best = min(ours, key=_level)
                yield gap(best, rival) > 0, f"{label.partition(' (')[0]}: {_against(best, rival)}"


@_claim("section 6.1", "reuse costs no time", "a step takes at most 1.1 times one of BCCD")
def _no_extra_time(series: Sequence[Series]) -> Evidence:
    for task, ratio in _measured(series, "table-time", "cocd_over_bccd").items():
        yield ratio <= 1.1, f"{text.task(task)} {ratio:.3f} times"


def _radii(series: Sequence[Series], label: str) -> Panel:
    own = [s for s in series if (s.plan, s.label) == ("figure-smoothing", label)]
    longest = max((s.epochs for s in own), default=0)
    found = dict(ordered([s for s in own if s.epochs == longest], "eps"))
    return found if {1e-6, 1.0} <= set(found) else {}


def _panels(series: Sequence[Series], group: str, vary: str) -> dict[str, Panel]:
    """By task, a panel of the ablation: of the lengths it was run at the one with most values."""
    own = [s for s in series if s.plan == "figure-ablation"]
    found: dict[str, Panel] = {}
    for task, epochs in sorted({(s.task, s.epochs) for s in own}, reverse=True):
        panel = dict(ordered(varied([s for s in own if s.epochs == epochs], task, group), vary))
        if len(panel) > max(1, len(found.get(task, {}))):
            found[task] = panel
    return found


def _told(task: str, panel: Panel) -> str:
    return f"{text.task(task)} {_chain(panel)} ({next(iter(panel.values())).epochs} epochs)"


@_claim(
    "figure 2",
    "ε = 1 is CoCD's best radius and BCCD's worst, 1e-6 BCCD's best",
    "within 2 % of the best loss; more than 2 % above all others",
)
def _anomaly(series: Sequence[Series]) -> Evidence:
    cocd, bccd = _radii(series, "CoCD"), _radii(series, "BCCD")
    if cocd and bccd:
        yield cocd[1.0].level <= 1.02 * _best_of(cocd) < inf, f"CoCD {_chain(cocd)}"
        others = max(s.level for eps, s in bccd.items() if eps != 1.0)
        yield bccd[1.0].level > 1.02 * others, f"BCCD {_chain(bccd)}"
        yield bccd[1e-6].level <= 1.02 * _best_of(bccd) < inf, ""


@_claim("section 6.2", "on SARCOS each larger ε is better", "each is, and by more than seeds make")
def _radius(series: Sequence[Series]) -> Evidence:
    main = _paper(series, "cocd").get("sarcos")
    if panel := _panels(series, "eps", "eps").get("sarcos"):
        ends = [s.level for s in panel.values()]
        noise = main.final.high - main.final.low if main and main.final else 0.0
        tells = noise <= max(ends) - min(ends)
        seeds = "" if tells or main is None else f"; at ε 1 seeds make {text.outcome(main)}"
        yield (_falls(panel) if tells else None), _told("sarcos", panel) + seeds


@_claim("section 6.2", "on MNIST smaller ε ends higher", "each does, and one gets beyond 50 %")
def _radius_of_classification(series: Sequence[Series]) -> Evidence:
    if panel := _panels(series, "eps", "eps").get("mnist"):
        ends = [s.level for s in panel.values()]
        yield (ends == sorted(ends) if min(ends) < 0.5 else None), _told("mnist", panel)


@_claim("section 6.2", "γ = 0 is the slowest, more is faster", "each larger γ ends better", 4)
def _decay(series: Sequence[Series]) -> Evidence:
    for task, panel in _panels(series, "gamma", "decay").items():
        if 0.0 in panel:
            yield _falls(panel), _told(task, panel)
            yield panel[0.0].level == max(s.level for s in panel.values()), ""


@_claim(
    "section 6.2",
    "B = 64 is needed to leave the plateau, and then returns diminish (SARCOS)",
    "in a tenth of the epochs half of the loss goes at 64, not at 16; four times B gains ever less",
)
def _compute(series: Sequence[Series]) -> Evidence:
    panel = _panels(series, "B", "compute_budget").get("sarcos", {})
    if {16.0, 64.0, 256.0, 1024.0} <= set(panel):
        early = max(1, panel[64.0].epochs // 10)

        def left(s: Series) -> float:
            first, then = s.at(0), s.at(early)
            return then.mean / first.mean if first and then and not s.diverged else inf

        yield left(panel[64.0]) <= 0.5 < left(panel[16.0]), _told("sarcos", panel)
        gains = [panel[a].level / panel[b].level for a, b in pairwise((16.0, 64.0, 256.0, 1024.0))]
        yield all(b < a for a, b in pairwise(gains)), ""


@_claim(
    "section 6.2",
    "a buffer of a quarter (M = 0.25) is still competitive",
    "within a tenth of the loss, or two points, of the best M",
    2,
)
def _memory(series: Sequence[Series]) -> Evidence:
    for task, panel in _panels(series, "M", "memory_budget").items():
        if s := panel.get(0.25):
            most = _best_of(panel) + 0.02 if s.accuracy else 1.1 * _best_of(panel)
            yield s.level <= most < inf, _told(task, panel)


@_claim(
    "section 6.2",
    "B = 1, γ = 0.95, ε = 1 ends at 68.64, below BCCD with B = 64",
    "at that or less, at the best of the rates",
)
def _stress(series: Sequence[Series]) -> Evidence:
    own = [s for s in series if (s.plan, s.run["group"]) == ("figure-ablation", STRESS)]
    wanted = paper.STRESS_SETTINGS.items()
    ours = dict(ordered([s for s in own if all(s.settings.get(k) == v for k, v in wanted)], "lr"))
    for rival in [s for s in own if s.method == "bccd" and ours]:
        yield _best_of(ours) < rival.level, f"lr: {_chain(ours)}; BCCD {text.outcome(rival)}"
        yield _best_of(ours) <= paper.STRESS_LOSS, ""


@_claim("section 6.3", "SPSA and ZO-SGD diverge on SARCOS", "both do, at CoCD's rate", 4)
def _diverge(series: Sequence[Series]) -> Evidence:
    rate = paper.settings("sarcos", "cocd")["lr"]
    own = [s for s in series if s.plan in ("figure-random", "table-main") and s.task == "sarcos"]
    for method in ("spsa", "zosgd"):
        s = _longest(s for s in own if (s.method, s.settings.get("lr")) == (method, rate))
        if s is not None and (s.ended or s.diverged):
            low = min((point.y.mean for point in s.curve("metric")), default=inf)
            yield bool(s.diverged), f"{s.label} {text.outcome(s)}, at best {text.number(low)}"
            yield s.level > 1.25 * low, ""  # it ends well above its lowest


@_claim("section 6.3", "and match CoCD on classification", "each within two points on MNIST", 2)
def _match(series: Sequence[Series]) -> Evidence:
    base = _paper(series, "cocd").get("mnist")
    for method in ("spsa", "zosgd"):
        own = [s for s in series if (s.plan, s.task, s.method) == ("table-main", "mnist", method)]
        best = min((s for s in own if s.ended), key=_level, default=None)
        if base is not None and best is not None:
            yield abs(best.level - base.level) <= 0.02, _against(base, best)


@_claim("section 6.3", "CoCD is almost twice as fast as ZO-SGD", "1.9 times, at equal probes", 2)
def _twice_as_fast(series: Sequence[Series]) -> Evidence:
    main = [s for s in series if s.plan == "table-main"]
    slow = _labelled(main, "ZO-SGD (tuned)").get("sarcos")
    plain = _longest(s for s in main if s.settings.get("engine") == "sequential")
    if slow and plain and slow.seconds_per_epoch and plain.seconds_per_epoch:
        ours, theirs = plain.seconds_per_epoch.mean, slow.seconds_per_epoch.mean
        yield theirs > ours, f"ZO-SGD {theirs:.3g} s/epoch, one evaluation per probe {ours:.3g}"
        yield theirs >= 1.9 * ours, ""


@_claim("appendix", "on ResNet-20 every γ above 0 is better than 0", "each is, and some learn")
def _resnet(series: Sequence[Series]) -> Evidence:
    own = [s for s in series if s.plan == "figure-resnet" and s.reached]
    most = max((s.epochs * s.run["steps_per_epoch"] for s in own), default=0)
    own = [s for s in own if s.epochs * s.run["steps_per_epoch"] == most]
    gamma = {float(s.settings.get("decay", 0.0)): s for s in own}
    for value, s in sorted(gamma.items()) if 0.0 in gamma else ():
        if value:
            learns = min(s.level, gamma[0.0].level) < 0.89
            here = f"γ {text.plain(value)}: {_against(s, gamma[0.0])}"
            yield (gap(s, gamma[0.0]) > 0 if learns else None), here


def _errors(series: Sequence[Series]) -> list[errors.Measured]:
    return errors.measured([s for s in series if s.plan == "figure-error-bound"])


@_claim("appendix", "the estimate's error falls with B", "with every larger B")
def _error_falls(series: Sequence[Series]) -> Evidence:
    for one in _errors(series):
        yield one.falls, f"{one.group}: error ∝ B^{one.power.slope:.2f}"


@_claim("appendix", "and lies on a straight line over log B", "95 % of the variance lie on it")
def _straight(series: Sequence[Series]) -> Evidence:
    for one in (one for one in _errors(series) if one.falls):
        here = f"a line explains {one.line.explained:.1%}, a power of B {one.power.explained:.1%}"
        yield one.line.explained >= 0.95, f"{one.group}: {here}"


@_claim("theorem", "the error stays below the bound", "the largest of each run does")
def _bound(series: Sequence[Series]) -> Evidence:
    for one in (one for one in _errors(series) if one.ratios):
        yield not one.exceeded, f"the bound is {min(one.ratios):.0f} times the error, or more"


@_claim(
    "introduction",
    "it needs less RAM than backpropagation",
    "the peak of a step is below SGD's on every network, one probe at a time or many at once",
)
def _light(series: Sequence[Series]) -> Evidence:
    def peaks(method: str, **wanted: object) -> dict[str, float]:
        keys = ("engine", "memory_budget")
        own = [s for s in series if s.method == method]
        own = [s for s in own if all(s.settings.get(k) == wanted.get(k) for k in keys)]
        return _measured(own, "table-memory", "tensor_peak_bytes")

    below = peaks("sgd")
    for engine, words in (("closure", "one probe at a time"), (None, "many at once")):
        for task, peak in peaks("cocd", engine=engine, memory_budget=1.0).items():
            if task in below:
                yield peak < below[task], f"{text.task(task)} {peak / below[task]:.2g} ({words})"
