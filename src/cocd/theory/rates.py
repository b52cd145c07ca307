"""Section 5.3: what (gamma, m) make of the learning rate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..parts.validation import check_count
from .arguments import above_zero, at_least_zero


def age_weights(gamma: float, m: int, n: int, B: int) -> NDArray[np.float64]:
    r"""By how much an estimate counts at each age: the learning rate at age a is alpha times it.

    An estimate is applied in the step that makes it (age 0) and, times gamma more, in each
    following one, until m newer ones have been written. A step writes B, so at age a all of a
    block is remembered while (a + 1) B <= m, then the newest m - a B of it, then nothing. The
    weight is the mean over a block::

        w_a = gamma^a min(1, (m - a B) / B),    a = 0, ..., ceil(m / B) - 1

    Section 5.3 has the same geometric rates {alpha, alpha gamma, ...} and says that blocks with
    staleness "larger than m / B" get none; where B divides m, m / B itself gets none already.

    >>> age_weights(gamma=0.5, m=8, n=8, B=2)
    array([1.   , 0.5  , 0.25 , 0.125])
    >>> age_weights(gamma=1.0, m=5, n=8, B=2)  # of the oldest block one estimate of two is left
    array([1. , 1. , 0.5])
    """
    gamma = float(at_least_zero("gamma", gamma))
    if gamma > 1:
        raise ValueError(f"gamma must be a number from 0 to 1, got {gamma}")
    n, B, m = check_count("n", n), check_count("B", B), check_count("m", m)
    if not B <= m <= n:
        raise ValueError(f"B={B}, m={m}, n={n}: a memory needs B <= m <= n")
    ages = np.arange(-(-m // B))
    return np.asarray(gamma**ages * np.minimum(1.0, (m - ages * B) / B), dtype=np.float64)


def learning_rate_per_estimate(alpha: float, gamma: float, m: int, n: int, B: int) -> float:
    r"""How far one estimate moves its coordinate in all, as a multiple of the estimate.

    alpha times the sum of `age_weights`: alpha (1 - gamma^(m/B)) / (1 - gamma) where B divides
    m, alpha m / B for gamma = 1, alpha for gamma = 0. So CoCD with full memory moves a coordinate
    n / B times as far a sweep as BCCD does at the same alpha.

    >>> learning_rate_per_estimate(alpha=0.1, gamma=1.0, m=8, n=8, B=2)
    0.4
    >>> learning_rate_per_estimate(alpha=0.1, gamma=0.0, m=8, n=8, B=2)
    0.1
    """
    return float(above_zero("alpha", alpha)) * float(age_weights(gamma, m, n, B).sum())


def effective_learning_rate(alpha: float, gamma: float, m: int, n: int, B: int) -> float:
    r"""The learning rate of one step, averaged over the n coordinates.

    Section 5.3 names an effective learning rate alpha_eff(gamma, m) and asks for
    alpha_eff < 2 / (L (1 + n tau)), but gives no equation for it and no proof. This is ours:
    B / n times `learning_rate_per_estimate`. It is alpha for gamma = 1 and m = n, and
    alpha B / n for gamma = 0.

    >>> effective_learning_rate(alpha=0.1, gamma=1.0, m=8, n=8, B=2)
    0.1
    >>> effective_learning_rate(alpha=0.1, gamma=0.0, m=8, n=8, B=2)
    0.025
    """
    return learning_rate_per_estimate(alpha, gamma, m, n, B) * B / n
