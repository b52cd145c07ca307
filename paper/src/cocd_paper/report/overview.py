"""In short: every method without gradients over evaluations, AutoCoCD beside the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from ..style.colours import colour
from . import adaptive, paper, text, words
from .charts import Chart, Line, Panel, panel
from .plans import Content
from .series import Series, better
from .tables import duels

NAME, TITLE = "overview", "In short"
ABOUT = (
    "Held-out loss or accuracy at equal evaluations of the loss; the sections below have more. "
    "AutoCoCD is not the paper's method but this library's, which sets its own steps."
)
_MAIN, _AUTOMATIC = "table-main", "adaptive"
_OWN = "defaults"  # runs with nothing set, and with a budget of the plan's
_WHOLE = (_OWN, "queries")


def chosen(series: Sequence[Series]) -> list[Series]:
    """The rows of the main table, and AutoCoCD's at the same evaluations on the same networks.

    With nothing set, where it has been run like that for as long; else with its plan's budget.
    """
    main = [s for s in series if s.plan == _MAIN and s.run["split"] == "test" and _real(s)]
    main = [s for s in main if s.as_planned]
    known = {_like(s) for s in main}
    auto = [
        s
        for s in series
        if (s.plan, s.method) == (_AUTOMATIC, adaptive.AUTO)
        and s.run["group"] in _WHOLE
        and _real(s)
        and _like(s) in known
    ]
    furthest = {s.task: s for s in sorted(auto, key=lambda s: (s.reached, s.run["group"] == _OWN))}
    shown = {s.task: s.run["group"] for s in furthest.values()}
    return main + [s for s in auto if s.run["group"] == shown[s.task]]


def _real(series: Series) -> bool:
    return not series.run["smoke"] and any(r.epochs for r in series.results)


def overview(name: str, series: list[Series]) -> Content:
    """One picture, and a sentence for each thing that most readers come for."""
    tasks = list(dict.fromkeys(s.task for s in series))
    panels = tuple(_panel(task, [s for s in series if s.task == task]) for task in tasks)
    main = [s for s in series if s.plan == _MAIN]
    auto = [s for s in series if s.method == adaptive.AUTO]
    beside = [line for s in auto for line in (*_beside(s, main), *_soon(s, main))]
    return Content(
        charts=[Chart(name, "Held-out loss or accuracy over evaluations", panels, len(panels))],
        tables=[duels(main)],
        sentences=beside,
    )


def _panel(task: str, own: Sequence[Series]) -> Panel:
    """Curves of the methods without gradients; what gradients reach is a line across."""
    free = [s for s in own if not s.first_order]
    made = panel(text.task(task), free, x="evaluations", with_paper=False)
    lines = adaptive.paper_lines(task, own)
    for s in own:
        if s.first_order and s.final is not None and s.reached == s.epochs:
            shown = text.metric(s.final.mean, accuracy=s.accuracy)
            lines += (Line(f"{s.label} {shown}", colour(s.method), s.final.mean),)
    return replace(made, lines=lines)


def _beside(auto: Series, main: Sequence[Series]) -> list[str]:
    """AutoCoCD and the best of the others on the same task, where both have come to."""
    who = f"{text.task(auto.task)}, {auto.label}"
    if auto.diverged:
        return [f"{who}: {words.how_many(auto)}."]
    others = [
        s
        for s in main
        if _like(s) == _like(auto) and not s.first_order and not s.diverged and s.reached
    ]
    best = None
    for s in others:
        if best is None or _leads(s, best, min(auto.reached, s.reached, best.reached)):
            best = s
    made = words.compare(auto, best) if best is not None else None
    if made is None or made.left is None or made.verdict not in _STANDS:
        return []
    ours = text.spread(made.left, accuracy=auto.accuracy)
    when = words.after(made.epoch, auto.epochs)
    return [
        f"{who}: {ours} {when}, {text.seeds(len(auto.results))}; {_STANDS[made.verdict]} the best "
        f"of the others, {made.other.label} ({made.amount})."
    ]


def _soon(auto: Series, main: Sequence[Series]) -> list[str]:
    """How much of the evaluations it takes to where the paper ends, and how much CoCD takes here.

    Both, because networks and data here may be kinder than the paper's.
    """
    for s in main:
        entry = paper.entry(s.task, s.method, s.settings)
        if s.method != words.OURS or _like(s) != _like(auto) or entry is None or auto.diverged:
            continue
        each = text.listed(f"{one.label} {_spent(one, entry.metric)}" for one in (auto, s))
        metric = text.metric(entry.metric, accuracy=s.accuracy)
        return [
            f"{text.task(s.task)}, evaluations until the paper's final {metric}, as a part of the "
            f"paper's number: {each}."
        ]
    return []


def _spent(series: Series, metric: float) -> str:
    """After which part of the paper's evaluations its seeds are there, as many as are."""
    seeds = [replace(series, results=(result,)) for result in series.results]
    found = [adaptive.spent_until(one, metric) for one in seeds]
    there = [n for n in found if n is not None]
    if not there:
        return "not yet" if series.status == "unfinished" else "never"
    part = f"after {fmean(there) / paper.EVALUATIONS[series.task]:.1%}"
    return part if len(there) == len(found) else f"{part} in {len(there)} of {len(found)} seeds"


_STANDS = {"better": "ahead of", "worse": "behind", "level": "not to be told apart from"}


def _like(series: Series) -> tuple[object, ...]:
    """What two series must share to be set beside each other."""
    return series.task, series.settings.get("activation"), series.epochs


def _leads(one: Series, other: Series, epoch: int) -> bool:
    mine, theirs = one.at(epoch), other.at(epoch)
    if mine is None or theirs is None:
        return False
    return better(mine.mean, theirs.mean, accuracy=one.accuracy)
