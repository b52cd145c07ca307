"""Section 5.2: how fast CoCD converges, and up to which learning rate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .arguments import Bound, above_zero, at_least_zero, budgets, lags, plain, smoothness


class Constants(NamedTuple):
    """C_1 and C_2 of the convergence theorem."""

    C_1: Bound
    C_2: Bound


def staleness(n: ArrayLike, B: ArrayLike) -> Bound:
    r"""The staleness factor tau of the convergence theorem: n / B - 1 where B divides n.

    The paper's proof takes r = 0 "for simplicity". With r > 0 it goes through with twice the mean
    lag instead, (B K (K - 1) + 2 r K) / n, which is larger than n / B - 1 by r (B - r) / (n B):
    that is what this gives.

    >>> staleness(n=12, B=4), staleness(n=3, B=2)
    (2.0, 0.666...)
    """
    n, B = budgets(n, B)
    return plain(2 * lags(n, B) / n)


def convergence_constants(alpha: ArrayLike, L: ArrayLike, n: ArrayLike, B: ArrayLike) -> Constants:
    r"""C_1 and C_2 of thm:convergence, for the learning rate alpha.

    ::

        C_1 = 1 / alpha - L / 2 (1 + n tau)
        C_2 = 1 / alpha^2 + L n tau / alpha + L^2 n^2 tau^2 / 4

    The theorem needs C_1 > 0, that is alpha below `largest_learning_rate`; C_1 is given here
    whatever its sign. For tau where B does not divide n see `staleness`.

    >>> convergence_constants(alpha=0.5, L=1.0, n=2, B=1)
    Constants(C_1=0.5, C_2=9.0)
    """
    alpha, L = above_zero("alpha", alpha), smoothness(L)
    delay = L * np.asarray(n) * staleness(n, B)  # L n tau
    C_1 = 1 / alpha - (L + delay) / 2
    C_2 = 1 / alpha**2 + delay / alpha + delay**2 / 4
    return Constants(plain(C_1), plain(C_2))


def convergence_rate(
    alpha: ArrayLike, L: ArrayLike, mu: ArrayLike, n: ArrayLike, B: ArrayLike
) -> Bound:
    r"""The factor of thm:convergence: 1 - 2 mu C_1 / C_2, between 0 and 1.

    Conditions: f is L-smooth (asp:smooth; L_eps will not do) and satisfies
    ||grad f||^2 >= 2 mu (f - f*) (asp:pl), differences are exact (asp:acc_fd), gamma = 1, m = n,
    C_1 > 0. With B = n it is gradient descent's 1 - 2 mu alpha (1 - L alpha / 2). The bound that it
    gives for t steps counts from a point x_0 at which all n estimates were made; from a cold
    buffer, or from the middle of a run, it fails (docs/theory.md).

    >>> convergence_rate(alpha=0.5, L=1.0, mu=1.0, n=2, B=1)
    0.888...
    """
    PL = above_zero("mu", mu)
    C_1, C_2 = convergence_constants(alpha, L, n, B)
    if bool(np.any(np.asarray(L) < PL)):
        raise ValueError(f"mu={mu!r} is more than L={L!r}, which no function can have; use mu <= L")
    if bool(np.any(np.asarray(C_1) <= 0)):
        limit = largest_learning_rate(L, n, B)
        raise ValueError(f"alpha={alpha!r} makes C_1 negative or 0; use an alpha below {limit}")
    return plain(1 - 2 * PL * np.asarray(C_1) / np.asarray(C_2))


def convergence_bound(
    t: ArrayLike,
    gap: ArrayLike,
    alpha: ArrayLike,
    L: ArrayLike,
    mu: ArrayLike,
    n: ArrayLike,
    B: ArrayLike,
) -> Bound:
    r"""What f(x_t) - f* cannot exceed, with gap = f(x_0) - f*: the convergence theorem.

    thm:convergence: (1 - 2 mu C_1 / C_2)^t (f(x_0) - f*), under the conditions of
    `convergence_rate`.

    >>> convergence_bound(np.array([0, 1, 9]), gap=1.0, alpha=0.5, L=1.0, mu=1.0, n=2, B=1).round(3)
    array([1.   , 0.889, 0.346])
    """
    rate = np.asarray(convergence_rate(alpha, L, mu, n, B))
    power = np.maximum(rate, 0.0) ** at_least_zero("t", t)  # rounding may give -1e-17
    return plain(power * at_least_zero("gap", gap))


def largest_learning_rate(L: ArrayLike, n: ArrayLike, B: ArrayLike) -> Bound:
    r"""Where C_1 becomes 0: 2 / (L (1 + n tau)), section 5.3 (subsec:stability_analysis).

    Every alpha below it satisfies thm:convergence; gamma = 1 and m = n; L is that of the gradient,
    not L_eps, with which it may be sqrt(n) times too large. It is sufficient, not necessary: runs
    are often stable far above it.

    >>> largest_learning_rate(L=2.0, n=2, B=1)
    0.333...
    """
    n, B = budgets(n, B)
    return plain(2 / (smoothness(L) * (1 + 2 * lags(n, B))))


def best_learning_rate(L: ArrayLike, n: ArrayLike, B: ArrayLike) -> Bound:
    r"""The alpha at which `convergence_rate` is smallest; not in the paper.

    C_1 / C_2 is largest at 1 / alpha = L (1 + 3 n tau / 2), where the rate is
    1 - mu / (L (1 + 2 n tau)). Conditions: those of `convergence_rate`.

    >>> best_learning_rate(L=1.0, n=2, B=1), best_learning_rate(L=1.0, n=2, B=2)
    (0.25, 1.0)
    """
    n, B = budgets(n, B)
    return plain(1 / (smoothness(L) * (1 + 3 * lags(n, B))))


def estimate_change_bound(n: ArrayLike, B: ArrayLike, L: ArrayLike, delta: ArrayLike) -> Bound:
    r"""What ||g_t - g_(t-1)|| cannot exceed: n L delta, eq:grad_diff_bound (appendix C).

    Where B does not divide n some estimates are replaced a step later, and n becomes
    B ceil(n / B). Conditions: those of `error_bound` at t - 1 (the step that completes the first
    sweep still replaces zeros), with delta over the last ceil(n / B) steps.

    >>> estimate_change_bound(n=6, B=2, L=1.0, delta=0.1), estimate_change_bound(3, 2, 1.0, 0.1)
    (0.6..., 0.4)
    """
    n, B = budgets(n, B)
    return plain(B * -(-n // B) * smoothness(L) * at_least_zero("delta", delta))
