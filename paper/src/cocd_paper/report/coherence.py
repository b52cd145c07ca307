"""What runs told of their own coherence, as charts.

The numbers come as the rows have them: each number is a panel, and those that are told for each
tensor are a chart of their own for each series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..style.colours import ramp
from . import text
from .charts import Chart, Curve, Panel, palette, scaled
from .series import Series, rank

_Path = tuple[str, ...]
_MOST = ("correlation", "relative_change")
_ORDER = (*_MOST, "regression", "smoothness", "step_norm", "step_max", "age_mean", "age_max")
_COUNTS = ("pairs", "first", "steps", "from", "to")  # how much was seen, not what


class Coherence(NamedTuple):
    """What matters most, and the other totals and tensors for who asks."""

    most: tuple[Chart, ...]
    rest: tuple[Chart, ...]


def coherence(name: str, series: Sequence[Series]) -> Coherence:
    """The charts of a plan."""
    carrying = [s for s in series if _paths(s)]
    places = dict.fromkeys((s.task, s.run["group"]) for s in carrying)
    groups = [[s for s in carrying if (s.task, s.run["group"]) == place] for place in places]
    most = [p for own in groups for p in _totals(own, lambda what: what in _MOST)]
    rest = [p for own in groups for p in _totals(own, lambda what: what not in _MOST)]
    first = Chart(f"{name}-coherence", "Coherence over time", tuple(most), 2)
    charts = [Chart(f"{name}-coherence-more", "More of what was observed", tuple(rest), 3)]
    for own in groups:
        for s, label in zip(own, text.names(own), strict=True):
            title = f"{_where(s)}, {label}: by tensor"
            charts.append(Chart(f"{name}-coherence-{len(charts)}", title, _parts(s), 2))
    return Coherence((first,) if most else (), tuple(c for c in charts if c.panels))


def _where(series: Series) -> str:
    group = series.run["group"]
    return text.task(series.task) + (f", {group}" if group else "")


def _totals(own: Sequence[Series], wanted: Callable[[str], bool]) -> list[Panel]:
    """A panel for each number that is told once an epoch."""
    paths = {path for s in own for path in _paths(s) if len(path) == 1 and wanted(path[0])}
    return [
        _panel(f"{_where(own[0])}: {_words(path[0])}", path[0], own, path)
        for path in sorted(paths, key=lambda path: rank(path[0], _ORDER))
    ]


def _panel(title: str, what: str, own: Sequence[Series], path: _Path) -> Panel:
    drawn = tuple(
        Curve(name, tint, tuple(points), dash)
        for s, name, (tint, dash) in zip(own, text.names(list(own)), palette(own), strict=True)
        if (points := s.collect(_epoch, _getter(path)))
    )
    return scaled(Panel(title, "epochs", _words(what), drawn))


def _parts(series: Series) -> tuple[Panel, ...]:
    """A panel for each of the most important numbers that are told tensor by tensor."""
    # {"correlation": {"tensor": r}} or {"by_tensor": {"tensor": {"correlation": r}}}
    parts: dict[str, list[tuple[str, _Path]]] = {}
    for path in _paths(series):
        if len(path) > 1:
            what, tensor = (path[0], path[1]) if len(path) == 2 else (path[-1], path[-2])
            if what in _MOST:
                parts.setdefault(what, []).append((tensor, path))
    panels = []
    for what in sorted(parts, key=lambda what: rank(what, _ORDER)):
        curves = tuple(
            Curve(tensor, tint, tuple(series.collect(_epoch, _getter(path))))
            for (tensor, path), tint in zip(parts[what], ramp(len(parts[what])), strict=True)
        )
        panels.append(scaled(Panel(_words(what), "epochs", _words(what), curves)))
    return tuple(panels)


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
