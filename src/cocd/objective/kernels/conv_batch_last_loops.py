"""Loops over 3x3 convolutions with 2x2 max-pooling, the samples last; imported only with numba.

The last dimension of every array is the N samples of a batch, so the innermost loop always runs
over them: contiguous, as long as the batch, the same for every tap. Inputs and outputs are changes,
not values: convolution is linear, and a change is small compared with the value.
"""
# ruff: noqa: E741
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import njit, prange

from .functions import FAST, loop
from .loops import _activate, _add_one, _larger

_BLOCK = 128  # samples per block in sums over many channels: the transforms stay in cache


@njit(inline="always", fastmath=FAST, error_model="numpy")
def _corners(d, y, x, n):
    """Return the 4x4 inputs that a window of 2x2 outputs reads."""
    return (
        d[y, x, n], d[y, x + 1, n], d[y, x + 2, n], d[y, x + 3, n],
        d[y + 1, x, n], d[y + 1, x + 1, n], d[y + 1, x + 2, n], d[y + 1, x + 3, n],
        d[y + 2, x, n], d[y + 2, x + 1, n], d[y + 2, x + 2, n], d[y + 2, x + 3, n],
        d[y + 3, x, n], d[y + 3, x + 1, n], d[y + 3, x + 2, n], d[y + 3, x + 3, n],
    )  # fmt: skip


@njit(inline="always", fastmath=FAST, error_model="numpy")
def _largest(p, q, r, s):
    return _larger(_larger(p, q), _larger(r, s))


@loop
def pad(x, top, left, out):
    """Pad x (M, H, W, N) with zeros -> out (M, H', W', N)."""
    M, H, W, N = x.shape
    for m in prange(M):
        out[m] = np.float32(0.0)
        for y in range(H):
            for p in range(W):
                to, of = out[m, y + top, p + left], x[m, y, p]
                for n in range(N):
                    to[n] = of[n]


@loop
def move(x, base, before, where, steps, act, out):
    """Compute the change behind the pooling, in one output channel, when a filter element moves.

    x (I, H, W, N) padded, base (O, H', W', N), before (O, P, Q, N), where (K, 4) of output channel,
    input channel and tap -> out (K, P, Q, N).
    """
    K, P, Q, N = out.shape
    for k in prange(K):
        o, a, b, h = where[k, 0], where[k, 2], where[k, 3], steps[k]
        d, z = x[where[k, 1]], base[o]
        for p in range(P):
            for q in range(Q):
                y, u, row = 2 * p, 2 * q, out[k, p, q]
                for n in range(N):
                    row[n] = _largest(
                        z[y, u, n] + h * d[y + a, u + b, n],
                        z[y, u + 1, n] + h * d[y + a, u + 1 + b, n],
                        z[y + 1, u, n] + h * d[y + 1 + a, u + b, n],
                        z[y + 1, u + 1, n] + h * d[y + 1 + a, u + 1 + b, n],
                    )
        _activate(out[k].reshape(P * Q * N), act)
        _subtract(out[k].reshape(P * Q * N), before[o].reshape(P * Q * N))


@njit(inline="always", fastmath=FAST, error_model="numpy")
def _subtract(x, y):
    for i in range(len(x)):
        x[i] -= y[i]


@njit(inline="always", fastmath=FAST, error_model="numpy")
def _correct(d, base, w, y, x, out):
    w0, w1, w2, w3, w4, w5, w6, w7, w8 = w
    for n in range(len(out)):
        a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, e0, e1, e2, e3 = _corners(d, y, x, n)
        p = w0 * a0 + w1 * a1 + w2 * a2 + w3 * b0 + w4 * b1 + w5 * b2 + w6 * c0 + w7 * c1 + w8 * c2
        q = w0 * a1 + w1 * a2 + w2 * a3 + w3 * b1 + w4 * b2 + w5 * b3 + w6 * c1 + w7 * c2 + w8 * c3
        r = w0 * b0 + w1 * b1 + w2 * b2 + w3 * c0 + w4 * c1 + w5 * c2 + w6 * e0 + w7 * e1 + w8 * e2
        s = w0 * b1 + w1 * b2 + w2 * b3 + w3 * c1 + w4 * c2 + w5 * c3 + w6 * e1 + w7 * e2 + w8 * e3
        out[n] = _largest(
            base[y, x, n] + p,
            base[y, x + 1, n] + q,
            base[y + 1, x, n] + r,
            base[y + 1, x + 1, n] + s,
        )


@loop
def correct(delta, channels, filters, base, before, act, out):
    """Compute the change behind the activation when each probe changes one input channel.

    delta (K, H, W, N) padded, channels (K), filters (O, I, 9), base (O, H', W', N), before
    (O, P, Q, N) -> out (K, O, P, Q, N).
    """
    K, O, P, Q, N = out.shape
    for o in prange(O):
        z = base[o]
        for p in range(P):
            for q in range(Q):
                for k in range(K):  # innermost, so that the base stays in the cache
                    f = filters[o, channels[k]]
                    w = (f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8])
                    _correct(delta[k], z, w, 2 * p, 2 * q, out[k, o, p, q])
        for k in range(K):
            _activate(out[k, o].reshape(P * Q * N), act)
            _subtract(out[k, o].reshape(P * Q * N), before[o].reshape(P * Q * N))


@njit(inline="always", fastmath=FAST, error_model="numpy")
def _transform(d, y, x, first, out):
    """Compute B' d B of Winograd's F(2x2, 3x3) for one tile of one channel: 16 sums."""
    for n in range(out.shape[1]):
        a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, e0, e1, e2, e3 = _corners(
            d, y, x, first + n
        )
        p0, p1, p2, p3 = a0 - c0, a1 - c1, a2 - c2, a3 - c3
        q0, q1, q2, q3 = b0 + c0, b1 + c1, b2 + c2, b3 + c3
        r0, r1, r2, r3 = c0 - b0, c1 - b1, c2 - b2, c3 - b3
        s0, s1, s2, s3 = b0 - e0, b1 - e1, b2 - e2, b3 - e3
        out[0, n], out[1, n], out[2, n], out[3, n] = p0 - p2, p1 + p2, p2 - p1, p1 - p3
        out[4, n], out[5, n], out[6, n], out[7, n] = q0 - q2, q1 + q2, q2 - q1, q1 - q3
        out[8, n], out[9, n], out[10, n], out[11, n] = r0 - r2, r1 + r2, r2 - r1, r1 - r3
        out[12, n], out[13, n], out[14, n], out[15, n] = s0 - s2, s1 + s2, s2 - s1, s1 - s3


@njit(inline="always", fastmath=FAST, error_model="numpy")
def _add_four(acc, a, b, c, d, p, q, r, s):
    for n in range(len(acc)):
        acc[n] += p * a[n] + q * b[n] + r * c[n] + s * d[n]


@njit(inline="always", fastmath=FAST, error_model="numpy")
def _pooled(M, z, y, x, first, out):
    """Add A' M A, the four outputs of a tile, to the base and take their maximum."""
    for n in range(len(out)):
        m = first + n
        s0, s1 = M[0, n] + M[4, n] + M[8, n], M[1, n] + M[5, n] + M[9, n]
        s2, s3 = M[2, n] + M[6, n] + M[10, n], M[3, n] + M[7, n] + M[11, n]
        t0, t1 = M[4, n] - M[8, n] - M[12, n], M[5, n] - M[9, n] - M[13, n]
        t2, t3 = M[6, n] - M[10, n] - M[14, n], M[7, n] - M[11, n] - M[15, n]
        out[n] = _largest(
            z[y, x, m] + (s0 + s1 + s2),
            z[y, x + 1, m] + (s1 - s2 - s3),
            z[y + 1, x, m] + (t0 + t1 + t2),
            z[y + 1, x + 1, m] + (t1 - t2 - t3),
        )


@loop
def convolve(delta, filters, base, before, act, out):
    """Like `correct` for changes of all input channels, by Winograd's F(2x2, 3x3).

    A tile of 2x2 outputs takes 16 products per channel instead of 36, and a tile is exactly one
    pooling window. delta (K, I, H, W, N) padded, filters (O, 16, I) transformed -> out
    (K, O, P, Q, N).
    """
    K, O, P, Q, N = out.shape
    I = delta.shape[1]
    for row in prange(K * P):
        k, p = row // P, row % P
        for first in range(0, N, _BLOCK):
            size = min(_BLOCK, N - first)
            tiles, sums = np.empty((I, 16, size), out.dtype), np.empty((16, size), out.dtype)
            for q in range(Q):
                for i in range(I):
                    _transform(delta[k, i], 2 * p, 2 * q, first, tiles[i])
                for o in range(O):
                    sums[:] = np.float32(0.0)
                    for j in range(16):
                        u, acc, i = filters[o, j], sums[j], 0
                        while i + 4 <= I:
                            _add_four(
                                acc, tiles[i, j], tiles[i + 1, j], tiles[i + 2, j],
                                tiles[i + 3, j], u[i], u[i + 1], u[i + 2], u[i + 3],
                            )  # fmt: skip
                            i += 4
                        while i < I:
                            _add_one(acc, u[i], tiles[i, j])
                            i += 1
                    to = out[k, o, p, q, first : first + size]
                    _pooled(sums, base[o], 2 * p, 2 * q, first, to)
                    _activate(to, act)
                    _subtract(to, before[o, p, q, first : first + size])
