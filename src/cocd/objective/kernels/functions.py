"""The loop compiler, and tanh, SiLU and exp(x) - 1 for loops, in float32 and float64.

The type of x selects the variant of `tanh(x)`. Imported only with numba. numba does not notice that
a cached loop is older than this file: remove __pycache__ after a change here.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

# Allow contraction and reordering; NaN and infinity keep their meaning.
FAST = {"contract", "reassoc", "nsz", "arcp"}


def loop(function):
    """Compile a function at its first call, for all cores; cache it on disk if possible."""
    options: dict[str, Any] = {"parallel": True, "fastmath": FAST, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no writable place, as in some containers
        return njit(**options)(function)


def _by_type(single, double):
    """Give both variants one name; numba picks one by type and inlines it."""

    def function(x):
        raise TypeError("for compiled loops alone")

    @overload(function, jit_options={"fastmath": FAST, "forceinline": True})
    def _choose(x):
        return single if x == types.float32 else double

    return function


@njit(fastmath=FAST, forceinline=True)
def _doubled(p, q):
    """Numerator and denominator of tanh(2 y) = 2 t / (1 + t^2), where t = p / q = tanh(y)."""
    return np.float32(2.0) * p * q, q * q + p * p


def _tanh_single(x):
    """tanh(x) from tanh(x / 4), a continued fraction, doubling the argument twice.

    The fraction x (135135 + 17325 x^2 + 378 x^4 + x^6) / (135135 + 62370 x^2 + 3150 x^4 + 28 x^6)
    is exact to rounding for |x| <= 2.5; beyond 4 * 2.5 tanh is 1 in float32.
    """
    y = x if x < np.float32(10.0) else np.float32(10.0)
    y = (y if y > np.float32(-10.0) else np.float32(-10.0)) * np.float32(0.25)
    s = y * y
    p = y * (np.float32(135135.0) + s * (np.float32(17325.0) + s * (np.float32(378.0) + s)))
    q = np.float32(135135.0) + s * (
        np.float32(62370.0) + s * (np.float32(3150.0) + s * np.float32(28.0))
    )
    p, q = _doubled(p, q)
    p, q = _doubled(p, q)
    t = p / q
    return t if x == x else x


def _tanh_double(x):
    """tanh(x) from tanh(x / 8) with five more terms, doubling three times; 1 beyond 8 * 2.5."""
    y = x if x < 20.0 else 20.0
    y = (y if y > -20.0 else -20.0) * 0.125
    s = y * y
    p = 316234143225.0 + s * (
        45831035250.0 + s * (1571349780.0 + s * (18378360.0 + s * (75075.0 + s * 78.0)))
    )
    q = 316234143225.0 + s * (
        151242416325.0 + s * (9820936125.0 + s * (192972780.0 + s * (1351350.0 + s * (3003.0 + s))))
    )
    p, q = _doubled(y * p, q)
    p, q = _doubled(p, q)
    p, q = _doubled(p, q)
    t = p / q
    return t if x == x else x


tanh = _by_type(_tanh_single, _tanh_double)


def _silu_single(x):
    """SiLU, x sigmoid(x); x is clamped at -20, where the result vanishes, to avoid inf * 0."""
    y = x if x > np.float32(-20.0) or x != x else np.float32(-20.0)
    half = np.float32(0.5) * y
    return half + half * tanh(half)


def _silu_double(x):
    """SiLU with x clamped at -40."""
    y = x if x > -40.0 or x != x else -40.0
    half = 0.5 * y
    return half + half * tanh(half)


silu = _by_type(_silu_single, _silu_double)


def _expm1_single(x):
    """The series of exp(x) - 1 for |x| <= 1, in a form without cancellation near zero."""
    s = np.float32(1 / 362880) + x * np.float32(1 / 3628800)
    s = np.float32(1 / 5040) + x * (np.float32(1 / 40320) + x * s)
    s = np.float32(1 / 120) + x * (np.float32(1 / 720) + x * s)
    s = np.float32(1 / 6) + x * (np.float32(1 / 24) + x * s)
    return x + x * x * (np.float32(0.5) + x * s)


def _expm1_double(x):
    """The C library's function: its speed does not matter here."""
    return np.expm1(x)


expm1 = _by_type(_expm1_single, _expm1_double)
