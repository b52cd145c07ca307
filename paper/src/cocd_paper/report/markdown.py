"""The page of documentation: written by hand, with tables that are filled in from rows.

A table stands between ``<!-- table SECTION -->``, or ``<!-- table SECTION: TITLE -->`` for another
than the section's first, and ``<!-- end -->``. The title "Settings" is known in every section.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .sections import Section
from .tables import Table

_PLACE = re.compile(r"(<!-- table (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(text: str, sections: Sequence[Section]) -> str:
    r"""The page with its tables renewed; a table without rows says so.

    >>> print(fill("<!-- table tune -->\nold\n<!-- end -->", []))
    <!-- table tune -->
    <BLANKLINE>
    No rows yet.
    <BLANKLINE>
    <!-- end -->
    """
    known = {section.name: section for section in sections}

    def table(found: re.Match[str]) -> str:
        name, _, title = found[2].partition(": ")
        section = known.get(name)
        tables = (*section.tables, section.settings) if section else ()
        made = next((table for table in tables if title in ("", table.title)), None)
        return f"{found[1]}\n{markdown(made) if made else 'No rows yet.'}\n\n{found[3]}"

    return _PLACE.sub(table, text)


def markdown(table: Table) -> str:
    """The table; the best rows are bold where the words end."""
    rule = [":--" if i < table.words else "--:" for i in range(len(table.columns))]
    rows = [
        [f"**{c}**" if i in table.best and k == table.words else c for k, c in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    return "\n".join(map(_line, [table.columns, rule, *rows]))


def _line(cells: Iterable[str]) -> str:
    safe = (cell.replace("<", "&lt;").replace("|", r"\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(safe)} |"
