"""Problems with kinks."""

from __future__ import annotations

import numpy as np

from .instance import Instance, Vector, plain


def least_deviations(n: int, rng: np.random.Generator) -> Instance:
    """The sum of absolute residuals of a consistent system."""
    matrix, goal = rng.standard_normal((2 * n, n)) / np.sqrt(n), rng.standard_normal(n)
    return plain(lambda x: float(np.abs(matrix @ (x - goal)).sum()), np.zeros(n))


def largest_deviation(n: int, rng: np.random.Generator) -> Instance:
    """The largest absolute residual of a consistent system."""
    matrix, goal = rng.standard_normal((2 * n, n)) / np.sqrt(n), rng.standard_normal(n)
    return plain(lambda x: float(np.abs(matrix @ (x - goal)).max()), np.zeros(n))


def chained_lq(n: int, rng: np.random.Generator) -> Instance:
    """Lukšan and Vlček: maxima of lines and parabolas, chained."""

    def fun(x: Vector) -> float:
        a, b = x[:-1], x[1:]
        line = -a - b
        return float(np.maximum(line, line + a**2 + b**2 - 1).sum())

    return plain(fun, np.full(n, -0.5), -(n - 1) * np.sqrt(2.0))


def chained_cb3(n: int, rng: np.random.Generator) -> Instance:
    """Lukšan and Vlček: Charalambous and Bandler's third function, chained."""

    def fun(x: Vector) -> float:
        a, b = x[:-1], x[1:]
        parts = np.stack([a**4 + b**2, (2 - a) ** 2 + (2 - b) ** 2, 2 * np.exp(b - a)])
        return float(parts.max(axis=0).sum())

    return plain(fun, np.full(n, 2.0), 2.0 * (n - 1))


def crescent(n: int, rng: np.random.Generator) -> Instance:
    """Lukšan and Vlček: the first chained crescent."""

    def fun(x: Vector) -> float:
        a, b = x[:-1], x[1:]
        inner = a**2 + (b - 1) ** 2 + b - 1
        outer = -(a**2) - (b - 1) ** 2 + b + 1
        return float(max(inner.sum(), outer.sum()))

    return plain(fun, np.tile([-1.5, 2.0], n // 2))


def soft_threshold(n: int, rng: np.random.Generator) -> Instance:
    """A coupled quadratic plus a sum of absolute values, with the solution built in."""
    matrix = rng.standard_normal((2 * n, n)) / np.sqrt(n)
    goal = rng.standard_normal(n) * (rng.random(n) < 0.3)
    # The subgradient at `goal` is made zero by the choice of the linear term.
    signs = np.where(goal != 0, np.sign(goal), rng.uniform(-0.8, 0.8, n))

    def fun(x: Vector) -> float:
        r = matrix @ (x - goal)
        return float(0.5 * r @ r - signs @ x + np.abs(x).sum())

    return plain(fun, np.ones(n), fun(goal))
