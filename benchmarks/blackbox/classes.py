"""Problems by class: smooth, noisy, nonsmooth, bounded, multimodal; 10 to 300 coordinates.

Each problem has a true function, which measures, and what the methods see: the same, or the same
with noise. Those marked `held` take no part in any choice of a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Function = Callable[[Vector], float]

# What counts as solved, of the distance between f(x0) and the optimum.
TARGETS = {
    "smooth": (1e-3, 1e-6),
    "noisy": (1e-3, 1e-6),
    "nonsmooth": (1e-3, 1e-6),
    "bounded": (1e-3, 1e-6),
    "multimodal": (1e-1, 1e-3),
}


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


def _plain(fun: Function, x0: Vector, optimum: float = 0.0, scale: float = 1.0) -> Instance:
    return Instance(fun, np.asarray(x0, dtype=np.float64), optimum, fun, None, scale)


def _basis(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


# --- smooth --------------------------------------------------------------------------------------


def variably_dimensioned(n: int, rng: np.random.Generator) -> Instance:
    """Moré, Garbow and Hillstrom, problem 25."""
    i = np.arange(1, n + 1)

    def fun(x: Vector) -> float:
        s = i @ (x - 1)
        return float(((x - 1) ** 2).sum() + s**2 + s**4)

    return _plain(fun, 1 - i / n)


def powell_singular(n: int, rng: np.random.Generator) -> Instance:
    """Moré, Garbow and Hillstrom, problem 13: a singular Hessian at the optimum."""

    def fun(x: Vector) -> float:
        a, b, c, d = x[0::4], x[1::4], x[2::4], x[3::4]
        return float(
            ((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4).sum()
        )

    return _plain(fun, np.tile([3.0, -1.0, 0.0, 1.0], n // 4))


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
    return _plain(wood_value, np.tile([-3.0, -1.0], n // 2))


def boundary_value(n: int, rng: np.random.Generator) -> Instance:
    """Moré, Garbow and Hillstrom, problem 28: a discrete boundary value problem."""
    h = 1 / (n + 1)
    t = h * np.arange(1, n + 1)

    def fun(x: Vector) -> float:
        y = np.concatenate([[0.0], x, [0.0]])
        return float(((2 * x - y[:-2] - y[2:] + h**2 * (x + t + 1) ** 3 / 2) ** 2).sum())

    return _plain(fun, 10 * t * (t - 1), scale=0.5)


def logistic(n: int, rng: np.random.Generator) -> Instance:
    """Regularised logistic regression on correlated features."""
    features = rng.standard_normal((4 * n, n)) @ (np.eye(n) + 0.3 * rng.standard_normal((n, n)))
    signs = np.where(features @ rng.standard_normal(n) + rng.standard_normal(4 * n) > 0, 1.0, -1.0)
    rows = signs[:, None] * features

    def fun(x: Vector) -> float:
        return float(np.logaddexp(0, -(rows @ x)).mean() + 0.01 * (x @ x))

    def slope(x: Vector) -> Vector:
        return -(rows.T @ (1 / (1 + np.exp(rows @ x)))) / len(rows) + 0.02 * x

    return _plain(fun, np.zeros(n), _reference(fun, slope, np.zeros(n)), 0.5)


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

    return _plain(fun, np.full(n, 2.0), _reference(fun, slope, np.full(n, 2.0)))


def units(n: int, rng: np.random.Generator) -> Instance:
    """A coupled quadratic whose coordinates have units from 1e-3 to 1e3."""
    unit, goal = np.logspace(-3, 3, n), rng.standard_normal(n)

    def fun(x: Vector) -> float:
        y = x / unit - goal
        return float(y @ y + 0.5 * (y[1:] @ y[:-1]) + 0.1 * (y**4).sum())

    return _plain(fun, np.zeros(n))


def rotated_quartic(n: int, rng: np.random.Generator) -> Instance:
    """A rotated ellipsoid (condition 1e3) with a quartic term."""
    basis, weights = _basis(n, rng), np.logspace(0, 3, n)

    def fun(x: Vector) -> float:
        y = basis @ (x - 1)
        return float(weights @ y**2 + (y**4).sum())

    return _plain(fun, 2 * rng.standard_normal(n))


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

    return _plain(fun, np.full(n, 8.0), _reference(fun, slope, np.full(n, 2.0)), 2.0)


def tridia(n: int, rng: np.random.Generator) -> Instance:
    """Tridia, from CUTE: a tridiagonal quadratic with weights from 1 to n."""
    i = np.arange(2, n + 1)

    def fun(x: Vector) -> float:
        return float((x[0] - 1) ** 2 + i @ (2 * x[1:] - x[:-1]) ** 2)

    return _plain(fun, np.ones(n))


def inverse_problem(n: int, rng: np.random.Generator) -> Instance:
    """A nonlinear least-squares problem with a known solution."""
    matrix = rng.standard_normal((2 * n, n)) / np.sqrt(n)
    goal = rng.standard_normal(n)
    data = np.tanh(matrix @ goal) + 0.1 * (matrix @ goal)

    def fun(x: Vector) -> float:
        y = matrix @ x
        r = np.tanh(y) + 0.1 * y - data
        return float(r @ r)

    return _plain(fun, np.zeros(n))


def broyden_banded(n: int, rng: np.random.Generator) -> Instance:
    """Moré, Garbow and Hillstrom, problem 31."""

    def fun(x: Vector) -> float:
        band = np.convolve(x * (1 + x), np.ones(6), "full")
        inside = band[:n] - x * (1 + x)
        inside[:-1] += (x * (1 + x))[1:]
        return float(((x * (2 + 5 * x**2) + 1 - inside) ** 2).sum())

    return _plain(fun, -np.ones(n))


def cosine_chain(n: int, rng: np.random.Generator) -> Instance:
    """Cosine, from CUTE."""

    def fun(x: Vector) -> float:
        return float(np.cos(x[:-1] ** 2 - 0.5 * x[1:]).sum())

    return _plain(fun, np.ones(n), -(n - 1.0))


# --- nonsmooth -----------------------------------------------------------------------------------


def least_deviations(n: int, rng: np.random.Generator) -> Instance:
    """The sum of absolute residuals of a consistent system."""
    matrix, goal = rng.standard_normal((2 * n, n)) / np.sqrt(n), rng.standard_normal(n)
    return _plain(lambda x: float(np.abs(matrix @ (x - goal)).sum()), np.zeros(n))


def largest_deviation(n: int, rng: np.random.Generator) -> Instance:
    """The largest absolute residual of a consistent system."""
    matrix, goal = rng.standard_normal((2 * n, n)) / np.sqrt(n), rng.standard_normal(n)
    return _plain(lambda x: float(np.abs(matrix @ (x - goal)).max()), np.zeros(n))


def chained_lq(n: int, rng: np.random.Generator) -> Instance:
    """Lukšan and Vlček: maxima of lines and parabolas, chained."""

    def fun(x: Vector) -> float:
        a, b = x[:-1], x[1:]
        line = -a - b
        return float(np.maximum(line, line + a**2 + b**2 - 1).sum())

    return _plain(fun, np.full(n, -0.5), -(n - 1) * np.sqrt(2.0))


def chained_cb3(n: int, rng: np.random.Generator) -> Instance:
    """Lukšan and Vlček: Charalambous and Bandler's third function, chained."""

    def fun(x: Vector) -> float:
        a, b = x[:-1], x[1:]
        parts = np.stack([a**4 + b**2, (2 - a) ** 2 + (2 - b) ** 2, 2 * np.exp(b - a)])
        return float(parts.max(axis=0).sum())

    return _plain(fun, np.full(n, 2.0), 2.0 * (n - 1))


def crescent(n: int, rng: np.random.Generator) -> Instance:
    """Lukšan and Vlček: the first chained crescent."""

    def fun(x: Vector) -> float:
        a, b = x[:-1], x[1:]
        inner = a**2 + (b - 1) ** 2 + b - 1
        outer = -(a**2) - (b - 1) ** 2 + b + 1
        return float(max(inner.sum(), outer.sum()))

    return _plain(fun, np.tile([-1.5, 2.0], n // 2))


def soft_threshold(n: int, rng: np.random.Generator) -> Instance:
    """A coupled quadratic plus a sum of absolute values, with the solution built in."""
    matrix = rng.standard_normal((2 * n, n)) / np.sqrt(n)
    goal = rng.standard_normal(n) * (rng.random(n) < 0.3)
    # The subgradient at `goal` is made zero by the choice of the linear term.
    signs = np.where(goal != 0, np.sign(goal), rng.uniform(-0.8, 0.8, n))

    def fun(x: Vector) -> float:
        r = matrix @ (x - goal)
        return float(0.5 * r @ r - signs @ x + np.abs(x).sum())

    return _plain(fun, np.ones(n), fun(goal))


# --- bounded -------------------------------------------------------------------------------------


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
    optimum = _reference(fun, lambda x: matrix @ x - pull, np.zeros(n), box)
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
    return Instance(wood_value, x0, _reference(wood_value, slope, x0, box), wood_value, box, 0.5)


def entropy(n: int, rng: np.random.Generator) -> Instance:
    """The sum of x log x - c x over a box that cuts many of its minima off."""
    c = rng.uniform(-4, 2, n)

    def fun(x: Vector) -> float:
        return float((x * np.log(x) - c * x).sum() + 0.1 * (x.sum() - n / 4) ** 2 / n)

    def slope(x: Vector) -> Vector:
        return np.log(x) + 1 - c + 0.2 * (x.sum() - n / 4) / n

    box = [(0.05, 1.0)] * n
    optimum = _reference(fun, slope, np.full(n, 0.5), box)
    return Instance(fun, np.full(n, 0.5), optimum, fun, box, 0.3)


# --- multimodal ----------------------------------------------------------------------------------


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
    basis, weights = _basis(n, rng), np.logspace(0, np.log10(30), n)

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


# --- noise ---------------------------------------------------------------------------------------


def relative(level: float) -> Callable[[Function, Instance, np.random.Generator], Function]:
    """Gaussian noise that grows with the distance from the optimum."""

    def with_noise(fun: Function, made: Instance, rng: np.random.Generator) -> Function:
        def seen(x: Vector) -> float:
            f = fun(x)
            return f + level * (f - made.optimum) * float(rng.standard_normal())

        return seen

    return with_noise


def additive(
    level: float, tails: float | None = None
) -> Callable[[Function, Instance, np.random.Generator], Function]:
    """Noise of the same size everywhere, in parts of f(x0) - optimum; Student's with `tails`."""

    def with_noise(fun: Function, made: Instance, rng: np.random.Generator) -> Function:
        size = level * (fun(made.x0) - made.optimum)

        def seen(x: Vector) -> float:
            z = rng.standard_normal() if tails is None else rng.standard_t(tails)
            return fun(x) + size * float(z)

        return seen

    return with_noise


def computed(level: float) -> Callable[[Function, Instance, np.random.Generator], Function]:
    """Noise that is the same at the same point, as of an iterative solver."""

    def with_noise(fun: Function, made: Instance, rng: np.random.Generator) -> Function:
        size = level * (fun(made.x0) - made.optimum)
        phase = rng.uniform(1e6, 2e6, len(made.x0))

        def seen(x: Vector) -> float:
            return fun(x) + size * float(np.sin(phase @ x))

        return seen

    return with_noise


def _reference(
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


CASES = (
    Case("variably dimensioned", "smooth", 40, variably_dimensioned),
    Case("Powell singular", "smooth", 100, powell_singular),
    Case("Wood", "smooth", 40, wood, held=True),
    Case("boundary value", "smooth", 60, boundary_value),
    Case("logistic", "smooth", 100, logistic, held=True),
    Case("engval", "smooth", 100, engval),
    Case("units", "smooth", 20, units),
    Case("rotated quartic", "smooth", 40, rotated_quartic),
    Case("edensch", "smooth", 300, edensch),
    Case("tridia", "smooth", 200, tridia, held=True),
    Case("inverse problem", "smooth", 50, inverse_problem, held=True),
    Case("Broyden banded", "smooth", 100, broyden_banded),
    Case("cosine chain", "smooth", 100, cosine_chain),
    Case("rotated quartic, 1 %", "noisy", 20, rotated_quartic, noise=relative(0.01)),
    Case("engval, 1e-3", "noisy", 40, engval, noise=additive(1e-3)),
    Case("Wood, 1 %", "noisy", 40, wood, noise=relative(0.01), held=True),
    Case("inverse problem, 1e-4", "noisy", 60, inverse_problem, noise=additive(1e-4)),
    Case("logistic, 1e-3", "noisy", 100, logistic, noise=additive(1e-3), held=True),
    Case("Powell singular, 1 %", "noisy", 12, powell_singular, noise=relative(0.01)),
    Case("tridia, 1e-3", "noisy", 10, tridia, noise=additive(1e-3), held=True),
    Case("edensch, heavy tails", "noisy", 40, edensch, noise=additive(1e-4, 2.0)),
    Case("boundary value, computed", "noisy", 40, boundary_value, noise=computed(1e-4)),
    Case("least deviations", "nonsmooth", 40, least_deviations),
    Case("largest deviation", "nonsmooth", 20, largest_deviation),
    Case("chained LQ", "nonsmooth", 100, chained_lq),
    Case("chained CB3", "nonsmooth", 40, chained_cb3, held=True),
    Case("crescent", "nonsmooth", 60, crescent, held=True),
    Case("soft threshold", "nonsmooth", 100, soft_threshold),
    Case("nonnegative", "bounded", 40, nonnegative),
    Case("boxed chain", "bounded", 50, boxed_chain, held=True),
    Case("boxed Wood", "bounded", 20, boxed_wood),
    Case("entropy", "bounded", 100, entropy),
    Case("Ackley", "multimodal", 40, ackley),
    Case("Levy", "multimodal", 40, levy, held=True),
    Case("Griewank", "multimodal", 20, griewank),
    Case("Rastrigin", "multimodal", 20, rastrigin),
    Case("Styblinski-Tang", "multimodal", 20, styblinski, held=True),
    Case("Salomon", "multimodal", 10, salomon, held=True),
    Case("Schaffer", "multimodal", 20, schaffer),
    Case("rippled ellipsoid", "multimodal", 100, rippled),
    Case("Alpine", "multimodal", 40, alpine, held=True),
    Case("Lennard-Jones", "multimodal", 21, cluster),
)
