"""What is shown of each plan: its title, its charts and its tables.

A plan that is not in `PLANS` gets curves, measurements and a table of final metrics (`generic`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from . import errors, paper, text
from .charts import Chart, Curve, Line, Panel, palette, panel, scaled
from .colours import colour
from .series import Series, rank
from .tables import Table, beside_the_first, compared, finals, measures, tuning


@dataclass(frozen=True)
class Content:
    """What the builder of a plan gives; charts without curves and tables without rows go."""

    charts: Iterable[Chart] = ()
    tables: Iterable[Table] = ()


class Plan(NamedTuple):
    """A title, what it is in the paper, and who builds charts and tables."""

    title: str
    about: str
    build: Callable[[str, list[Series]], Content]


def tasks(series: Sequence[Series]) -> dict[str, list[Series]]:
    """The series of each task, in their order."""
    found: dict[str, list[Series]] = {}
    for s in series:
        found.setdefault(s.task, []).append(s)
    return found


def main(name: str, series: list[Series]) -> Content:
    """The main table."""
    panels = tuple(panel(text.task(task), own) for task, own in tasks(series).items())
    charts = [Chart(name, "Held-out loss or accuracy over epochs", panels, min(len(panels), 3))]
    carried = [s for s in series if s.collect(_epoch, _told("correlation"))]
    if carried:
        told = tuple(
            _coherence(task, own, what)
            for task, own in tasks(carried).items()
            for what in ("correlation", "relative_change")
        )
        charts.append(Chart(f"{name}-coherence", "Coherence over time", told))
    return Content(charts, [finals("Final metric, time and evaluations", series)])


def _coherence(task: str, own: Sequence[Series], what: str) -> Panel:
    """What runs told of their own coherence, once per epoch."""
    words = what.replace("_", " ")
    curves = tuple(
        Curve(name, tint, tuple(s.collect(_epoch, _told(what))), dash)
        for s, name, (tint, dash) in zip(own, text.names(own), palette(own), strict=True)
    )
    return scaled(Panel(f"{text.task(task)}: {words}", "epochs", words, curves))


def _epoch(row: dict[str, object]) -> float:
    return float(str(row["epoch"]))


def _told(what: str) -> Callable[[dict[str, object]], float | None]:
    def get(row: dict[str, object]) -> float | None:
        told = row.get("coherence")
        value = told.get(what) if isinstance(told, dict) else None
        return None if value is None else float(value)

    return get


def smoothing(name: str, series: list[Series]) -> Content:
    """CoCD and BCCD with four radii."""
    panels = tuple(
        panel(text.task(task), own, "loss", with_paper=False) for task, own in tasks(series).items()
    )
    chart = Chart(name, "Held-out loss over epochs", panels, 1)
    return Content([chart], [finals("Final loss", series)])


STRESS = "stress"  # the group of the runs with one coordinate per step
_GROUPS = {"eps": "ε", "gamma": "γ", "B": "B", "M": "M"}


def ablation(name: str, series: list[Series]) -> Content:
    """The grid: what is varied across, the tasks down; the stress test by itself."""
    groups = sorted(
        {s.run["group"] for s in series} - {STRESS}, key=lambda g: rank(g, tuple(_GROUPS))
    )
    panels = tuple(
        panel(f"{text.task(task)}, effect of {_GROUPS.get(one, one)}", own, with_paper=False)
        for task in tasks(series)
        for one in groups
        if (own := varied(series, task, one))
    )
    stressed = [s for s in series if s.run["group"] == STRESS]
    known = Line(f"paper {paper.STRESS_LOSS}", colour("cocd"), paper.STRESS_LOSS)
    beside = tuple(
        replace(panel(f"{text.task(task)}, one coordinate per step", own), lines=(known,))
        for task, own in tasks(stressed).items()
    )
    return Content(
        [
            Chart(name, "Ablation", panels, max(len(groups), 1)),
            Chart(f"{name}-stress", "Stress test", beside, 2),
        ],
        [finals("Final metric", series)],
    )


def varied(series: Sequence[Series], task: str, group: str) -> list[Series]:
    """The series of a group, and those of other groups that differ in the varied setting alone.

    A run at the defaults belongs to every panel, and a plan need not make it more than once.
    """
    own = [s for s in series if s.task == task and s.run["group"] == group]
    if not own:
        return []
    vary = own[0].run["vary"]

    def rest(s: Series) -> object:
        settings = {key: value for key, value in s.settings.items() if key != vary}
        return s.task, s.method, s.epochs, settings

    have = {s.settings.get(vary) for s in own}
    for s in series:
        value = s.settings.get(vary)
        if s.run["group"] != STRESS and value not in have and rest(s) == rest(own[0]):
            own.append(s)
            have.add(value)
    return [s for _, s in ordered(own, vary)] or own


def ordered(series: Sequence[Series], vary: str) -> list[tuple[float, Series]]:
    """The series with a number for `vary`, small to large."""
    pairs = [(s.settings.get(vary), s) for s in series]
    numbers = [(float(v), s) for v, s in pairs if isinstance(v, (int, float))]
    return sorted(numbers, key=lambda pair: pair[0])


def random(name: str, series: list[Series]) -> Content:
    """Loss over evaluations and over seconds."""
    panels = tuple(
        panel(f"{text.task(task)}: loss over {over}", free, "loss", x, with_paper=False)
        for task, own in tasks(series).items()
        if (free := [s for s in own if not s.first_order])
        for x, over in (("evaluations", "evaluations"), ("seconds", "time"))
    )
    chart = Chart(name, "Loss over evaluations and over time", panels, 2)
    return Content([chart], [finals("Final metric, time and evaluations", series)])


def resnet(name: str, series: list[Series]) -> Content:
    """Accuracy and loss over epochs, a curve for each decay."""
    panels = tuple(
        panel(f"{text.task(task)}{', ' * bool(size)}{size}: {shown}", own, key)
        for task, size in dict.fromkeys((s.task, s.run["group"]) for s in series)
        if (own := [s for s in series if (s.task, s.run["group"]) == (task, size)])
        for key, shown in (("metric", "accuracy"), ("loss", "loss"))
    )
    chart = Chart(name, "Held-out accuracy and loss over epochs", panels, 2)
    return Content([chart], [finals("Final metric, time and evaluations", series)])


def error_bound(name: str, series: list[Series]) -> Content:
    """Measured error and bound over the budget, both axes logarithmic."""
    panels = tuple(map(errors.panel, errors.measured(series)))
    chart = Chart(name, "Error of the estimate over the budget", panels, 2)
    return Content([chart], [measures("Measured", series)])


def measured(name: str, series: list[Series]) -> Content:
    """Measurements alone."""
    return Content(tables=[measures("Measured", series)])


def tune(name: str, series: list[Series]) -> Content:
    """The grids."""
    return Content(tables=tuning(series))


def adaptive(name: str, series: list[Series]) -> Content:
    """AutoCoCD: evaluations, networks, batches, budgets, first lengths, parts."""
    groups: dict[str, list[Series]] = {}
    for s in series:
        groups.setdefault(s.run["group"], []).append(s)
    own = sorted(groups.get("defaults", []) + groups.get("queries", []), key=series.index)
    panels = tuple(over_evaluations(task, part) for task, part in tasks(own).items())
    title = "Held-out loss or accuracy over evaluations"
    made = [finals("The paper's number of evaluations, or a part of it", own)]
    made.append(finals("One set of defaults on many networks", groups.get("robust", [])))
    for group, words in (("batches", "Larger batches"), ("budget", "Budgets, found and fixed")):
        made.append(compared(words, groups.get(group, [])))
    for group, words in (("lr", "A first length that is wrong"), ("ablation", "Each part")):
        for task, part in tasks(groups.get(group, [])).items():
            usual = [s for s in part if s.label in ("AutoCoCD", "AutoCoCD (lr 1)")]
            if usual:
                others = [s for s in part if s not in usual]
                made.append(beside_the_first(f"{words}, {text.task(task)}", [*usual, *others]))
    return Content([Chart(name, title, panels, min(max(len(panels), 1), 3))], made)


def over_evaluations(task: str, series: Sequence[Series]) -> Panel:
    """The methods without gradients; what gradients reach, and the paper's CoCD, lie across."""
    made = panel(
        text.task(task), [s for s in series if not s.first_order], x="evaluations", with_paper=False
    )
    known = paper.entry(task, "cocd", paper.settings(task, "cocd"))
    lines: list[Line] = []
    if known is not None and not series[0].run["smoke"]:
        shown = text.metric(known.metric, accuracy=series[0].accuracy)
        lines.append(Line(f"paper's CoCD {shown}", colour("cocd"), known.metric))
    for s in series:
        if s.first_order and s.ended and s.final:
            shown = text.metric(s.final.mean, accuracy=s.accuracy)
            lines.append(Line(f"{s.label} {shown}", colour(s.method), s.final.mean))
    return replace(made, lines=tuple(lines))


OVERVIEW = "overview"


def overview(name: str, series: list[Series]) -> Content:
    """All that was trained for the paper's number of evaluations, AutoCoCD with nothing set too."""
    own = [
        s
        for s in series
        if s.as_planned
        and s.run["split"] == "test"
        and (s.plan == "table-main" or (s.plan, s.run["group"]) == ("adaptive", "defaults"))
        and s.epochs == paper.EPOCHS
    ]
    panels = tuple(over_evaluations(task, part) for task, part in tasks(own).items())
    title = "Held-out loss or accuracy over evaluations"
    return Content([Chart(name, title, panels, max(len(panels), 1))])


def generic(name: str, series: list[Series]) -> Content:
    """Curves, measurements and a table."""
    trained = [s for s in series if any(r.epochs for r in s.results)]
    parts = dict.fromkeys((s.task, s.run["group"]) for s in trained)
    panels = tuple(
        panel(
            ", ".join(part for part in (text.task(task), one) if part),
            [s for s in trained if (s.task, s.run["group"]) == (task, one)],
        )
        for task, one in parts
    )
    return Content(
        [Chart(name, "Held-out metric over epochs", panels, min(max(len(panels), 1), 3))],
        [finals("Final metric, time and evaluations", trained), measures("Measured", series)],
    )


PLANS = {
    "table-main": Plan("Main results", "Table 2 of the paper, with tuned baselines.", main),
    "figure-smoothing": Plan("Smoothing", "CoCD and BCCD with radii from 1e-6 to 1.", smoothing),
    "figure-ablation": Plan("Ablation", "One setting is varied at a time.", ablation),
    "figure-random": Plan(
        "Random directions", "CoCD, SPSA and ZO-SGD at equal evaluations.", random
    ),
    "table-memory": Plan("Memory", "Optimizer state and peak memory of a step.", measured),
    "table-time": Plan("Time of reuse", "Steps of CoCD and BCCD by turns.", measured),
    "figure-resnet": Plan("ResNet-20", "ResNet-20 on CIFAR-10, by γ.", resnet),
    "figure-error-bound": Plan(
        "Error bound", "The error of the estimate over B, beside the theorem's bound.", error_bound
    ),
    "tune": Plan("Tuning", "Settings tried on validation rows.", tune),
    "deepzero": Plan(
        "DeepZero", "Sparse coordinate differences, and CoCD in their place.", generic
    ),
    "adaptive": Plan("Adaptive", "AutoCoCD, which finds its own step lengths.", adaptive),
}
