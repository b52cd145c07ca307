"""The parts of the report: an overview, the paper's claims, and a section for each plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import claims, tables
from .charts import Chart
from .plans import OVERVIEW, PLANS, Content, Plan, generic, overview
from .read import Result
from .series import Series, group, rank
from .tables import Table


@dataclass(frozen=True)
class Section:
    """All that is shown of a plan. `name` is for files and anchors."""

    name: str
    title: str
    about: str
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]
    settings: Table
    runs: Table


def sections(results: Sequence[Result]) -> list[Section]:
    """The overview and the claims, where rows speak of them, then each plan that has rows."""
    series = group(results)
    real = [s for s in series if not s.run["smoke"]]
    about = "AutoCoCD is not the paper's method but this library's, which sets its own steps."
    made = [_section(OVERVIEW, "In short", about, overview(OVERVIEW, real), ())]
    found = [claims.table(real)] if real else []
    made.append(_section("claims", "Claims", claims.ABOUT, Content(tables=found), ()))
    keys = {(s.plan, bool(s.run["smoke"])) for s in series}
    for plan, smoke in sorted(keys, key=lambda key: (key[1], rank(key[0], tuple(PLANS)))):
        own = [s for s in series if (s.plan, bool(s.run["smoke"])) == (plan, smoke)]
        known = PLANS.get(plan, Plan(plan.replace("-", " ").capitalize(), "", generic))
        name = f"{plan}-smoke" if smoke else plan
        title = known.title + " (small form, on generated data)" * smoke
        made.append(_section(name, title, known.about, known.build(name, own), own))
    return [s for s in made if s.charts or s.tables or s.runs.rows]


def _section(name: str, title: str, about: str, made: Content, series: Sequence[Series]) -> Section:
    charts = tuple(chart for chart in made.charts if any(p.curves for p in chart.panels))
    filled = tuple(table for table in made.tables if table.rows)
    listed = tables.settings(series), tables.runs(series)
    return Section(name, title, about, charts, filled, *listed)
