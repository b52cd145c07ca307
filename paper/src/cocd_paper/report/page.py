"""The report as one HTML file that needs nothing else: no network, no server.

The charts are Plotly's, whose script is embedded; `page.html` is a template of jinja2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log10

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from .charts import Chart, Curve, Line, Panel
from .read import Rows
from .sections import Section

_HEIGHT = 380  # of a row of panels
_CONFIG = {"displaylogo": False, "responsive": True, "scrollZoom": False}


def page(rows: Rows, sections: Sequence[Section]) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("cocd_paper.report", "."),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        rows=rows,
        sections=sections,
        plots={c.name: _html(c) for s in sections for c in s.charts},
        plotly=get_plotlyjs(),
        versions=sorted({_pairs(r.run[key]) for r in rows.results for key in _ABOUT} - {""}),
    )


_ABOUT = ("versions", "machine")


def _pairs(values: object) -> str:
    items = values.items() if isinstance(values, dict) else ()
    return ", ".join(f"{key} {value}" for key, value in sorted(items))


def _html(chart: Chart) -> str:
    html: str = figure(chart).to_html(
        full_html=False, include_plotlyjs=False, div_id=f"chart-{chart.name}", config=_CONFIG
    )
    return html


def figure(chart: Chart) -> go.Figure:
    """The chart as a figure of Plotly, with a button for logarithmic axes."""
    columns = min(chart.columns, len(chart.panels))
    rows = ceil(len(chart.panels) / columns)
    made = make_subplots(rows, columns, subplot_titles=[panel.title for panel in chart.panels])
    known: set[str] = set()
    for i, panel in enumerate(chart.panels):
        place = {"row": i // columns + 1, "col": i % columns + 1}
        for curve in panel.curves:
            for trace in _traces(curve, panel, known):
                made.add_trace(trace, **place)
        for line in panel.lines:
            made.add_trace(_across(line, panel), **place)
        made.update_xaxes(title_text=panel.x, type="log" if panel.log_x else "linear", **place)
        made.update_yaxes(
            title_text=panel.y,
            type="log" if panel.log_y else "linear",
            tickformat=".0%" if panel.percent else None,
            range=[log10(y) for y in panel.y_range] if panel.log_y else panel.y_range,
            **place,
        )
    panels = len(chart.panels)
    buttons = [
        {"label": kind, "method": "relayout", "args": [_axes(panels, kind)]}
        for kind in ("linear", "log")
    ]
    made.update_layout(
        template="plotly_white",
        height=_HEIGHT * rows + 120,
        margin={"l": 60, "r": 20, "t": 80, "b": 40},
        legend={"orientation": "h", "y": -0.25 / rows, "yanchor": "top"},
        hovermode="closest",
        updatemenus=[
            {"type": "buttons", "direction": "left", "buttons": buttons, "showactive": False}
            | {"x": 0, "y": 1 + 0.12 / rows, "xanchor": "left", "yanchor": "bottom"}
        ],
    )
    return made


def _axes(panels: int, kind: str) -> dict[str, object]:
    """What makes all vertical axes linear or logarithmic, and shows all of the values."""
    names = [f"yaxis{i}" if i > 1 else "yaxis" for i in range(1, panels + 1)]
    changes = {"type": kind, "autorange": True}
    return {f"{name}.{key}": value for name in names for key, value in changes.items()}


def _across(line: Line, panel: Panel) -> go.Scatter:
    """A number from one end of the curves to the other."""
    x = [point.x for curve in panel.curves for point in curve.points]
    style = {"color": line.colour, "dash": "dot", "width": 1.5}
    ends = [min(x), max(x)]
    return go.Scatter(x=ends, y=[line.value] * 2, mode="lines", line=style, name=line.name)


def _traces(curve: Curve, panel: Panel, known: set[str]) -> list[go.Scatter]:
    """The mean with its hover text, and below it the band over the seeds."""
    x = [point.x for point in curve.points]
    ended = f" ({curve.ended})" if curve.ended else ""
    name = curve.name + ended
    group = {"legendgroup": name, "showlegend": name not in known}
    known.add(name)
    form = ".2%" if panel.percent else ".4g"
    traces = []
    if any(len(point.y.values) > 1 for point in curve.points):
        ends = [p.y.high for p in curve.points] + [p.y.low for p in reversed(curve.points)]
        traces.append(
            go.Scatter(
                x=[*x, *reversed(x)], y=ends, fill="toself", fillcolor=curve.colour, opacity=0.15,
                line={"width": 0}, hoverinfo="skip", legendgroup=name, showlegend=False,
            )
        )  # fmt: skip
    traces.append(
        go.Scatter(
            x=x,
            y=[point.y.mean for point in curve.points],
            name=name,
            mode="lines+markers" if len(x) < 12 else "lines",
            line={"color": curve.colour, "dash": _dash(curve.dash), "width": 2},
            hovertemplate=f"%{{x:,}}: %{{y:{form}}}",
            **group,
        )
    )
    if not curve.steady:
        traces.append(
            go.Scatter(
                x=x[-1:], y=[curve.points[-1].y.mean], mode="markers", hoverinfo="skip",
                marker={"symbol": "x", "color": curve.colour, "size": 9},
                legendgroup=name, showlegend=False,
            )
        )  # fmt: skip
    return traces


def _dash(dashes: str) -> str:
    """SVG's dashes, as Plotly has them."""
    return ",".join(f"{part}px" for part in dashes.split()) or "solid"
