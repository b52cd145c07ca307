"""Smooth problems."""

from __future__ import annotations

import numpy as np

from .instance import Instance, Vector, plain, reference, rotation


def variably_dimensioned(n: int, rng: np.random.Generator) -> Instance:
    """Moré, Garbow and Hillstrom, problem 25."""
    i = np.arange(1, n + 1)

    def fun(x: Vector) -> float:
        s = i @ (x - 1)
        return float(((x - 1) ** 2).sum() + s**2 + s**4)

    return plain(fun, 1 - i / n)


def powell_singular(n: int, rng: np.random.Generator) -> Instance:
    """Moré, Garbow and Hillstrom, problem 13: a singular Hessian at the optimum."""

    def fun(x: Vector) -> float:
        a, b, c, d = x[0::4], x[1::4], x[2::4], x[3::4]
        return float(
            ((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4).sum()
        )

    return plain(fun, np.tile([3.0, -1.0, 0.0, 1.0], n // 4))


def wood_value(x: Vector) -> float:
    """The Wood function, chained."""
    a, b, c, d = x[0:-3:2], x[1:-2:2], x[2:-1:2], x[3::2]
    return float(
        (
            100 * (a**2 - b) ** 2
            + (a - 1) ** 2
            + 90 * (c**2 - d) ** 2
            + (c - 1) ** 2
            + 10 * (b + d - 2) ** 2
            + 0.1 * (b - d) ** 2
        ).sum()
    )


def wood(n: int, rng: np.random.Generator) -> Instance:
    """A chain of Wood functions."""
    return plain(wood_value, np.tile([-3.0, -1.0], n // 2))


def boundary_value(n: int, rng: np.random.Generator) -> Instance:
    """Moré, Garbow and Hillstrom, problem 28: a discrete boundary value problem."""
    h = 1 / (n + 1)
    t = h * np.arange(1, n + 1)

    def fun(x: Vector) -> float:
        y = np.concatenate([[0.0], x, [0.0]])
        return float(((2 * x - y[:-2] - y[2:] + h**2 * (x + t + 1) ** 3 / 2) ** 2).sum())

    return plain(fun, 10 * t * (t - 1), scale=0.5)


def logistic(n: int, rng: np.random.Generator) -> Instance:
    """Regularised logistic regression on correlated features."""
    features = rng.standard_normal((4 * n, n)) @ (np.eye(n) + 0.3 * rng.standard_normal((n, n)))
    signs = np.where(features @ rng.standard_normal(n) + rng.standard_normal(4 * n) > 0, 1.0, -1.0)
    rows = signs[:, None] * features

    def fun(x: Vector) -> float:
        return float(np.logaddexp(0, -(rows @ x)).mean() + 0.01 * (x @ x))

    def slope(x: Vector) -> Vector:
        return -(rows.T @ (1 / (1 + np.exp(rows @ x)))) / len(rows) + 0.02 * x

    return plain(fun, np.zeros(n), reference(fun, slope, np.zeros(n)), 0.5)


def engval(n: int, rng: np.random.Generator) -> Instance:
    """Engvall's first function."""

    def fun(x: Vector) -> float:
        a, b = x[:-1] ** 2, x[1:] ** 2
        return float(((a + b) ** 2 - 4 * x[:-1] + 3).sum())

    def slope(x: Vector) -> Vector:
        s = x[:-1] ** 2 + x[1:] ** 2
        g = np.zeros_like(x)
        g[:-1] += 4 * s * x[:-1] - 4
        g[1:] += 4 * s * x[1:]
        return g

    return plain(fun, np.full(n, 2.0), reference(fun, slope, np.full(n, 2.0)))


def units(n: int, rng: np.random.Generator) -> Instance:
    """A coupled quadratic whose coordinates have units from 1e-3 to 1e3."""
    unit, goal = np.logspace(-3, 3, n), rng.standard_normal(n)

    def fun(x: Vector) -> float:
        y = x / unit - goal
        return float(y @ y + 0.5 * (y[1:] @ y[:-1]) + 0.1 * (y**4).sum())

    return plain(fun, np.zeros(n))


def rotated_quartic(n: int, rng: np.random.Generator) -> Instance:
    """A rotated ellipsoid (condition 1e3) with a quartic term."""
    basis, weights = rotation(n, rng), np.logspace(0, 3, n)

    def fun(x: Vector) -> float:
        y = basis @ (x - 1)
        return float(weights @ y**2 + (y**4).sum())

    return plain(fun, 2 * rng.standard_normal(n))


def edensch(n: int, rng: np.random.Generator) -> Instance:
    """Edensch, from CUTE."""

    def fun(x: Vector) -> float:
        a, b = x[:-1], x[1:]
        return float(16 + ((a - 2) ** 4 + (a * b - 2 * b) ** 2 + (b + 1) ** 2).sum())

    def slope(x: Vector) -> Vector:
        a, b = x[:-1], x[1:]
        g = np.zeros_like(x)
        g[:-1] += 4 * (a - 2) ** 3 + 2 * (a * b - 2 * b) * b
        g[1:] += 2 * (a * b - 2 * b) * (a - 2) + 2 * (b + 1)
        return g

    return plain(fun, np.full(n, 8.0), reference(fun, slope, np.full(n, 2.0)), 2.0)


def tridia(n: int, rng: np.random.Generator) -> Instance:
    """Tridia, from CUTE: a tridiagonal quadratic with weights from 1 to n."""
    i = np.arange(2, n + 1)

    def fun(x: Vector) -> float:
        return float((x[0] - 1) ** 2 + i @ (2 * x[1:] - x[:-1]) ** 2)

    return plain(fun, np.ones(n))


def inverse_problem(n: int, rng: np.random.Generator) -> Instance:
    """A nonlinear least-squares problem with a known solution."""
    matrix = rng.standard_normal((2 * n, n)) / np.sqrt(n)
    goal = rng.standard_normal(n)
    data = np.tanh(matrix @ goal) + 0.1 * (matrix @ goal)

    def fun(x: Vector) -> float:
        y = matrix @ x
        r = np.tanh(y) + 0.1 * y - data
        return float(r @ r)

    return plain(fun, np.zeros(n))


def broyden_banded(n: int, rng: np.random.Generator) -> Instance:
    """Moré, Garbow and Hillstrom, problem 31."""

    def fun(x: Vector) -> float:
        band = np.convolve(x * (1 + x), np.ones(6), "full")
        inside = band[:n] - x * (1 + x)
        inside[:-1] += (x * (1 + x))[1:]
        return float(((x * (2 + 5 * x**2) + 1 - inside) ** 2).sum())

    return plain(fun, -np.ones(n))


def cosine_chain(n: int, rng: np.random.Generator) -> Instance:
    """Cosine, from CUTE."""

    def fun(x: Vector) -> float:
        return float(np.cos(x[:-1] ** 2 - 0.5 * x[1:]).sum())

    return plain(fun, np.ones(n), -(n - 1.0))
