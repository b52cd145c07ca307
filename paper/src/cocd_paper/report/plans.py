"""What the report knows of each plan: its title, and who builds charts, tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..style.colours import colour
from . import adaptive, claims, errors, paper, text, words
from .charts import Chart, Line, Panel, panel
from .series import Series, rank
from .tables import Table, finals, measures, tuning


@dataclass
class Content:
    """What the builder of a plan gives."""

    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    against_paper: list[str] = field(default_factory=list)


class Plan(NamedTuple):
    """What the report knows of a plan: its title, what it is in the paper, who builds it."""

    title: str
    about: str
    build: Callable[[str, list[Series]], Content]


def _tasks(series: Sequence[Series]) -> list[str]:
    return list(dict.fromkeys(s.task for s in series))


def main(name: str, series: list[Series]) -> Content:
    """The main table."""
    panels = tuple(
        panel(text.task(task), [s for s in series if s.task == task]) for task in _tasks(series)
    )
    return Content(
        charts=[Chart(name, "Held-out loss or accuracy over epochs", panels, min(len(panels), 3))],
        tables=[finals("Final metric, time and evaluations", series)],
        sentences=words.standings(series),
        against_paper=words.against_paper(series),
    )


def smoothing(name: str, series: list[Series]) -> Content:
    """CoCD and BCCD with four radii."""
    panels = tuple(
        panel(text.task(task), [s for s in series if s.task == task], "loss", with_paper=False)
        for task in _tasks(series)
    )
    return Content(
        charts=[Chart(name, "Held-out loss over epochs", panels, 1)],
        tables=[finals("Final loss", series)],
        sentences=words.standings(series),
        against_paper=claims.smoothing(series),
    )


GROUPS = {"eps": "ε", "gamma": "γ", "B": "B", "M": "M"}


def ablation(name: str, series: list[Series]) -> Content:
    """The grid: what is varied across, the tasks down; the stress test by itself."""
    content = Content()
    shown: list[tuple[Series, str]] = []
    found = {s.run["group"] for s in series if s.run["vary"] and s.run["group"] != claims.STRESS}
    groups = sorted(found, key=lambda g: rank(g, tuple(GROUPS)))
    panels: list[Panel] = []
    for task in _tasks(series):
        for one in groups:
            own = claims.varied(series, task, one)
            title = f"{text.task(task)}, effect of {GROUPS.get(one, one)}"
            if own:
                panels.append(panel(title, own, with_paper=False))
                shown += zip(own, text.names(own), strict=True)
                vary = own[0].run["vary"]
                claim = claims.ABLATION.get((task, vary), "")
                content.against_paper += claims.sweep(title, claim, own, vary)
    if panels:
        content.charts.append(Chart(name, "Ablation", tuple(panels), max(len(groups), 1)))
    rest = [s for s in series if s.run["group"] == claims.STRESS]
    if rest:
        made = [
            panel(f"{text.task(task)}, one coordinate a step", [s for s in rest if s.task == task])
            for task in _tasks(rest)
        ]
        if not rest[0].run["smoke"]:
            known = Line(f"paper {paper.STRESS_LOSS}", colour("cocd"), paper.STRESS_LOSS)
            made = [replace(one, lines=(known,)) for one in made]
        content.charts.append(Chart(f"{name}-stress", "Stress test", tuple(made), 2))
        content.against_paper += claims.stress(rest)
        shown += [
            (s, f"{name}, {claims.STRESS}") for s, name in zip(rest, text.names(rest), strict=True)
        ]
    others = [s for s in series if all(s is not known for known, _ in shown)]
    shown += zip(others, text.names(others), strict=True)
    shown.sort(key=lambda pair: _tasks(series).index(pair[0].task))
    own_names = [name for _, name in shown]
    content.tables.append(finals("Final metric", [s for s, _ in shown], own_names))
    return content


def random(name: str, series: list[Series]) -> Content:
    """Loss over evaluations and over seconds."""
    panels = []
    for task in _tasks(series):
        own = [s for s in series if s.task == task]
        free = [s for s in own if not s.first_order]
        for x, over in (("evaluations", "evaluations"), ("seconds", "time")):
            title = f"{text.task(task)}: loss over {over}"
            panels.append(panel(title, free or own, "loss", x, with_paper=False))
    return Content(
        charts=[Chart(name, "Loss over evaluations and over time", tuple(panels), 2)],
        tables=[finals("Final metric, time and evaluations", series)],
        sentences=words.standings(series),
        against_paper=claims.random_baselines(series),
    )


def resnet(name: str, series: list[Series]) -> Content:
    """Accuracy and loss over epochs, a curve for each decay."""
    content = Content(tables=[finals("Final metric, time and evaluations", series)])
    panels = []
    for task, size in dict.fromkeys((s.task, s.run["group"]) for s in series):
        own = [s for s in series if (s.task, s.run["group"]) == (task, size)]
        where = text.task(task) + (f", {size}" if size else "")
        panels += [panel(f"{where}: {shown}", own, key) for key, shown in _BOTH]
        content.against_paper += claims.resnet(where, own)
    content.charts.append(Chart(name, "Held-out accuracy and loss over epochs", tuple(panels), 2))
    return content


_BOTH = (("metric", "accuracy"), ("loss", "loss"))


def error_bound(name: str, series: list[Series]) -> Content:
    """Measured error and bound over the budget, both axes logarithmic."""
    made = errors.bounds(series)
    panels = tuple(one.panel for one in made)
    return Content(
        charts=[Chart(name, "Error of the estimate over the budget", panels, 2)],
        tables=[measures("Measured", series)],
        sentences=[sentence for one in made for sentence in one.sentences],
        against_paper=[sentence for one in made for sentence in one.against_paper],
    )


def memory(name: str, series: list[Series]) -> Content:
    """Optimizer state and peak memory."""
    return Content(tables=[measures("Measured", series)], sentences=words.memory(series))


def tune(name: str, series: list[Series]) -> Content:
    """The grids."""
    return Content(tables=tuning(series))


def automatic(name: str, series: list[Series]) -> Content:
    """AutoCoCD: evaluations, networks, first lengths, parts."""
    groups = {one: [s for s in series if s.run["group"] == one] for one in _AUTOMATIC}
    rest = [s for s in series if s.run["group"] not in _AUTOMATIC]
    content = generic(f"{name}-other", rest) if rest else Content()
    if own := sorted(groups["defaults"] + groups["queries"], key=series.index):
        panels = tuple(
            replace(
                panel(text.task(task), [s for s in own if s.task == task], x="evaluations"),
                lines=adaptive.paper_lines(task, own),
            )
            for task in _tasks(own)
        )
        title = "Held-out loss or accuracy over evaluations"
        content.charts.append(Chart(name, title, panels, min(len(panels), 3)))
        part = any(s.epochs != paper.EPOCHS for s in own)
        title = f"The paper's number of evaluations{', or a part of it' if part else ''}"
        content.tables.append(finals(title, own))
        content.sentences += [*adaptive.soon(own), *adaptive.found(own)]
    if own := groups["robust"]:
        table, sentences = adaptive.cells(own)
        content.tables.append(table)
        content.sentences += sentences
    for task in _tasks(groups["batches"]):
        usual = [s for s in groups["defaults"] if s.task == task and s.epochs == paper.EPOCHS]
        larger = [s for s in groups["batches"] if s.task == task]
        table, sentences = adaptive.batches([*usual, *larger])
        content.tables.append(table)
        content.sentences += sentences
    if own := groups["budget"]:
        content.tables.append(finals("The budget that it finds, and fixed ones", own))
    for one, title, head in (
        ("lr", "A first length that is wrong", "first length"),
        ("ablation", "What each part is worth", "variant"),
    ):
        for task in _tasks(groups[one]):
            own = [s for s in groups[one] if s.task == task]
            first = next((s for s in own if _is_default(s)), None)
            if first is not None:
                named = f"{title}, {text.task(task)}"
                content.tables.append(adaptive.beside_the_first(named, head, own, first))
                content.sentences += adaptive.wrong_lengths(own, first) if one == "lr" else []
    return content


_AUTOMATIC = ("queries", "defaults", "robust", "batches", "budget", "lr", "ablation")


def _is_default(series: Series) -> bool:
    return series.label in ("AutoCoCD", "AutoCoCD (lr 1)")


def generic(name: str, series: list[Series]) -> Content:
    """Curves, measurements and a table, for plans that the report does not know."""
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
        charts=[Chart(name, "Held-out metric over epochs", panels, min(max(len(panels), 1), 3))],
        tables=[
            finals("Final metric, time and evaluations", trained),
            measures("Measured", [s for s in series if any(r.measures for r in s.results)]),
        ],
        sentences=words.standings(trained),
        against_paper=words.against_paper(trained),
    )


PLANS = {
    "table-main": Plan(
        "Main results", "Table 2 of the paper: CoCD, BCCD and SGD on three tasks.", main
    ),
    "figure-smoothing": Plan(
        "Smoothing",
        "The paper's figure of its anomaly: CoCD and BCCD with radii from 1e-6 to 1 on SARCOS.",
        smoothing,
    ),
    "figure-ablation": Plan(
        "Ablation",
        "The ablation grid of the paper: one setting is varied at a time.",
        ablation,
    ),
    "figure-random": Plan(
        "Random directions",
        "CoCD, SPSA and ZO-SGD at equal evaluations. Here a probe of one coordinate recomputes "
        "what it changes; a direction changes all.",
        random,
    ),
    "table-memory": Plan("Memory", "Optimizer state and peak memory of a step.", memory),
    "figure-resnet": Plan("ResNet-20", "Appendix: ResNet-20 on CIFAR-10, by γ.", resnet),
    "figure-error-bound": Plan(
        "Error bound",
        "Appendix: the error of the estimate over the budget B, beside the theorem's bound.",
        error_bound,
    ),
    "tune": Plan(
        "Tuning", "Settings tried on validation rows, on which the best was chosen.", tune
    ),
    "adaptive": Plan(
        "Adaptive", "Beyond the paper: AutoCoCD, which finds its own step lengths.", automatic
    ),
}
