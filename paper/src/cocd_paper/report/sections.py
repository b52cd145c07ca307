"""In short, the paper's claims, then a section for each plan: what page and markdown print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import overview, verdicts, words
from .charts import Chart
from .coherence import Coherence, coherence
from .commands import commands
from .plans import PLANS, Plan, generic
from .read import Result
from .series import Series, group, rank
from .tables import Table, runs


@dataclass(frozen=True)
class Section:
    """All that is shown of a plan, of the main results in short, or of the claims."""

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
        """Whether it is about a picture, as the figures of the paper are: tables come second."""
        return self.plan.startswith("figure-") or self.plan == overview.NAME

    @property
    def name(self) -> str:
        """For files and anchors."""
        return f"{self.plan}-smoke" if self.smoke else self.plan


def sections(results: Sequence[Result]) -> list[Section]:
    """In short, the claims, then each plan that has rows: the paper's in its order, the others."""
    series = group(results)
    keys = {(s.plan, bool(s.run["smoke"])) for s in series}
    order = sorted(keys, key=lambda key: (key[1], rank(key[0], tuple(PLANS))))
    free = [s for s in overview.chosen(series) if not s.first_order]
    made = [_in_short(overview.chosen(series))] if free else []
    made += _claims(series)
    for plan, smoke in order:
        own = [s for s in series if (s.plan, bool(s.run["smoke"])) == (plan, smoke)]
        known = PLANS.get(plan, Plan(plan.replace("-", " ").capitalize(), "", generic))
        made.append(_section(known, plan, smoke, own))
    return made


def _claims(series: Sequence[Series]) -> list[Section]:
    """Tables alone; pictures and commands are with the plans."""
    tables = verdicts.verdicts(series)
    if not tables:
        return []
    return [
        Section(
            plan=verdicts.NAME,
            title=verdicts.TITLE,
            about=verdicts.ABOUT,
            smoke=False,
            commands=(),
            cautions=(),
            notes=(),
            sentences=(),
            against_paper=(),
            charts=(),
            coherence=Coherence((), ()),
            tables=tuple(tables),
            runs=runs(()),
        )
    ]


def _in_short(series: list[Series]) -> Section:
    """One picture and its sentences; settings, coherence and notes are with the plans."""
    known = Plan(overview.TITLE, overview.ABOUT, overview.overview)
    whole = _section(known, overview.NAME, False, series)
    return replace(whole, coherence=Coherence((), ()), runs=replace(whole.runs, rows=()), notes=())


def _section(known: Plan, plan: str, smoke: bool, series: list[Series]) -> Section:
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
