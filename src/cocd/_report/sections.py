"""One section for each plan: its charts, tables and sentences. Page and markdown print these."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import words
from .charts import Chart
from .coherence import Coherence, coherence
from .plans import PLANS, Plan, generic
from .read import Result
from .series import Series, group, rank
from .tables import Table, runs


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
    coherence: Coherence
    tables: tuple[Table, ...]
    runs: Table

    @property
    def figure_first(self) -> bool:
        """Whether the plan is a figure of the paper, so that its tables come second."""
        return self.plan.startswith("figure-")

    @property
    def name(self) -> str:
        """For files and anchors."""
        return f"{self.plan}-smoke" if self.smoke else self.plan


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
        coherence=coherence(name, series),
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
