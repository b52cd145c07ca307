"""One section for each plan: its charts, tables and sentences. Page and markdown print these."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import claims, errors, text, words
from .charts import Chart, Panel, panel
from .coherence import coherence
from .read import Result
from .series import Series, group, rank
from .tables import Table, finals, measures, runs, tuning


@dataclass(frozen=True)
class Section:
    """All that is shown of a plan."""

    plan: str
    title: str
    about: str
    smoke: bool
    commands: tuple[str, ...]
    cautions: tuple[str, ...]
    notes: tuple[str, ...]
    sentences: tuple[str, ...]
    against_paper: tuple[str, ...]
    charts: tuple[Chart, ...]
    coherence: tuple[Chart, ...]
    tables: tuple[Table, ...]
    runs: Table

    @property
    def name(self) -> str:
        """For files and anchors."""
        return f"{self.plan}-smoke" if self.smoke else self.plan


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


def sections(results: Sequence[Result]) -> list[Section]:
    """A section for each plan that has rows, the paper's in its order and then the others."""
    series = group(results)
    keys = {(s.plan, bool(s.run["smoke"])) for s in series}
    order = sorted(keys, key=lambda key: (key[1], rank(key[0], tuple(PLANS))))
    return [
        _section(
            plan, smoke, [s for s in series if (s.plan, bool(s.run["smoke"])) == (plan, smoke)]
        )
        for plan, smoke in order
    ]


def _section(plan: str, smoke: bool, series: list[Series]) -> Section:
    known = PLANS.get(plan, Plan(plan.replace("-", " ").capitalize(), "", generic))
    name = f"{plan}-smoke" if smoke else plan
    content = known.build(name, series)
    return Section(
        plan=plan,
        title=known.title + (" (small form)" if smoke else ""),
        about=known.about,
        smoke=smoke,
        commands=commands(r for s in series for r in s.results),
        cautions=tuple(words.caution(series)),
        notes=tuple(words.notes(series)),
        # Generated data have nothing to say about methods or about the paper.
        sentences=() if smoke else tuple(content.sentences),
        against_paper=() if smoke else tuple(content.against_paper),
        charts=tuple(c for c in content.charts if any(p.curves for p in c.panels)),
        coherence=tuple(coherence(name, series)),
        tables=tuple(t for t in content.tables if t.rows),
        runs=runs(series),
    )


def commands(results: Iterable[Result]) -> tuple[str, ...]:
    """The commands that made the rows, each once, without the folders of a machine.

    >>> one = Result({"command": "cocd reproduce tune --data /home/me/data"}, (), (), None, "")
    >>> commands([one, one])
    ('cocd reproduce tune --data DIR',)
    """
    found: dict[str, None] = {}
    for result in results:
        if result.run["command"]:
            found[_portable(str(result.run["command"]))] = None
    return tuple(sorted(found))


def _portable(command: str) -> str:
    try:
        parts = shlex.split(command)
    except ValueError:
        return command
    out: list[str] = []
    for part in parts:
        name, equals, _ = part.partition("=")
        if name in ("--data", "--out") and equals:
            part = f"{name}=DIR"
        elif out and out[-1] in ("--data", "--out"):
            part = "DIR"
        out.append(part)
    return shlex.join(out)


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
        sentences=[*words.headline(series), *words.standings(series)],
        against_paper=words.against_paper(series),
    )


def smoothing(name: str, series: list[Series]) -> Content:
    """CoCD and BCCD with four radii."""
    panels = tuple(
        panel(text.task(task), [s for s in series if s.task == task], "loss", with_paper=False)
        for task in _tasks(series)
    )
    return Content(
        charts=[Chart(name, "Validation loss over epochs", panels, 1)],
        tables=[finals("Final loss", series)],
        sentences=words.standings(series),
        against_paper=claims.smoothing(series),
    )


GROUPS = {"eps": "ε", "gamma": "γ", "B": "B", "M": "M"}
STRESS = "stress"


def ablation(name: str, series: list[Series]) -> Content:
    """The grid: what is varied across, the tasks down; the stress test by itself."""
    content = Content()
    shown: list[tuple[Series, str]] = []
    found = {s.run["group"] for s in series if s.run["vary"] and s.run["group"] != STRESS}
    groups = sorted(found, key=lambda g: rank(g, tuple(GROUPS)))
    panels: list[Panel] = []
    for task in _tasks(series):
        for one in groups:
            own = varied(series, task, one)
            title = f"{text.task(task)}, effect of {GROUPS.get(one, one)}"
            if own:
                panels.append(panel(title, own, with_paper=False))
                shown += zip(own, text.names(own), strict=True)
                vary = own[0].run["vary"]
                claim = claims.ABLATION.get((task, vary), "")
                content.against_paper += claims.sweep(title, claim, own, vary)
    if panels:
        content.charts.append(Chart(name, "Ablation", tuple(panels), max(len(groups), 1)))
    rest = [s for s in series if s.run["group"] == STRESS]
    if rest:
        made = [
            panel(f"{text.task(task)}, one coordinate a step", [s for s in rest if s.task == task])
            for task in _tasks(rest)
        ]
        content.charts.append(Chart(f"{name}-stress", "Stress test", tuple(made), 2))
        content.against_paper += claims.stress(rest)
        shown += [(s, f"{name}, {STRESS}") for s, name in zip(rest, text.names(rest), strict=True)]
    others = [s for s in series if all(s is not known for known, _ in shown)]
    shown += zip(others, text.names(others), strict=True)
    own_names = [name for _, name in shown]
    content.tables.append(finals("Final metric", [s for s, _ in shown], own_names))
    return content


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
    return [s for _, s in claims.ordered(own, vary)] or own


def _without(series: Series, name: str) -> dict[str, object]:
    return {key: value for key, value in series.settings.items() if key != name}


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
    panels = tuple(
        panel(f"{text.task(task)}: {shown}", [s for s in series if s.task == task], key)
        for task in _tasks(series)
        for key, shown in (("metric", "accuracy"), ("loss", "loss"))
    )
    return Content(
        charts=[Chart(name, "Held-out accuracy and loss over epochs", panels, 2)],
        tables=[finals("Final metric, time and evaluations", series)],
        against_paper=claims.resnet(series),
    )


def error_bound(name: str, series: list[Series]) -> Content:
    """Measured error and bound over the budget, both axes logarithmic."""
    made = errors.bound(series)
    return Content(
        charts=[Chart(name, "Error of the estimate over the budget", (made.panel,), 1)],
        tables=[measures("Measured", series)],
        sentences=made.sentences,
        against_paper=made.against_paper,
    )


def memory(name: str, series: list[Series]) -> Content:
    """Optimizer state and peak memory."""
    return Content(tables=[measures("Measured", series)])


def tune(name: str, series: list[Series]) -> Content:
    """The grids."""
    return Content(tables=tuning(series))


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
        "Random directions", "CoCD, SPSA and ZO-SGD at equal evaluations.", random
    ),
    "table-memory": Plan("Memory", "Optimizer state and peak memory of a step.", memory),
    "figure-resnet": Plan("ResNet-20", "Appendix: ResNet-20 on CIFAR-10, by γ.", resnet),
    "figure-error-bound": Plan(
        "Error bound",
        "Appendix: the error of the estimate over the budget B, beside the theorem's bound.",
        error_bound,
    ),
    "tune": Plan("Tuning", "Settings tried on validation rows, before any test row.", tune),
}
