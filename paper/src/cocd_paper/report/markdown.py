"""The page of documentation: rows as markdown, with pictures beside it. Equal rows, equal bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import paper
from .read import Rows
from .sections import Section
from .tables import Table

_HEAD = """# Reproduction

Written by `cocd-paper report` from rows alone; every number and sentence below follows from them.
An epoch is a number of steps (where B is "auto", of evaluations), not a pass over the data. Seconds
are processor time of training alone, on one thread of the machine named at the end; the paper's
are from {machine}. Ranges: over seeds. A
command makes all runs that its plan has for the tasks it names; what has no row here was not run.
"""


def markdown(rows: Rows, sections: Sequence[Section], figures: str = "figures") -> str:
    """The page; pictures are referenced as ``FIGURES/NAME.svg``."""
    parts = [_HEAD.format(machine=paper.MACHINE)]
    parts += [_section(section, figures) for section in sections]
    if rows.problems:
        parts.append("## Rows left out\n\n" + _list(rows.problems))
    parts.append("## Machine and versions\n\n" + _list(_environments(rows)))
    return "\n".join(parts)


def _section(section: Section, figures: str) -> str:
    parts = [f"## {section.title}\n"]
    if section.about:
        parts.append(f"{section.about}\n")
    if section.commands:
        parts.append("".join(f"    {command}\n" for command in section.commands))
    if section.cautions:
        parts.append(" ".join(section.cautions) + "\n")
    if section.notes:
        parts.append(" ".join(section.notes) + "\n")
    tables = [_table(table) for table in section.tables]
    charts = [f"![{c.title}]({figures}/{c.name}.svg)\n" for c in section.charts]
    parts += charts + tables if section.figure_first else tables + charts
    if section.sentences:
        parts.append("What the rows say:\n\n" + _list(section.sentences))
    if section.against_paper:
        parts.append("Beside the paper:\n\n" + _list(section.against_paper))
    parts += [f"![{c.title}]({figures}/{c.name}.svg)\n" for c in section.coherence.most]
    if section.runs.rows:
        parts.append(_settings(section.runs))
    return "\n".join(parts)


def _list(sentences: Iterable[str]) -> str:
    return "".join(f"- {_safe(text)}\n" for text in sentences)


def _table(table: Table) -> str:
    rule = [":--" if i < table.words else "--:" for i in range(len(table.columns))]
    lines = [_line(_marked(row, i in table.best, table.words)) for i, row in enumerate(table.rows)]
    note = f"\n{table.note}\n" if table.note else ""
    return "\n".join([f"{table.title}:\n", _line(table.columns), _line(rule), *lines, note])


def _marked(row: Sequence[str], best: bool, place: int) -> list[str]:
    """The row, with the cell after the words in bold where it is the best."""
    return [f"**{cell}**" if best and i == place else cell for i, cell in enumerate(row)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_safe(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _safe(text: str) -> str:
    return " ".join(text.replace("<", "&lt;").split())


_SHARED = ("run", "seed", "status", "started", "versions", "machine", "evaluations", "seconds")


def _settings(runs: Table) -> str:
    """The settings of each series: the table of runs without what differs from run to run."""
    keep = [i for i, name in enumerate(runs.columns) if name not in _SHARED]
    # A column that says nothing in this plan is left out.
    keep = [i for i in keep if {row[i] for row in runs.rows} != {"–"}]
    rows = dict.fromkeys(tuple(row[i] for i in keep) for row in runs.rows)
    columns = tuple(runs.columns[i] for i in keep)
    return _table(Table("Settings", columns, tuple(rows), 2))


def _environments(rows: Rows) -> list[str]:
    found = set()
    for result in rows.results:
        run = result.run
        parts = [
            f"{key} {value}"
            for values in (run["versions"], run["machine"])
            if isinstance(values, dict)
            for key, value in sorted(values.items())
        ]
        if parts:
            found.add(", ".join(parts))
    return sorted(found)
