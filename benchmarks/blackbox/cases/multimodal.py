"""Problems with many valleys."""

from __future__ import annotations

import numpy as np

from .instance import Function, Instance, Vector, rotation


def _valleys(
    fun: Function, n: int, half: float, rng: np.random.Generator, optimum: float = 0.0
) -> Instance:
    """The function with its optimum shifted; `bounds` say where runs start, and go no further."""
    shift = rng.uniform(-half / 3, half / 3, n)

    def moved(x: Vector) -> float:
        return fun(x - shift)

    return Instance(moved, shift, optimum, moved, [(-half, half)] * n, 0.3 * half)


def ackley(n: int, rng: np.random.Generator) -> Instance:
    """Ackley: a deep hole on a rippled plain."""

    def fun(x: Vector) -> float:
        root = np.sqrt(x @ x / n)
        return float(20 + np.e - 20 * np.exp(-0.2 * root) - np.exp(np.cos(2 * np.pi * x).mean()))

    return _valleys(fun, n, 20.0, rng)


def levy(n: int, rng: np.random.Generator) -> Instance:
    """Levy's function."""

    def fun(x: Vector) -> float:
        w = 1 + x / 4
        inner = (w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2)
        last = (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2)
        return float(np.sin(np.pi * w[0]) ** 2 + inner.sum() + last)

    return _valleys(fun, n, 10.0, rng)


def griewank(n: int, rng: np.random.Generator) -> Instance:
    """Griewank, in a box where its ripples matter."""
    roots = np.sqrt(np.arange(1, n + 1))

    def fun(x: Vector) -> float:
        return float(1 + 100 * (x @ x) / 4000 - np.cos(10 * x / roots).prod())

    return _valleys(fun, n, 5.0, rng)


def rastrigin(n: int, rng: np.random.Generator) -> Instance:
    """Rastrigin: a regular grid of minima on a bowl."""
    return _valleys(lambda x: float(10 * n + x @ x - 10 * np.cos(2 * np.pi * x).sum()), n, 5.0, rng)


def styblinski(n: int, rng: np.random.Generator) -> Instance:
    """Styblinski and Tang: two minima a coordinate, one lower."""
    lowest = -39.16616570377142

    def fun(x: Vector) -> float:
        return float(0.5 * (x**4 - 16 * x**2 + 5 * x).sum() - n * lowest)

    return _valleys(fun, n, 5.0, rng)


def salomon(n: int, rng: np.random.Generator) -> Instance:
    """Salomon: rings around the optimum."""

    def fun(x: Vector) -> float:
        r = np.sqrt(x @ x)
        return float(1 - np.cos(2 * np.pi * r) + 0.1 * r)

    return _valleys(fun, n, 20.0, rng)


def schaffer(n: int, rng: np.random.Generator) -> Instance:
    """Schaffer's sixth function, chained."""

    def fun(x: Vector) -> float:
        s = x[:-1] ** 2 + x[1:] ** 2
        return float((0.5 + (np.sin(np.sqrt(s)) ** 2 - 0.5) / (1 + 1e-3 * s) ** 2).sum())

    return _valleys(fun, n, 20.0, rng)


def rippled(n: int, rng: np.random.Generator) -> Instance:
    """A rotated ellipsoid (condition 30) under ripples."""
    basis, weights = rotation(n, rng), np.logspace(0, np.log10(30), n)

    def fun(x: Vector) -> float:
        y = basis @ x
        return float(weights @ y**2 / 10 + 4 * (1 - np.cos(3 * x)).sum())

    return _valleys(fun, n, 5.0, rng)


def alpine(n: int, rng: np.random.Generator) -> Instance:
    """Alpine, with a kink at each of its minima."""
    return _valleys(lambda x: float(np.abs(x * np.sin(x) + 0.1 * x).sum()), n, 10.0, rng)


def cluster(n: int, rng: np.random.Generator) -> Instance:
    """Seven Lennard-Jones atoms, softened where two of them meet."""

    def fun(x: Vector) -> float:
        p = x.reshape(-1, 3)
        first, second = np.triu_indices(len(p), 1)
        s = ((p[first] - p[second]) ** 2).sum(axis=1) + 1e-2
        return float((4 * (s**-6 - s**-3)).clip(max=10.0).sum())

    return Instance(fun, np.zeros(n), -16.505384, fun, [(-1.5, 1.5)] * n, 0.5)
