"""One line chart as inline SVG, from the rows alone. The page's script adds the hovering."""

from __future__ import annotations

import json
from html import escape
from math import floor, log10
from typing import Any, NamedTuple

from cocd_paper.style.colours import colour

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 44


class Axes(NamedTuple):
    """From data to pixels: x from 0 to `x_max`, y from 0 to `y_max`."""

    x_max: float
    y_max: float

    def x(self, value: float) -> float:
        """The pixel of `value` on the horizontal axis."""
        return round(LEFT + (WIDTH - LEFT - RIGHT) * value / self.x_max, 1)

    def y(self, value: float) -> float:
        """The pixel of `value` on the vertical axis."""
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.y_max, 1)


def chart(rows: list[dict[str, Any]], key: str, title: str, *, percent: bool = False) -> str:
    """The curves of `key` over evaluations; a first-order row is a dashed line at its end."""
    curves = {
        row["method"]: [(p["evaluations"], p[key]) for p in row["curve"] if p[key] is not None]
        for row in rows
        if not row["first_order"]
    }
    ends = {row["method"]: row[key] for row in rows if row["first_order"] and row[key] is not None}
    values = [y for curve in curves.values() for _, y in curve] + list(ends.values())
    axes = Axes(
        x_max=max((x for curve in curves.values() for x, _ in curve), default=1) or 1,
        y_max=1.0 if percent else max(values, default=1.0) * 1.05 or 1.0,
    )
    body = [*_grid(axes, percent)]
    for method, end in ends.items():
        y = axes.y(end)
        body.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" '
            f'stroke="{colour(method)}" stroke-width="1.5" stroke-dasharray="5 4"/>'
        )
    for method, curve in curves.items():
        points = " ".join(f"{axes.x(x)},{axes.y(y)}" for x, y in curve)
        body.append(
            f'<polyline points="{points}" fill="none" stroke="{colour(method)}" '
            'stroke-width="2" stroke-linejoin="round"/>'
        )
    # Where the script finds, for any pixel, what to show.
    data = {
        "percent": percent,
        "curves": [
            {"name": m, "colour": colour(m), "points": [(x, y, axes.x(x), axes.y(y)) for x, y in c]}
            for m, c in curves.items()
        ],
        "ends": [{"name": m, "colour": colour(m), "value": end} for m, end in ends.items()],
    }
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" '
        f'data-chart="{escape(json.dumps(data))}">{"".join(body)}'
        f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}" visibility="hidden"/></svg>'
    )


def _grid(axes: Axes, percent: bool) -> list[str]:
    out = []
    for value in ticks(axes.y_max):
        y = axes.y(value)
        text = f"{value:.0%}" if percent else f"{value:g}"
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{text}</text>')
    for value in ticks(axes.x_max):
        x = axes.x(value)
        out.append(
            f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:,.0f}</text>'
        )
    out.append(
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">'
        "evaluations of the loss</text>"
    )
    return out


def ticks(high: float, count: int = 5) -> list[float]:
    """About `count` round numbers from 0 to `high`.

    >>> ticks(26000)
    [0.0, 5000.0, 10000.0, 15000.0, 20000.0, 25000.0]
    >>> ticks(1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    power = 10.0 ** floor(log10(high / count))
    # The smallest of 1, 2 or 5 times a power of ten that gives no more than `count` steps.
    step = next(power * k for k in (1, 2, 5, 10, 20) if high / (power * k) <= count + 0.5)
    return [round(step * k, 10) for k in range(floor(high / step + 1e-9) + 1)]
