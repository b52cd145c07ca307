"""The fused loops; imported only with numba.

`geometry` is (kernel, stride, dilation, pool), each as two numbers, rows first. NaN wins every
maximum, as in torch.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import njit, prange

from .functions import FAST, expm1, loop, silu, tanh

_ONE = np.float32(1.0)


@njit(inline="always", fastmath=FAST)
def _act(x, act):
    if act == 1:
        return tanh(x)
    if act == 2:
        return x if x > 0 or x != x else np.float32(0.0)
    if act == 3:
        return silu(x)
    return x


@njit(inline="always", fastmath=FAST)
def _activate(row, act):
    """Apply the activation in place, in one loop per function, so that LLVM vectorises each."""
    if act == 1:
        for i in range(len(row)):
            row[i] = tanh(row[i])
    elif act == 3:
        for i in range(len(row)):
            row[i] = silu(row[i])
    elif act == 2:
        for i in range(len(row)):
            row[i] = _act(row[i], 2)


@loop
def move_units(x, base, before, units, features, steps, act, out):
    """Compute act(base + step * feature) - before in the one unit whose weight moves.

    x (N, F), base and before (N, U); feature -1 is the bias -> out (K, N).
    """
    K, N = out.shape
    for k in prange(K):
        u, f, h = units[k], features[k], steps[k]
        row = out[k]
        if f < 0:
            for n in range(N):
                row[n] = base[n, u] + h
        else:
            for n in range(N):
                row[n] = base[n, u] + h * x[n, f]
        _activate(row, act)
        for n in range(N):
            row[n] -= before[n, u]


@loop
def rank_one(base, change, columns, starts, act, out):
    """Compute act(base + change * column) with the column of each probe's changed input unit.

    base (N, U), change (K, N), columns (inputs, U), starts (K) -> out (K, N, U).
    """
    K, N, U = out.shape
    for k in prange(K):
        column = columns[starts[k]]
        for n in range(N):
            d = change[k, n]
            for u in range(U):
                out[k, n, u] = base[n, u] + d * column[u]
        _activate(out[k].reshape(N * U), act)  # flat, because the ends of rows do not fill a vector


@loop
def activate(x, act, out):
    size = 4096
    for block in prange((len(x) + size - 1) // size):
        first, last = block * size, min(len(x), (block + 1) * size)
        row = out[first:last]
        for i in range(first, last):
            row[i - first] = x[i]
        _activate(row, act)


@loop
def squared(difference, residual, totals):
    K, M = difference.shape
    for k in prange(K):
        total = 0.0
        d = difference[k]
        for i in range(M):
            total += d[i] * (d[i] + np.float32(2.0) * residual[i])
        totals[k] = total


@njit(inline="always", fastmath=FAST)
def _larger(a, b):
    return a if a > b or a != a else b


@njit(inline="always", fastmath=FAST)
def _add_three(acc, d, y, p, q, r, f, g, h):
    a, b, c = d[y, p], d[y, q], d[y, r]
    for i in range(len(acc)):
        acc[i] += a * f[i] + b * g[i] + c * h[i]


@njit(inline="always", fastmath=FAST)
def _add_one(acc, a, f):
    for i in range(len(acc)):
        acc[i] += a * f[i]


@loop
def correct_and_pool(delta, filters, base, geometry, act, out):
    """Max-pool base + (one changed, padded input channel convolved with its filters).

    delta (K * N, H, W), filters (taps, C), base (N, H', W', C) -> out (K * N, C, H'', W'').
    """
    kh, kw, sh, sw, dh, dw, ph, pw = geometry
    N, C = base.shape[0], base.shape[3]
    M, _, PH, PW = out.shape
    for m in prange(M):
        n = m % N
        acc, best = np.empty(C, out.dtype), np.empty(C, out.dtype)
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
                        if kw == 3:  # the usual width takes one pass; with more arrays
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
                _activate(best, act)
                for c in range(C):
                    out[m, c, py, px] = best[c]


@loop
def move_and_pool(x, base, where, steps, geometry, act, out):
    """Max-pool one output channel plus step times a shifted input channel.

    x (N, C, H, W) padded, base (N, O, H', W'), where (K, 4) of output channel, input channel and
    tap -> out (K, N, H'', W'').
    """
    _, _, sh, sw, dh, dw, ph, pw = geometry
    K, N, PH, PW = out.shape
    for kn in prange(K * N):
        k, n = kn // N, kn % N
        o, i, a, b = where[k, 0], where[k, 1], where[k, 2] * dh, where[k, 3] * dw
        h = steps[k]
        row = np.empty(PW, out.dtype)
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
                    out[k, n, py, px] = tanh(row[px])
            else:
                for px in range(PW):
                    out[k, n, py, px] = _act(row[px], act)


@njit(inline="always", fastmath=FAST)
def _through(hidden, before, weight, out):
    """Compute a small linear layer's change, (hidden - before) @ weight.T, for one probe."""
    N, P = before.shape
    for n in range(N):
        row = hidden[n]
        for u in range(P):
            row[u] -= before[n, u]
        for o in range(len(weight)):
            total = np.float32(0.0)
            for u in range(P):
                total += weight[o, u] * row[u]
            out[n, o] = total


@loop
def rank_one_through(base, change, columns, starts, act, before, weight, out):
    """`rank_one`, then the change of a small linear layer; the units never leave the cache.

    base and before (N, P), change (K, N), columns (inputs, P), starts (K), weight (O, P) ->
    out (K, N, O). The P units are padded with zeros, as in `dispatch.padded`.
    """
    K, N, _ = out.shape
    P = base.shape[1]
    for k in prange(K):
        column = columns[starts[k]]
        hidden = np.empty((N, P), out.dtype)
        for n in range(N):
            d = change[k, n]
            for u in range(P):
                hidden[n, u] = base[n, u] + d * column[u]
        _activate(hidden.reshape(N * P), act)
        _through(hidden, before, weight, out[k])


@loop
def activate_through(x, act, before, weight, out):
    """Like `rank_one_through`, from x (K, N, P), the activation's inputs, which it overwrites."""
    K, N, P = x.shape
    for k in prange(K):
        _activate(x[k].reshape(N * P), act)
        _through(x[k], before, weight, out[k])


@loop
def cross_entropy(difference, base, p, log_sums, labels, totals):
    """Sum log sum exp(b + d) - log sum exp(b) - d[label] over the samples.

    difference (K, C, N), base and its softmax p (C, N), log_sums and labels (N). If no |d| exceeds
    1, the first two terms are computed as log(1 + sum p (e^d - 1)), which is accurate for small d;
    otherwise they are computed as written.
    """
    K, C, N = difference.shape
    for k in prange(K):
        d = difference[k]
        total, near = 0.0, 0
        for c in range(C):
            row = d[c]
            for n in range(N):
                near += np.abs(row[n]) <= _ONE
        if near == C * N:
            rise = np.zeros(N, difference.dtype)
            for c in range(C):
                row, weight = d[c], p[c]
                for n in range(N):
                    rise[n] += weight[n] * expm1(row[n])
            first = 0
            while first < N:  # one logarithm per eight samples
                product = 1.0
                for n in range(first, min(N, first + 8)):
                    product *= 1.0 + np.float64(rise[n])
                total += np.log(product)
                first += 8
        else:
            for n in range(N):
                total += _log_sum(d, base, n) - log_sums[n]
        for n in range(N):
            total -= d[labels[n], n]
        totals[k] = total


@njit(fastmath=FAST, error_model="numpy")
def _log_sum(d, base, n):
    top = np.float64(-np.inf)
    for c in range(len(base)):
        value = np.float64(base[c, n]) + d[c, n]
        top = value if value > top or value != value else top
    total = 0.0
    for c in range(len(base)):
        total += np.exp(np.float64(base[c, n]) + d[c, n] - top)
    return top + np.log(total)
