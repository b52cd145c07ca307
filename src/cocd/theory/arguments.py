"""What all bounds ask of their arguments, and the one sum they share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Bound = float | Array  # a number for numbers, an array for arrays


def lags(n: Array, B: Array) -> Array:
    """The sum of all coordinates' lags: B each of 0, ..., K - 1 and r of K."""
    K, r = n // B, n % B
    return np.asarray((B * K * (K - 1) + 2 * r * K) / 2)


def plain(value: ArrayLike) -> Bound:
    """A float for a single number."""
    numbers = np.asarray(value, dtype=np.float64)
    return float(numbers) if numbers.ndim == 0 else numbers


def finite(name: str, value: ArrayLike) -> Array:
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an array, got {value!r}") from None
    if not bool(np.isfinite(numbers).all()):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return numbers


def at_least_zero(name: str, value: ArrayLike) -> Array:
    numbers = finite(name, value)
    if bool((numbers < 0).any()):
        raise ValueError(f"{name} must not be negative, got {value!r}")
    return numbers


def above_zero(name: str, value: ArrayLike) -> Array:
    numbers = finite(name, value)
    if not bool((numbers > 0).all()):
        raise ValueError(f"{name} must be above 0, got {value!r}")
    return numbers


def smoothness(L: ArrayLike) -> Array:
    return above_zero("L", L)


def budgets(n: ArrayLike, B: ArrayLike) -> tuple[Array, Array]:
    """Whole numbers 1 <= B <= n, as floats, since n^2 may not fit an int64."""
    whole = []
    for name, value in (("n", n), ("B", B)):
        numbers = above_zero(name, value)
        if bool((numbers != np.floor(numbers)).any()):
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        whole.append(numbers)
    if bool((whole[1] > whole[0]).any()):
        raise ValueError(f"B={B!r} is more than the n={n!r} coordinates; use B <= n")
    return whole[0], whole[1]
