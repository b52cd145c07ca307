"""Problems whose minimum is on a face of their bounds."""

from __future__ import annotations

import numpy as np

from .instance import Instance, Vector, reference
from .smooth import wood_value


def nonnegative(n: int, rng: np.random.Generator) -> Instance:
    """Nonnegative least squares, with the solution built in."""
    matrix = rng.standard_normal((2 * n, n)) / np.sqrt(n)
    goal = np.where(rng.random(n) < 0.5, rng.random(n), 0.0)
    pull = np.where(goal > 0, 0.0, rng.random(n))

    def fun(x: Vector) -> float:
        r = matrix @ (x - goal)
        return float(0.5 * r @ r + pull @ x)

    return Instance(fun, np.full(n, 1.0), fun(goal), fun, [(0.0, np.inf)] * n, 0.5)


def boxed_chain(n: int, rng: np.random.Generator) -> Instance:
    """A tridiagonal quadratic whose free solution lies outside of its box."""
    pull = rng.uniform(-3, 3, n)
    matrix = 2 * np.eye(n) - 0.9 * np.eye(n, k=1) - 0.9 * np.eye(n, k=-1)

    def fun(x: Vector) -> float:
        return float(0.5 * x @ matrix @ x - pull @ x)

    box = [(-1.0, 1.0)] * n
    optimum = reference(fun, lambda x: matrix @ x - pull, np.zeros(n), box)
    return Instance(fun, np.zeros(n), optimum, fun, box, 0.5)


def boxed_wood(n: int, rng: np.random.Generator) -> Instance:
    """The Wood chain, every fourth coordinate at most 0.9."""
    box = [(-10.0, 0.9 if i % 4 == 1 else 10.0) for i in range(n)]

    def slope(x: Vector) -> Vector:
        a, b, c, d = x[0:-3:2], x[1:-2:2], x[2:-1:2], x[3::2]
        g = np.zeros_like(x)
        g[0:-3:2] += 400 * a * (a**2 - b) + 2 * (a - 1)
        g[1:-2:2] += -200 * (a**2 - b) + 20 * (b + d - 2) + 0.2 * (b - d)
        g[2:-1:2] += 360 * c * (c**2 - d) + 2 * (c - 1)
        g[3::2] += -180 * (c**2 - d) + 20 * (b + d - 2) - 0.2 * (b - d)
        return g

    x0 = np.tile([0.5, 0.5], n // 2)
    return Instance(wood_value, x0, reference(wood_value, slope, x0, box), wood_value, box, 0.5)


def entropy(n: int, rng: np.random.Generator) -> Instance:
    """The sum of x log x - c x over a box that cuts many of its minima off."""
    c = rng.uniform(-4, 2, n)

    def fun(x: Vector) -> float:
        return float((x * np.log(x) - c * x).sum() + 0.1 * (x.sum() - n / 4) ** 2 / n)

    def slope(x: Vector) -> Vector:
        return np.log(x) + 1 - c + 0.2 * (x.sum() - n / 4) / n

    box = [(0.05, 1.0)] * n
    optimum = reference(fun, slope, np.full(n, 0.5), box)
    return Instance(fun, np.full(n, 0.5), optimum, fun, box, 0.3)
