"""Section 5.1: how far the estimate is from the finite-difference gradient."""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..parts.validation import check_count
from .arguments import Bound, at_least_zero, budgets, finite, lags, plain


def error_bound(n: ArrayLike, B: ArrayLike, L: ArrayLike, delta: ArrayLike) -> Bound:
    r"""What ||g_t - FD gradient at x_t|| cannot exceed: the approximation theorem.

    thm:error_bound, with K = floor(n / B) and r = n mod B::

        L_eps delta / 2 (B K (K - 1) + 2 r K)  <=  L delta / 2 (B K (K - 1) + 2 r K)

    Conditions: gamma = 1, m = n, cyclic order, f fixed, and every coordinate estimated at least
    once: from a cold buffer an error of the size of the gradient itself is left out. B need not
    divide n. `delta` covers the last ceil(n / B) - 1 steps; L must hold on all that is probed,
    which reaches eps beyond the hull of the iterates. It is a sum over coordinates:
    `euclidean_error_bound` is sharper by up to sqrt(n).

    >>> error_bound(n=10, B=4, L=2.0, delta=0.5)  # lags 0, 0, 0, 0, 1, 1, 1, 1, 2, 2
    8.0
    """
    n, B = budgets(n, B)
    return plain(at_least_zero("L", L) * at_least_zero("delta", delta) * lags(n, B))


def euclidean_error_bound(n: ArrayLike, B: ArrayLike, L: ArrayLike, delta: ArrayLike) -> Bound:
    r"""The same, with coordinates combined as the norm combines them; not in the paper.

    Coordinate i with lag a is off by at most L_eps a delta (appendix A). The root of the sum of
    squares, L_eps delta sqrt(B K (K - 1) (2 K - 1) / 6 + r K^2), bounds the Euclidean norm under
    the conditions of `error_bound` and never exceeds it.

    >>> round(euclidean_error_bound(n=10, B=4, L=2.0, delta=0.5), 6)  # of 4 ones and 2 twos
    3.464102
    """
    n, B = budgets(n, B)
    K, r = n // B, n % B
    squares = B * K * (K - 1) * (2 * K - 1) / 6 + r * K**2
    return plain(at_least_zero("L", L) * at_least_zero("delta", delta) * np.sqrt(squares))


def largest_step(n: ArrayLike, B: ArrayLike, L: ArrayLike, error: ArrayLike) -> Bound:
    r"""The delta at which `error_bound` equals `error`; infinite for B = n.

    thm:error_bound, solved for delta, under its conditions.

    >>> largest_step(n=10, B=4, L=2.0, error=8.0)
    0.5
    """
    n, B = budgets(n, B)
    per_unit = at_least_zero("L", L) * lags(n, B)
    error = at_least_zero("error", error)
    free = np.broadcast_to(per_unit == 0, np.broadcast_shapes(per_unit.shape, error.shape))
    return plain(np.where(free, np.inf, error / np.where(per_unit == 0, 1.0, per_unit)))


class Regime(NamedTuple):
    """A corollary of the approximation theorem.

    Attributes:
        budget: B.
        error: the error bound at the delta that was asked for.
        accuracy: the error that the corollary wants kept.
        step: the largest delta that keeps it.
    """

    budget: int
    error: Bound
    accuracy: float
    step: Bound


def worst_case(n: int, L: ArrayLike, delta: ArrayLike) -> Regime:
    r"""Corollary "Worst-Case Performance": B = 1.

    The error is L_eps delta n (n - 1) / 2 = O(n^2 L_eps delta); an accuracy of 1 / n needs
    delta <= 2 / (L_eps n^2 (n - 1)) = O(n^-3). Conditions: those of `error_bound`.

    >>> worst_case(n=100, L=1.0, delta=1e-6)
    Regime(budget=1, error=0.00494..., accuracy=0.01, step=2.0202...e-06)
    """
    n = check_count("n", n)
    return _regime(n, 1, L, delta, 1 / n)


def efficient_regime(n: int, L: ArrayLike, delta: ArrayLike) -> Regime:
    r"""Corollary "Efficient Regime": B = sqrt(n), rounded down.

    For a square n the error is L_eps delta n (sqrt(n) - 1) / 2 = O(n^1.5 L_eps delta); an
    accuracy of 1 / sqrt(n) needs delta = O(n^-2). Conditions: those of `error_bound`.

    >>> efficient_regime(n=100, L=1.0, delta=1e-6)
    Regime(budget=10, error=0.00045, accuracy=0.1, step=0.000222...)
    """
    n = check_count("n", n)
    return _regime(n, isqrt(n), L, delta, n**-0.5)


def full_budget(n: int, L: ArrayLike, delta: ArrayLike) -> Regime:
    r"""Corollary "Fallback to Finite-Differenced Gradient" (col:fallback): B = n.

    Every estimate is fresh, the error is 0 at any delta. The buffer is never cold.

    >>> full_budget(n=100, L=1.0, delta=1e-6)
    Regime(budget=100, error=0.0, accuracy=0.0, step=inf)
    """
    n = check_count("n", n)
    return _regime(n, n, L, delta, 0.0)


def _regime(n: int, B: int, L: ArrayLike, delta: ArrayLike, accuracy: float) -> Regime:
    return Regime(B, error_bound(n, B, L, delta), accuracy, largest_step(n, B, L, accuracy))


def smoothness_from_below(stale: ArrayLike, fresh: ArrayLike, distance: ArrayLike) -> float:
    r"""The largest |fresh - stale| / distance seen: a lower bound of L_eps, never L_eps itself.

    `stale` and `fresh` are estimates of the same coordinates at points `distance` apart, or at
    most so far apart (a length of path): each quotient is at most L_eps (its definition in
    section 5.1), so a run bounds L_eps from below, and a bound made with it may be too low. It
    holds for one fixed f: with mini-batches the change of the data is in it, too; and up to
    rounding, which is divided by the distance as the change is. Pairs at distance 0 are left out; 0
    if there is nothing else.

    >>> smoothness_from_below(stale=[1.0, 2.0], fresh=[1.5, 2.0], distance=0.25)
    2.0
    """
    stale, fresh = finite("stale", stale), finite("fresh", fresh)
    distance = at_least_zero("distance", distance)
    change, distance = np.broadcast_arrays(np.abs(fresh - stale), distance)
    moved = distance > 0
    return float(np.max(change[moved] / distance[moved], initial=0.0))


def step_bound(points: ArrayLike) -> float:
    r"""The longest step of a trajectory x_0, x_1, ... (a row each): delta of def:local_coherence.

    For the window that was run it is exact; for steps to come it is a lower bound.

    >>> step_bound([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]])
    5.0
    """
    points = finite("points", points)
    if points.ndim != 2:
        raise ValueError(f"points must be a matrix, a point a row, got shape {points.shape}")
    return float(np.max(np.linalg.norm(np.diff(points, axis=0), axis=1), initial=0.0))
