"""The error of the estimate over the budget: measured, the theorem's bound, a fitted power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from statistics import fmean

import numpy as np

from .charts import Curve, Panel
from .colours import OTHER, colour
from .series import Point, Series, Spread

Values = dict[float, list[float]]  # by budget
# Where batches change the theorem says nothing, and the error has a name of its own.
ERROR, BOUND, SHARPER = ("error", "minibatch_error"), ("bound",), ("euclidean_bound",)
WORST = ("worst_error", *ERROR)  # of the samples of a run


@dataclass(frozen=True)
class Fit:
    """A straight line y = slope x + offset, and the share of the variance that it explains."""

    slope: float
    offset: float
    explained: float


def fit(points: Sequence[tuple[float, float]]) -> Fit:
    """The line of least squares.

    >>> line = fit([(0, 1), (1, 3), (2, 5)])
    >>> round(line.slope, 6), round(line.offset, 6), round(line.explained, 6)
    (2.0, 1.0, 1.0)
    """
    x, y = np.array(points, dtype=float).T
    slope, offset = np.polyfit(x, y, 1)
    left = float(((y - slope * x - offset) ** 2).sum())
    total = float(((y - y.mean()) ** 2).sum())
    return Fit(float(slope), float(offset), 1 - left / total if total else 1.0)


@dataclass(frozen=True)
class Measured:
    """What the measure rows of one group say."""

    group: str
    series: tuple[Series, ...]

    def values(self, names: Sequence[str]) -> Values:
        """By budget, over the seeds."""
        found: Values = {}
        for s in self.series:
            for row in (row for r in s.results for row in r.measures):
                known = [row[name] for name in names if row.get(name) is not None]
                if known:
                    found.setdefault(float(row["compute_budget"]), []).append(float(known[0]))
        return dict(sorted(found.items()))

    @property
    def means(self) -> list[tuple[float, float]]:
        """Error over budget."""
        return [(x, fmean(ys)) for x, ys in self.values(ERROR).items()]

    @property
    def power(self) -> Fit:
        """A power of the budget."""
        return fit([(log(x), log(y)) for x, y in self.means])

    @property
    def line(self) -> Fit:
        """A straight line over its logarithm."""
        return fit([(log(x), y) for x, y in self.means])

    @property
    def falls(self) -> bool:
        """Whether each larger budget has a smaller error."""
        return all(after[1] < before[1] for before, after in pairwise(self.means))

    @property
    def ratios(self) -> list[float]:
        """The bound over the error, budget by budget."""
        bound = self.values(BOUND)
        return [fmean(bound[b]) / error for b, error in self.means if b in bound and error]

    @property
    def exceeded(self) -> bool:
        """Whether an error was above the bound of its own run."""
        worst, bound = self.values(WORST), self.values(BOUND)
        return any(e > b for B in bound for e, b in zip(worst[B], bound[B], strict=True))


def measured(series: Sequence[Series]) -> list[Measured]:
    """What was measured at two budgets at least, group by group."""
    groups: dict[str, list[Series]] = {}
    for s in series:
        groups.setdefault(str(s.run["group"]), []).append(s)
    found = [Measured(group, tuple(own)) for group, own in groups.items()]
    return [one for one in found if len(one.means) > 1]


def panel(one: Measured) -> Panel:
    """Both axes logarithmic."""
    power = one.power
    fitted = {x: [exp(power.offset) * x**power.slope] for x, _ in one.means}
    drawn = (
        ("measured error", colour("cocd"), one.values(ERROR), ""),
        ("theorem's bound, L_ε as seen", colour("bccd"), one.values(BOUND), "6 3"),
        ("the same, Euclidean", colour("zosgd"), one.values(SHARPER), "8 3 2 3"),
        (f"fitted: error ∝ B^{power.slope:.2f}", OTHER, fitted, "2 3"),
    )
    return Panel(
        f"Error of the estimate, {one.group}".removesuffix(", "),
        "B, coordinates probed per step",
        "‖estimate − finite-difference gradient‖",
        tuple(
            Curve(name, tint, tuple(Point(x, Spread(tuple(ys))) for x, ys in values.items()), dash)
            for name, tint, values, dash in drawn
            if values
        ),
        log_x=True,
        log_y=True,
    )
