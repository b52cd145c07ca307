"""In short: every method without gradients over evaluations, AutoCoCD beside the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .._look.colours import colour
from . import adaptive, text, words
from .charts import Chart, Line, Panel, panel
from .plans import Content
from .series import Series, better

NAME, TITLE = "overview", "In short"
ABOUT = "Held-out loss or accuracy at equal evaluations of the loss; the sections below have more."
_MAIN, _AUTOMATIC = "table-main", "adaptive"
_WHOLE = ("defaults", "queries")  # groups of runs at the paper's number of evaluations


def chosen(series: Sequence[Series]) -> list[Series]:
    """The rows of the main table, and AutoCoCD's at the same evaluations on the same networks.

    With nothing set, where it has been run like that; else with the budget of its plan.
    """
    main = [s for s in series if s.plan == _MAIN and s.run["split"] == "test" and _real(s)]
    known = {(s.task, s.settings.get("activation"), s.epochs) for s in main}
    auto = [
        s
        for s in series
        if (s.plan, s.method) == (_AUTOMATIC, adaptive.AUTO)
        and s.run["group"] in _WHOLE
        and _real(s)
        and (s.task, s.settings.get("activation"), s.epochs) in known
    ]
    plain = {s.task for s in auto if s.run["group"] == _WHOLE[0]}
    return main + [s for s in auto if s.run["group"] == _WHOLE[0] or s.task not in plain]


def _real(series: Series) -> bool:
    return not series.run["smoke"] and any(r.epochs for r in series.results)


def overview(name: str, series: list[Series]) -> Content:
    """One picture, and a sentence for each thing that most readers come for."""
    tasks = list(dict.fromkeys(s.task for s in series))
    panels = tuple(_panel(task, [s for s in series if s.task == task]) for task in tasks)
    main = [s for s in series if s.plan == _MAIN]
    beside = [line for s in series if s.method == adaptive.AUTO for line in _beside(s, main)]
    return Content(
        charts=[Chart(name, "Held-out loss or accuracy over evaluations", panels, len(panels))],
        sentences=[*words.headline(main), *beside],
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
    others = [
        s
        for s in main
        if s.task == auto.task and not s.first_order and not s.diverged and s.final is not None
    ]
    best = None
    for s in others:
        if best is None or better(_mean(s), _mean(best), accuracy=s.accuracy):
            best = s
    made = words.compare(auto, best) if best is not None else None
    if made is None or made.left is None or made.verdict not in _STANDS:
        return []
    ours = text.spread(made.left, accuracy=auto.accuracy)
    when = words.after(made.epoch, auto.epochs)
    return [
        f"{text.task(auto.task)}, {auto.label}: {ours} {when}, {text.seeds(len(auto.results))}; "
        f"{_STANDS[made.verdict]} the best of the others, {made.other.label} ({made.amount})."
    ]


_STANDS = {"better": "ahead of", "worse": "behind", "level": "not to be told apart from"}


def _mean(series: Series) -> float:
    assert series.final is not None
    return series.final.mean
