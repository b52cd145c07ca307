"""The report as one HTML file that needs nothing else: no network, no server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ..style.page import asset, style
from .charts import Chart, Panel
from .read import Rows
from .sections import Section
from .series import Point
from .tables import Table

_DIGITS = 7  # significant digits of the numbers in the page


def page(rows: Rows, sections: Sequence[Section]) -> str:
    """The page as text."""
    parts = {
        "style": style() + _asset("page.css"),
        "summary": _summary(rows),
        "contents": _contents(sections),
        "sections": "".join(map(_section, sections)),
        "problems": _problems(rows),
        "footer": _footer(rows),
        "data": _data(sections),
        "script": _asset("chart.js"),
    }
    # One pass: what rows say is never taken for a place in the template.
    return re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return asset(__package__ or "", f"assets/{name}")


def _summary(rows: Rows) -> str:
    count = len(rows.results)
    plans = len({r.run["plan"] for r in rows.results})
    unfinished = sum(r.status == "unfinished" for r in rows.results)
    diverged = sum(r.status == "diverged" for r in rows.results)
    text = f"{count} run{'s' * (count != 1)} of {plans} plan{'s' * (plans != 1)}"
    text += f"; {diverged} diverged" if diverged else ""
    text += f"; {unfinished} not finished yet" if unfinished else ""
    return f'<p class="lead">{text}.</p>'


def _contents(sections: Sequence[Section]) -> str:
    items = "".join(f'<li><a href="#{escape(s.name)}">{escape(s.title)}</a></li>' for s in sections)
    return f"<ul>{items}</ul>"


def _section(section: Section) -> str:
    name = escape(section.name)
    parts = [f'<section id="{name}"><h2>{escape(section.title)}</h2>']
    if section.about:
        parts.append(f'<p class="about">{escape(section.about)}</p>')
    parts.append("".join(f'<p class="caution">{escape(text)}</p>' for text in section.cautions))
    if section.notes:
        parts.append(f'<p class="about">{escape(" ".join(section.notes))}</p>')
    command = "".join(f"<code>{escape(text)}</code>" for text in section.commands)
    command = f'<div class="command">{command}</div>' if command else ""
    tables = [_table(table) for table in section.tables]
    charts = [_figure(chart, command) for chart in section.charts]
    parts += charts + tables if section.figure_first else tables + charts
    if section.sentences:
        parts.append(f"<h3>What the rows say</h3>{_list(section.sentences)}")
    if section.against_paper:
        parts.append(f"<h3>Beside the paper</h3>{_list(section.against_paper)}")
    if not section.charts:
        parts.append(command)
    parts += [_figure(chart, command) for chart in section.coherence.most]
    if section.coherence.rest:
        inner = "".join(_figure(chart, command) for chart in section.coherence.rest)
        parts.append(_details("More on coherence, also by tensor", inner))
    if count := len(section.runs.rows):
        label = f"Settings of {'all ' * (count > 1)}{count} run{'s' * (count != 1)}"
        parts.append(_details(label, _table(section.runs, titled=False)))
    parts.append("</section>")
    return "".join(parts)


def _list(sentences: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_sentence(text)}</li>' for text in sentences)}</ul>"


def _whole(text: str) -> str:
    """Escaped; a number and its per cent sign stay on one line."""
    return escape(text).replace(" %", "\u00a0%")


def _sentence(text: str) -> str:
    """What it is about in bold."""
    text = _whole(text)
    head, colon, rest = text.partition(": ")
    return f"<b>{head}{colon}</b>{rest}" if colon else text


def _details(label: str, inner: str) -> str:
    return f"<details><summary>{escape(label)}</summary>{inner}</details>"


def _figure(chart: Chart, command: str) -> str:
    title, columns = escape(chart.title), min(chart.columns, len(chart.panels))
    return (
        f'<figure class="chart" data-columns="{columns}" data-chart="{escape(chart.name)}">'
        f'<figcaption>{title}{command}</figcaption><div class="panels"></div></figure>'
    )


def _table(table: Table, *, titled: bool = True) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=w' if i < table.words else ''}>{_whole(cell)}</{tag}>"
            for i, cell in enumerate(row)
        )

    body = "".join(
        f"<tr{_classes(table, i)}>{cells(row, 'td')}</tr>" for i, row in enumerate(table.rows)
    )
    title = f"<caption>{escape(table.title)}</caption>" if titled else ""
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    head = f"<thead><tr>{cells(table.columns, 'th')}</tr></thead>"
    inner = f"<table>{title}{head}<tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="table">{inner}</div>{note}'


def _classes(table: Table, index: int) -> str:
    """The best are marked, and a line stands where another task begins."""
    names = ["best"] if index in table.best else []
    if index and table.words > 1 and table.rows[index][0] != table.rows[index - 1][0]:
        names.append("new")
    return f' class="{" ".join(names)}"' if names else ""


def _problems(rows: Rows) -> str:
    if not rows.problems:
        return ""
    return f'<section class="problems"><h2>Rows left out</h2>{_list(rows.problems)}</section>'


def _footer(rows: Rows) -> str:
    def each(key: str) -> str:
        found = {
            ", ".join(f"{k} {v}" for k, v in sorted(r.run[key].items()))
            for r in rows.results
            if isinstance(r.run[key], dict) and r.run[key]
        }
        return "; ".join(sorted(found))

    parts = [
        "Seconds are of processor time, of training alone. Bands are the range over seeds, lines "
        "the mean. An epoch is a number of steps (where B is auto, of evaluations), not a pass "
        "over the data."
    ]
    parts += [f"Versions: {v}." for v in [each("versions")] if v]
    parts += [f"Machine: {m}." for m in [each("machine")] if m]
    return f"<p>{escape(' '.join(parts))}</p>"


def _data(sections: Sequence[Section]) -> str:
    charts = {
        c.name: _chart(c)
        for s in sections
        for c in (*s.charts, *s.coherence.most, *s.coherence.rest)
    }
    # In a script element nothing but its own end tag would be read as markup.
    return json.dumps(charts, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")


def _chart(chart: Chart) -> dict[str, Any]:
    return {"title": chart.title, "panels": [_panel(panel) for panel in chart.panels]}


def _panel(panel: Panel) -> dict[str, Any]:
    low, high = panel.y_range
    return {
        "title": panel.title,
        "x": panel.x,
        "y": panel.y,
        "percent": panel.percent,
        "logX": panel.log_x,
        "logY": panel.log_y,
        "range": [_round(low), _round(high)],
        "lines": [{"name": n.name, "colour": n.colour, "y": n.value} for n in panel.lines],
        "curves": [
            {
                "name": c.name,
                "colour": c.colour,
                "dash": c.dash,
                "ended": c.ended,
                "diverged": not c.steady,
                "points": [_point(p) for p in c.points],
            }
            for c in panel.curves
        ],
    }


def _point(point: Point) -> list[float]:
    """The place and value of one seed; place, mean, least, most and count of several."""
    x, y = _round(point.x), point.y
    if len(y.values) == 1:
        return [x, _round(y.mean)]
    return [x, _round(y.mean), _round(y.low), _round(y.high), len(y.values)]


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
