"""What runs told of their own coherence, as charts.

The numbers come as the rows have them: a number is a panel, and numbers that are told for each
tensor (or as a list) are a chart of their own for each series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._look.colours import ramp
from . import text
from .charts import Chart, Curve, Panel, palette, scaled
from .series import Series

_Path = tuple[str, ...]
_COUNTS = ("pairs", "first", "steps", "from", "to")  # how much was seen, not what


def coherence(name: str, series: Sequence[Series]) -> list[Chart]:
    """The charts of a plan: first the totals, then by tensor."""
    carrying = [s for s in series if _paths(s)]
    names, tints = text.names(carrying), palette(carrying)
    charts = []
    panels = []
    for task in dict.fromkeys(s.task for s in carrying):
        for path in dict.fromkeys(path for s in carrying for path in _paths(s) if len(path) == 1):
            drawn = tuple(
                Curve(n, tint, tuple(points), dash)
                for s, n, (tint, dash) in zip(carrying, names, tints, strict=True)
                if s.task == task and (points := s.collect(_epoch, _getter(path)))
            )
            if drawn:
                title = f"{text.task(task)}: {_words(path[0])}"
                panels.append(scaled(Panel(title, "epochs", _words(path[0]), drawn)))
    if panels:
        charts.append(Chart(f"{name}-coherence", "Coherence over time", tuple(panels), 3))
    for index, (s, n) in enumerate(zip(carrying, names, strict=True), start=1):
        parts = _parts(s)
        if parts:
            title = f"{text.task(s.task)}, {n}: by tensor"
            charts.append(Chart(f"{name}-coherence-{index}", title, parts, 3))
    return charts


def _parts(series: Series) -> tuple[Panel, ...]:
    """A panel for each number that is told tensor by tensor."""
    # {"correlation": {"tensor": r}} or {"tensors": {"tensor": {"correlation": r}}}
    parts: dict[str, list[tuple[str, _Path]]] = {}
    for path in _paths(series):
        if len(path) == 2:
            parts.setdefault(path[0], []).append((path[1], path))
        elif len(path) > 2:
            parts.setdefault(path[-1], []).append((path[-2], path))
    return tuple(
        scaled(
            Panel(
                _words(what),
                "epochs",
                _words(what),
                tuple(
                    Curve(tensor, tint, tuple(series.collect(_epoch, _getter(path))))
                    for (tensor, path), tint in zip(own, ramp(len(own)), strict=True)
                ),
            )
        )
        for what, own in parts.items()
    )


def _told(row: dict[str, Any]) -> dict[str, Any]:
    told = row.get("coherence")
    return told if isinstance(told, dict) else {}


def _epoch(row: dict[str, Any]) -> float:
    return float(row["epoch"])


def _words(name: str) -> str:
    return name.replace("_", " ")


def _paths(series: Series) -> list[_Path]:
    """Where the numbers are in the coherence of a series, in the order of the first row."""
    found: dict[_Path, None] = {}

    def walk(value: Any, path: _Path) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, (*path, str(key)))
        elif isinstance(value, list):
            for place, item in enumerate(value):
                walk(item, (*path, str(place)))
        elif path[-1] not in _COUNTS and isinstance(value, (int, float)):
            found[path] = None

    for result in series.results:
        for row in result.epochs:
            walk(_told(row), ())
    return list(found)


def _getter(path: _Path) -> Callable[[dict[str, Any]], float | None]:
    def get(row: dict[str, Any]) -> float | None:
        value: Any = _told(row)
        for key in path:
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and int(key) < len(value):
                value = value[int(key)]
            else:
                return None
        return float(value) if isinstance(value, (int, float)) else None

    return get
