"""The error of the estimate over the budget: measured, the theorem's bound, fitted lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from statistics import fmean
from typing import Any

from ..style.colours import OTHER, colour
from . import text
from .charts import Panel, measured
from .read import Row
from .series import Series

_BUDGET = ("compute_budget", "budget", "B")
# Where batches change the theorem says nothing, and the error has a name of its own.
_ERROR = ("error", "minibatch_error")
_WORST = ("worst_error", *_ERROR)  # of the samples of a run
_BOUND = ("bound",)
_SHARPER = ("euclidean_bound",)


@dataclass(frozen=True)
class Bound:
    """The panel, and what it shows in words."""

    panel: Panel
    sentences: list[str]
    against_paper: list[str]


@dataclass(frozen=True)
class Fit:
    """A straight line y = slope x + offset, and the share of the variance it explains."""

    slope: float
    offset: float
    explained: float


def fit(points: Sequence[tuple[float, float]]) -> Fit | None:
    """The line of least squares; None where fewer than two places are known.

    >>> fit([(0, 1), (1, 3), (2, 5)])
    Fit(slope=2.0, offset=1.0, explained=1.0)
    """
    if len({x for x, _ in points}) < 2:
        return None
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
        (x - mean_x) ** 2 for x, _ in points
    )
    offset = mean_y - slope * mean_x
    total = sum((y - mean_y) ** 2 for _, y in points)
    left = sum((y - slope * x - offset) ** 2 for x, y in points)
    return Fit(slope, offset, 1.0 - left / total if total else 1.0)


@dataclass(frozen=True)
class Measured:
    """What the measure rows of one group say: values by budget, and lines through the errors."""

    group: str
    error: dict[float, list[float]]
    theorem: dict[float, list[float]]
    sharper: dict[float, list[float]]
    exceeded: list[float]  # budgets at which an error was above the bound of its own run

    @property
    def name(self) -> str:
        """What the rows call it."""
        return self.group or "one batch"

    @property
    def means(self) -> list[tuple[float, float]]:
        """Error over budget."""
        return [(x, fmean(ys)) for x, ys in sorted(self.error.items())]

    @property
    def positive(self) -> list[tuple[float, float]]:
        """Those that have a logarithm."""
        return [(x, y) for x, y in self.means if x > 0 and y > 0]

    @property
    def power(self) -> Fit | None:
        """A power of the budget."""
        return fit([(log(x), log(y)) for x, y in self.positive])

    @property
    def line(self) -> Fit | None:
        """A straight line over its logarithm."""
        return fit([(log(x), y) for x, y in self.positive])

    @property
    def falls(self) -> bool:
        """Whether each larger budget has a smaller error."""
        return all(after[1] < before[1] for before, after in pairwise(self.means))

    @property
    def ratios(self) -> list[float]:
        """The bound over the error, budget by budget."""
        both = sorted(set(self.error) & set(self.theorem))
        return [fmean(self.theorem[b]) / fmean(self.error[b]) for b in both if any(self.error[b])]


def measured_errors(series: Sequence[Series]) -> list[Measured]:
    """What was measured, group by group."""
    found = []
    for task, group in dict.fromkeys((s.task, s.run["group"]) for s in series):
        own = [s for s in series if (s.task, s.run["group"]) == (task, group)]
        other = task.partition(", ")[2]  # network or rows
        group = ", ".join(part for part in (group, other) if part)
        error, theorem, sharper = (_values(own, names) for names in (_ERROR, _BOUND, _SHARPER))
        found.append(Measured(group, error, theorem, sharper, _exceeded(own)))
    return found


def bounds(series: Sequence[Series]) -> list[Bound]:
    """Everything that the measure rows give, group by group."""
    found = [_bound(one) for one in measured_errors(series)]
    return [one for one in found if one.panel.curves]


def _bound(one: Measured) -> Bound:
    curves = [
        measured("measured error", colour("cocd"), one.error.items()),
        measured("theorem's bound, L_ε as seen", colour("bccd"), one.theorem.items(), "6 3"),
        measured("the same, Euclidean", colour("zosgd"), one.sharper.items(), "8 3 2 3"),
    ]
    if power := one.power:
        fitted = [(x, [exp(power.offset) * x**power.slope]) for x, _ in one.positive]
        curves.append(measured(f"fitted: error ∝ B^{power.slope:.2f}", OTHER, fitted, "2 3"))
    made = Panel(
        f"Error of the estimate{', ' if one.group else ''}{one.group}",
        "B, coordinates probed a step",
        "‖estimate − finite-difference gradient‖",
        tuple(c for c in curves if c.points),
        log_x=True,
        log_y=True,
    )
    where = f" ({one.group})" if one.group else ""
    return Bound(made, _sentences(where, one), _against_paper(where, one))


def _values(series: Sequence[Series], names: tuple[str, ...]) -> dict[float, list[float]]:
    found: dict[float, list[float]] = {}
    for s in series:
        for result in s.results:
            for row in result.measures:
                x = _first({**s.settings, **row}, _BUDGET)
                y = _first(row, names)
                if x is not None and y is not None:
                    found.setdefault(x, []).append(y)
    return found


def _exceeded(series: Sequence[Series]) -> list[float]:
    """The budgets at which an error was above the bound of its own run."""
    found = set()
    for s in series:
        for row in (row for result in s.results for row in result.measures):
            x, bound = _first({**s.settings, **row}, _BUDGET), _first(row, _BOUND)
            error = _first(row, _WORST)
            if x is not None and bound is not None and error is not None and error > bound:
                found.add(x)
    return sorted(found)


def _first(row: Row | dict[str, Any], names: tuple[str, ...]) -> float | None:
    for name in names:
        value = row.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def _sentences(where: str, one: Measured) -> list[str]:
    out = []
    if one.exceeded:
        places = text.listed(text.plain(int(b)) for b in one.exceeded)
        out.append(f"Bound{where}: the measured error exceeds it at B = {places}.")
    elif ratios := one.ratios:
        ends = dict.fromkeys((text.number(min(ratios)), text.number(max(ratios))))
        out.append(
            f"Bound{where}, with the largest change over distance that the run showed in the "
            f"place of L_ε (which is no smaller, so the true bound is no lower): no error at "
            f"any B exceeds it, and it is {' to '.join(ends)} times the measured error."
        )
    if power := one.power:
        out.append(
            f"Measured error{where}: it follows B^{power.slope:.2f} "
            f"({100 * power.explained:.1f} % of the variance on logarithmic axes)."
        )
    return out


def _against_paper(where: str, one: Measured) -> list[str]:
    power, line = one.power, one.line
    if power is None or line is None:
        return []
    here = "it falls with each larger B" if one.falls else "it does not fall with every larger B"
    return [
        f"Error over B{where}: paper, it falls on a straight line over log B; here, "
        f"{here}; the straight line explains {100 * line.explained:.1f} % of the variance, a power "
        f"of B {100 * power.explained:.1f} % (of its logarithm)."
    ]
