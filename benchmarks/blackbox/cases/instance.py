"""A problem: what it truly is, and what the methods see of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Function = Callable[[Vector], float]


@dataclass(frozen=True)
class Instance:
    """A function with where to start; `seen` is what a method evaluates, `true` what it is."""

    true: Function
    x0: Vector
    optimum: float
    seen: Function
    bounds: list[tuple[float, float]] | None = None
    scale: float = 1.0  # how far from x0 it is sensible to look, for methods that must be told


@dataclass(frozen=True)
class Case:
    """A problem by name: `open` makes a fresh instance, with noise of its own for each seed."""

    name: str
    kind: str
    n: int
    make: Callable[[int, np.random.Generator], Instance]
    held: bool = False
    noise: Callable[[Function, Instance, np.random.Generator], Function] | None = None

    def open(self, seed: int) -> Instance:
        """The data of a problem are fixed; a multimodal one starts elsewhere for each seed."""
        data = [sum(self.name.encode()), self.n]
        made = self.make(self.n, np.random.default_rng(data))
        if self.kind == "multimodal":
            rng = np.random.default_rng([*data, seed])
            low, high = np.array(made.bounds).T
            made = Instance(
                made.true, rng.uniform(low, high), made.optimum, made.seen, None, made.scale
            )
        if self.noise is None:
            return made
        seen = self.noise(made.true, made, np.random.default_rng([*data, 7, seed]))
        return Instance(made.true, made.x0, made.optimum, seen, made.bounds, made.scale)


def plain(fun: Function, x0: Vector, optimum: float = 0.0, scale: float = 1.0) -> Instance:
    return Instance(fun, np.asarray(x0, dtype=np.float64), optimum, fun, None, scale)


def rotation(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def reference(
    fun: Function,
    slope: Callable[[Vector], Vector],
    x0: Vector,
    bounds: list[tuple[float, float]] | None = None,
) -> float:
    """The minimum of a convex problem, or of one with a basin at x0, by its gradient."""
    from scipy.optimize import minimize

    options = {"maxiter": 100_000, "maxfun": 100_000, "ftol": 0.0, "gtol": 1e-12, "maxcor": 30}
    return float(
        minimize(fun, x0, jac=slope, method="L-BFGS-B", bounds=bounds, options=options).fun
    )
