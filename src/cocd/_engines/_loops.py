"""The loops themselves; imported only where numba is installed.

`geometry` is (kernel, stride, dilation, pool), each as two numbers, rows first. NaN wins every
maximum, as in torch.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import njit, prange

# Contraction and reordering are free; NaN and infinity keep their meaning.
_FAST = {"contract", "reassoc", "nsz", "arcp"}
_ONE = np.float32(1.0)


@njit(inline="always", fastmath=_FAST)
def _tanh(x):
    """tanh(x) from tanh(x / 4), a continued fraction, by doubling the argument twice.

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
    t = np.float32(2.0) * p * q / (q * q + p * p)  # tanh(2 y), with t = p / q
    t = np.float32(2.0) * t / (_ONE + t * t)
    return t if x == x else x


@njit(inline="always", fastmath=_FAST)
def _act(x, act):
    if act == 1:
        return _tanh(x)
    if act == 2:
        return x if x > 0 or x != x else np.float32(0.0)
    return x


@njit(parallel=True, fastmath=_FAST, error_model="numpy", cache=True)
def rank_one(base, per_sample, per_unit, act, out):
    K, N, U = out.shape
    many = per_unit.shape[0] > 1
    for kn in prange(K * N):
        k, n = kn // N, kn % N
        d = per_sample[k, n]
        column = per_unit[k if many else 0]
        if act == 1:
            for u in range(U):
                out[k, n, u] = _tanh(base[n, u] + d * column[u])
        else:
            for u in range(U):
                out[k, n, u] = _act(base[n, u] + d * column[u], act)


@njit(parallel=True, fastmath=_FAST, error_model="numpy", cache=True)
def activate(x, act, out):
    size = 4096
    for block in prange((len(x) + size - 1) // size):
        first, last = block * size, min(len(x), (block + 1) * size)
        if act == 1:
            for i in range(first, last):
                out[i] = _tanh(x[i])
        else:
            for i in range(first, last):
                out[i] = _act(x[i], act)


@njit(parallel=True, fastmath=_FAST, error_model="numpy", cache=True)
def correct_and_pool(delta, filters, base, geometry, act, out):
    """Max-pool of base + (one changed, padded input channel) convolved with its filters.

    delta (K * N, H, W), filters (taps, C), base (N, H', W', C) -> out (K * N, C, H'', W'').
    """
    kh, kw, sh, sw, dh, dw, ph, pw = geometry
    N, C = base.shape[0], base.shape[3]
    M, _, PH, PW = out.shape
    for m in prange(M):
        n = m % N
        acc, best = np.empty(C, np.float32), np.empty(C, np.float32)
        for py in range(PH):
            for px in range(PW):
                for inside in range(ph * pw):
                    y, x = py * ph + inside // pw, px * pw + inside % pw
                    for c in range(C):
                        acc[c] = base[n, y, x, c]
                    for a in range(kh):
                        for b in range(kw):
                            d = delta[m, y * sh + a * dh, x * sw + b * dw]
                            for c in range(C):
                                acc[c] += d * filters[a * kw + b, c]
                    if inside == 0:
                        for c in range(C):
                            best[c] = acc[c]
                    else:
                        for c in range(C):
                            v = acc[c]
                            best[c] = v if v > best[c] or v != v else best[c]
                if act == 1:
                    for c in range(C):
                        best[c] = _tanh(best[c])
                elif act == 2:
                    for c in range(C):
                        best[c] = _act(best[c], 2)
                for c in range(C):
                    out[m, c, py, px] = best[c]


@njit(parallel=True, fastmath=_FAST, error_model="numpy", cache=True)
def move_and_pool(x, base, where, steps, geometry, act, out):
    """Max-pool of one output channel plus step times a shifted input channel.

    x (N, C, H, W) padded, base (N, O, H', W'), where (K, 4) of output channel, input channel and
    tap -> out (K, N, H'', W'').
    """
    kh, kw, sh, sw, dh, dw, ph, pw = geometry
    K, N, PH, PW = out.shape
    for kn in prange(K * N):
        k, n = kn // N, kn % N
        o, i, a, b = where[k, 0], where[k, 1], where[k, 2] * dh, where[k, 3] * dw
        h = steps[k]
        row = np.empty(PW, np.float32)
        for py in range(PH):
            for px in range(PW):
                row[px] = np.float32(-np.inf)
            for dy in range(ph):
                y = py * ph + dy
                for dx in range(pw):
                    for px in range(PW):
                        q = px * pw + dx
                        v = base[n, o, y, q] + h * x[n, i, y * sh + a, q * sw + b]
                        row[px] = v if v > row[px] or v != v else row[px]
            if act == 1:
                for px in range(PW):
                    out[k, n, py, px] = _tanh(row[px])
            else:
                for px in range(PW):
                    out[k, n, py, px] = _act(row[px], act)
