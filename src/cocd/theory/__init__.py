r"""The paper's bounds (its section 5 and appendices A and C) as functions of numbers.

Symbols: n coordinates, B of them probed per step, K = floor(n / B), r = n mod B; L stands for the
smoothness constant; delta for the longest step ||x_j - x_(j-1)|| of the last sweep. Where a bound
is about estimates (`error_bound`, `euclidean_error_bound`, `largest_step`,
`estimate_change_bound`), L may be L_eps, that of the finite differences, which is sharper; where it
is about convergence it may not: L_eps bounds single rows of the Hessian and can be sqrt(n) times
smaller than L. The theorems are about ``decay=1`` and a memory of all n coordinates (gamma = 1, m =
n), cyclic order and one fixed f, and they take the buffer to hold an estimate of every coordinate.
The algorithm starts from zeros, so they say nothing about the first sweep: see docs/theory.md,
which also has what the proofs leave open.

Numbers give a float, arrays are broadcast against each other.

>>> import numpy as np
>>> from cocd.theory import error_bound, largest_learning_rate
>>> error_bound(n=4, B=2, L=1.0, delta=0.1)  # two coordinates are one step old
0.2
>>> largest_learning_rate(L=1.0, n=4, B=np.array([1, 2, 4])).round(3)
array([0.154, 0.4  , 2.   ])
"""

from .approximation import (
    Regime,
    efficient_regime,
    error_bound,
    euclidean_error_bound,
    full_budget,
    largest_step,
    smoothness_from_below,
    step_bound,
    worst_case,
)
from .convergence import (
    Constants,
    best_learning_rate,
    convergence_bound,
    convergence_constants,
    convergence_rate,
    estimate_change_bound,
    largest_learning_rate,
    staleness,
)
from .rates import age_weights, effective_learning_rate, learning_rate_per_estimate

__all__ = [
    "Constants",
    "Regime",
    "age_weights",
    "best_learning_rate",
    "convergence_bound",
    "convergence_constants",
    "convergence_rate",
    "effective_learning_rate",
    "efficient_regime",
    "error_bound",
    "estimate_change_bound",
    "euclidean_error_bound",
    "full_budget",
    "largest_learning_rate",
    "largest_step",
    "learning_rate_per_estimate",
    "smoothness_from_below",
    "staleness",
    "step_bound",
    "worst_case",
]
