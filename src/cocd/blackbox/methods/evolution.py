"""CMA-ES for `minimize`, suited to functions with many minima in one funnel.

The package `cma` implements the method. When it ends, it restarts with twice the population (IPOP).
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np

from ...parts.types import State
from ..radius import scales
from .rule import Box, Points, Settled, Vector

_FIRST = 0.3  # the first standard deviation, in units of scale
_LARGE = 200  # above this many coordinates the covariance is diagonal
_RESTARTS = 9


class Evolution:
    """CMA-ES; implements `Rule`, but cannot be saved: its state belongs to another package."""

    averaged = None
    final_evaluations = 1
    skipped = 0

    def __init__(
        self, x0: Vector, *, bounds: Box | None, ftol: float | None, rng: np.random.Generator
    ) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of its optional parts
                self._package = import_module("cma")
        except ImportError:
            raise ValueError(
                "method='cma' needs the package cma: pip install 'cocd[blackbox]'"
            ) from None
        self.x, self._box, self._rng = x0.copy(), bounds, rng
        self.nit = 0
        self.converged = ""
        self.settled: Settled | None = None
        self._never, self._ftol = ftol is None, ftol or 0.0
        self._fun = np.inf
        self._opening, self._restarts = True, 0
        self._search = self._started(x0)
        self._points = np.vstack([x0, self._population()])

    def _started(self, x: Vector) -> Any:
        size = scales(x, self._box)
        options: dict[str, object] = {
            "seed": int(self._rng.integers(1, 2**31)),
            "verbose": -9,
            "CMA_stds": size,
            "CMA_diagonal": len(x) > _LARGE,
            "tolfun": self._ftol,
            "tolfunhist": self._ftol / 10,
        }
        if self._restarts:
            usual = 4 + int(3 * np.log(len(x)))
            options["popsize"] = usual * 2**self._restarts
        if self._box is not None:
            options["bounds"] = [self._box.lower, self._box.upper]
        return self._package.CMAEvolutionStrategy(x, _FIRST, options)

    def _population(self) -> Vector:
        found = np.array(self._search.ask(), dtype=np.float64)
        return found if self._box is None else np.clip(found, *self._box)

    def ask(self, limit: int | None) -> Points:
        """A population; the first one also has x0."""
        fits = limit is None or len(self._points) <= limit
        return self._points if fits else self._points[: max(limit or 0, 0) * self._opening]

    def tell(self, values: Vector) -> None:
        """Learn from the values of a population."""
        points = self._points[: len(values)]
        values = np.where(np.isfinite(values), values, np.inf)
        k = int(values.argmin())
        if values[k] < self._fun:
            self._fun, self.x = float(values[k]), points[k].copy()
        if self._opening:
            points, values, self._opening = points[1:], values[1:], False
        # A failed value counts as the worst of the others.
        known = values[np.isfinite(values)]
        if len(points) == self._search.popsize and len(known):
            self._search.tell(list(points), list(np.minimum(values, known.max())))
        self.nit += 1
        if self._search.stop():
            why = f"converged: CMA-ES ended by {', '.join(self._search.stop())}"
            if self._restarts >= _RESTARTS and not self._never:
                self.converged = f"{why}, after {_RESTARTS} starts with more points"
                return
            self._restarts = min(self._restarts + 1, _RESTARTS)
            self._search = self._started(self._somewhere())
        self._points = self._population()

    def _somewhere(self) -> Vector:
        """A random new start: within finite bounds, otherwise around the best point."""
        if self._box is not None and np.isfinite(self._box).all():
            return self._rng.uniform(*self._box)
        around = self.x + scales(self.x, None) * self._rng.standard_normal(len(self.x))
        return around if self._box is None else np.clip(around, *self._box)

    def state_dict(self) -> State:
        """Refused."""
        raise ValueError("method='cma' cannot be saved: leave checkpoint out, or use 'auto'")

    def load_state_dict(self, state: State) -> None:
        """Refused."""
        self.state_dict()
