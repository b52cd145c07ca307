"""What a chart shows, as data: both matplotlib and the page draw from these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log10

from . import paper, text
from .colours import colour, ramp, shade
from .series import Point, Series, sort_key

_SPAN = 20.0  # largest over smallest value from which an axis is logarithmic
# Several series of one method: by darkness if a setting is varied, else by the kind of line, too.
_DARKNESS = (0.45, -0.45)
_SHADES = (0.0, 0.3, -0.35, 0.5)
_DASHES = ("", "6 3", "2 3", "8 3 2 3")


@dataclass(frozen=True)
class Curve:
    """Means with a band; `ended` says how, if the last point is not the end of the plan."""

    name: str
    colour: str
    points: tuple[Point, ...]
    dash: str = ""
    ended: str = ""
    steady: bool = True  # False: it diverged, and must not decide the range of the axis


@dataclass(frozen=True)
class Line:
    """A number from the paper, drawn across."""

    name: str
    colour: str
    value: float


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    lines: tuple[Line, ...] = ()
    percent: bool = False
    log_x: bool = False
    log_y: bool = False

    @property
    def y_range(self) -> tuple[float, float]:
        """The values to show: all of the steady curves, and a little of the others."""
        steady = [c for c in self.curves if c.steady and c.points] or list(self.curves)
        values = [v for c in steady for p in c.points for v in (p.y.low, p.y.high)]
        values += [line.value for line in self.lines]
        # Of a curve that diverged the better part is shown.
        top = max(values, default=0.0)
        values += [p.y.mean for c in self.curves for p in c.points if p.y.mean < top]
        if self.log_y:
            values = [v for v in values if v > 0]
        if not values:
            return (0.1, 1.0) if self.log_y else (0.0, 1.0)
        low, high = min(values), max(values)
        if self.log_y:
            pad = max(0.04 * log10(high / low), 0.02)
            return low / 10**pad, high * 10**pad
        pad = 0.05 * (high - low) or abs(high) * 0.05 or 1.0
        low = 0.0 if 0 <= low <= 0.35 * high else low - pad
        return low, min(high + pad, 1.0) if self.percent and high <= 1 else high + pad


@dataclass(frozen=True)
class Chart:
    """Panels that belong together; `name` is the name of its files."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    columns: int = 2


def curves(
    series: Sequence[Series],
    y: str = "metric",
    x: str = "epoch",
) -> tuple[Curve, ...]:
    """A curve for each series that has points."""
    made = []
    for s, name, (tint, dash) in zip(series, text.names(series), palette(series), strict=True):
        if points := tuple(s.curve(y, x)):
            how = "diverged" if s.diverged else s.status if s.status == "unfinished" else ""
            made.append(Curve(name, tint, points, dash, how, not s.diverged))
    return tuple(made)


def palette(series: Sequence[Series]) -> list[tuple[str, str]]:
    """Colour and dash of each series: a hue for each method, or a ramp over what is varied."""
    methods = {s.method for s in series}
    varied = _varied(series)
    out = []
    for place, s in enumerate(series):
        alike = [i for i, o in enumerate(series) if o.method == s.method]
        values = sorted({_value(series[i], varied) for i in alike}) if varied else []
        if len(values) > 1 and len(methods) == 1:
            out.append((ramp(len(values))[values.index(_value(s, varied))], ""))
        elif len(values) > 1:
            light, dark = _DARKNESS
            share = light + (dark - light) * values.index(_value(s, varied)) / (len(values) - 1)
            labels = list(dict.fromkeys(series[i].label for i in alike))
            dash = _DASHES[labels.index(s.label) % len(_DASHES)]
            out.append((shade(colour(s.method), share), dash))
        else:
            index = alike.index(place) % len(_SHADES)
            out.append((shade(colour(s.method), _SHADES[index]), _DASHES[index]))
    return out


def _varied(series: Sequence[Series]) -> str:
    """The setting that a panel is about: of those that plans vary, the one with most values."""
    names = sorted({s.run["vary"] for s in series} - {""})
    counts = {name: len({_value(s, name) for s in series}) for name in names}
    return max(names, key=lambda name: counts[name], default="")


def _value(series: Series, name: str) -> tuple[int, float, str]:
    return sort_key(series.settings.get(name))


def panel(
    title: str,
    series: Sequence[Series],
    y: str = "metric",
    x: str = "epoch",
    *,
    with_paper: bool = True,
) -> Panel:
    """Curves of one task, with the paper's numbers drawn across where the paper has them."""
    drawn = curves(series, y, x)
    accuracy = y == "metric" and any(s.accuracy for s in series)
    lines = paper_lines(series) if with_paper and y == "metric" else ()
    return scaled(
        Panel(title, AXES.get(x, x), "accuracy" if accuracy else "loss", drawn, lines, accuracy)
    )


AXES = {
    "epoch": "epochs",
    "evaluations": "evaluations of the loss",
    "seconds": "seconds of training",
}


def scaled(made: Panel) -> Panel:
    """The panel with a logarithmic axis where the values ask for one."""
    if made.percent or made.log_y:
        return made
    steady = [c for c in made.curves if c.steady] or list(made.curves)
    values = [p.y.mean for c in steady for p in c.points] + [line.value for line in made.lines]
    if values and min(values) > 0 and max(values) / min(values) > _SPAN:
        return replace(made, log_y=True)
    return made


def paper_lines(series: Iterable[Series]) -> tuple[Line, ...]:
    """The paper's numbers for the series that repeat its settings on its data."""
    found: dict[str, Line] = {}
    for s in series:
        known = paper.known(s)
        if known is not None:
            shown = text.metric(known.metric, accuracy=s.accuracy)
            name = f"paper: {s.method.upper().replace('COCD', 'CoCD')} {shown}"
            found[s.method] = Line(name, colour(s.method), known.metric)
    return tuple(found.values())
