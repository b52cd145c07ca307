"""Functions whose smoothness constants are known, and CoCD on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from cocd import reference

Array = npt.NDArray[Any]

SPLITS = [(1, 1), (2, 1), (5, 1), (5, 2), (6, 2), (6, 4), (7, 3), (8, 8), (9, 5)]  # n, B


class Waves:
    """f(x) = sum_j a_j cos(w_j x + b_j): smooth, not convex, every constant in closed form.

    A central difference multiplies a wave's slope along e_i by sinc(w_ji eps), so with s_j = +-1

        L     = max_s |sum_j s_j a_j w_j w_j'|     <= |sum_j |a_j| w_j w_j'|
        L_eps = max_i sup |sum_j a_j w_ji sinc(w_ji eps) cos(..) w_j|
             <= max_i sum_j |a_j w_ji sinc(w_ji eps)| |w_j|
    """

    def __init__(self, n: int, waves: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.a, self.b = rng.uniform(0.2, 1, waves), rng.uniform(0, 6, waves)
        self.w = rng.normal(size=(waves, n))
        self.start = rng.normal(size=n)

    def __call__(self, x: Array) -> float:
        return float(self.a @ np.cos(self.w @ x + self.b))

    @property
    def L(self) -> float:
        return float(np.linalg.eigvalsh(self.w.T @ (self.a[:, None] * self.w))[-1])

    def L_eps(self, eps: float) -> float:
        damped = np.abs(self.a[:, None] * self.w * np.sinc(self.w * eps / np.pi))
        return float((damped * np.linalg.norm(self.w, axis=1)[:, None]).sum(0).max())


class Quadratic:
    """f(x) = x A x / 2 - c x; L is the largest eigenvalue, L_eps the longest row, for any eps."""

    def __init__(self, n: int, seed: int, condition: float = 20.0) -> None:
        rng = np.random.default_rng(seed)
        Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
        self.A = Q @ np.diag(np.geomspace(1, condition, n)) @ Q.T
        self.c, self.start = rng.normal(size=n), rng.normal(size=n)
        self.L = condition if n > 1 else 1.0

    def __call__(self, x: Array) -> float:
        return float(x @ self.A @ x / 2 - self.c @ x)

    def L_eps(self, eps: float) -> float:
        return float(np.linalg.norm(self.A, axis=1).max())


def slopes(f: Callable[[Array], float], x: Array, eps: float) -> Array:
    """The central finite-difference gradient."""
    return np.array([(f(x + e) - f(x - e)) / (2 * eps) for e in eps * np.eye(len(x))])


def run(
    f: Any, *, lr: float, eps: float, B: int, steps: int, warm: bool
) -> Iterator[tuple[Array, Array]]:
    """x_t and the estimate g_t that is used there; warm: g starts as one sweep at x_0."""
    n = len(f.start)
    if not warm:
        x = f.start
        for state in islice(reference.cocd(f, x, lr=lr, eps=eps, B=B, m=n, gamma=1.0), steps):
            yield x, state.g
            x = state.x
        return
    x, g, cursor = f.start.copy(), slopes(f, f.start, eps), 0
    for _ in range(steps):
        block = (cursor + np.arange(B)) % n
        g = g.copy()
        g[block] = slopes(f, x, eps)[block]
        cursor = (cursor + B) % n
        yield x, g
        x = x - lr * g
