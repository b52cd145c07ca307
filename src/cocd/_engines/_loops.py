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


@njit(inline="always", fastmath=_FAST)
def _larger(a, b):
    return a if a > b or a != a else b


@njit(inline="always", fastmath=_FAST)
def _add_three(acc, d, y, p, q, r, f, g, h):
    a, b, c = d[y, p], d[y, q], d[y, r]
    for i in range(len(acc)):
        acc[i] += a * f[i] + b * g[i] + c * h[i]


@njit(inline="always", fastmath=_FAST)
def _add_one(acc, a, f):
    for i in range(len(acc)):
        acc[i] += a * f[i]


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
        d = delta[m]
        for py in range(PH):
            for px in range(PW):
                for c in range(C):
                    best[c] = np.float32(-np.inf)
                for inside in range(ph * pw):
                    y, x = py * ph + inside // pw, px * pw + inside % pw
                    here = base[n, y, x]
                    for c in range(C):
                        acc[c] = here[c]
                    for a in range(kh):
                        row = y * sh + a * dh
                        if kw == 3:  # the usual width, in one pass: more arrays at a time and
                            p, q, r = x * sw, x * sw + dw, x * sw + 2 * dw  # LLVM gives up
                            i = 3 * a
                            _add_three(
                                acc, d, row, p, q, r, filters[i], filters[i + 1], filters[i + 2]
                            )
                        else:
                            for b in range(kw):
                                _add_one(acc, d[row, x * sw + b * dw], filters[a * kw + b])
                    for c in range(C):
                        best[c] = _larger(acc[c], best[c])
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
    _, _, sh, sw, dh, dw, ph, pw = geometry
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
                        row[px] = _larger(v, row[px])
            if act == 1:
                for px in range(PW):
                    out[k, n, py, px] = _tanh(row[px])
            else:
                for px in range(PW):
                    out[k, n, py, px] = _act(row[px], act)


@njit(parallel=True, fastmath=_FAST, error_model="numpy", cache=True)
def rank_one_through(base, per_sample, per_unit, act, before, weight, out):
    """What a small linear layer behind the activation adds: weight @ (act(...) - before).

    base (N, U), per_sample (K, N), per_unit (K or 1, U), before (N, U), weight (O, U) ->
    out (K, N, O). The hidden units of a probe never leave the cache.
    """
    K, N, outputs = out.shape
    U = base.shape[1]
    many = per_unit.shape[0] > 1
    for kn in prange(K * N):
        k, n = kn // N, kn % N
        d = per_sample[k, n]
        column = per_unit[k if many else 0]
        row = np.empty(U, np.float32)
        if act == 1:
            for u in range(U):
                row[u] = _tanh(base[n, u] + d * column[u]) - before[n, u]
        else:
            for u in range(U):
                row[u] = _act(base[n, u] + d * column[u], act) - before[n, u]
        for o in range(outputs):
            total = np.float32(0.0)
            for u in range(U):
                total += weight[o, u] * row[u]
            out[k, n, o] = total


@njit(parallel=True, fastmath=_FAST, error_model="numpy", cache=True)
def activate_through(x, act, before, weight, out):
    """The same from changed inputs of the activation: x (K * N, U) -> out (K * N, O)."""
    M, outputs = out.shape
    N, U = before.shape
    for m in prange(M):
        n = m % N
        row = np.empty(U, np.float32)
        if act == 1:
            for u in range(U):
                row[u] = _tanh(x[m, u]) - before[n, u]
        else:
            for u in range(U):
                row[u] = _act(x[m, u], act) - before[n, u]
        for o in range(outputs):
            total = np.float32(0.0)
            for u in range(U):
                total += weight[o, u] * row[u]
            out[m, o] = total
