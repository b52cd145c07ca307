"""3x3 convolution -> 2x2 max-pool -> activation (-> flatten -> linear) with the samples last.

A chain of fused loops whose innermost dimension is the batch (`conv_batch_last_loops.py`): two to
six times as fast as loops over channels or pixels, which are too short for a vector unit. Changes
are stored with their samples last but keep their logical shape, so every other rule can read them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..change import Change, slab
from ..graph.graph import Run
from ..registry import Moves
from . import dispatch as kernels
from .scratch import Scratch

_FEWEST = 16  # samples: with fewer, the innermost loop is too short
_NEAR = 2 << 20  # bytes that stay in the cache between writing and reading

# Winograd's filter transform for tiles of 2x2 (Lavin and Gray, 2016): u = G g G'.
_G = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], dtype=torch.float64)


class Position(NamedTuple):
    """The position of such a chain in the graph."""

    head: int
    last: int
    tail: int | None  # a linear layer behind a flatten
    code: int  # of the activation


def fits(m: object, pool: tuple[int, int] | None) -> bool:
    """Do the loops support this geometry?"""
    return (
        type(m) is nn.Conv2d
        and m.kernel_size == (3, 3)
        and m.stride == m.dilation == (1, 1)
        and m.groups == 1
        and m.padding_mode == "zeros"
        and pool == (2, 2)
    )


class Base(NamedTuple):
    """Activations of the unperturbed pass, samples last."""

    z: Tensor  # (O, H', W', N)
    before: Tensor  # behind the activation, (O, P, Q, N)


def enough(z: Tensor) -> bool:
    """Is the batch large enough, and is there an output at all?"""
    return z.dim() == 4 and len(z) >= _FEWEST and z.shape[2] >= 2 and z.shape[3] >= 2


def _last(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (C, H, W, N), as a 2-D transpose, which is fastest in torch."""
    return x.flatten(1).t().contiguous().view(*x.shape[1:], len(x))


def _padding(m: nn.Conv2d) -> tuple[int, int]:
    if isinstance(m.padding, str):
        return (1, 1) if m.padding == "same" else (0, 0)
    top, left = m.padding
    return top, left


def _padded(m: nn.Conv2d, x: Tensor, out: Tensor) -> Tensor:
    top, left = _padding(m)
    kernels.batch_last(out.numel()).pad(x.numpy(), top, left, out.numpy())
    return out


def _size(m: nn.Conv2d, H: int, W: int) -> tuple[int, int]:
    top, left = _padding(m)
    return H + 2 * top, W + 2 * left


def _base(run: Run, place: Position) -> Base:
    """Compute the base with the loop's own activation, so that its rounding cancels."""

    def make() -> Base:
        z = _last(run.values[place.head])
        tiles = z[:, : z.shape[1] // 2 * 2, : z.shape[2] // 2 * 2]
        rows = torch.maximum(tiles[:, ::2], tiles[:, 1::2])
        before = torch.maximum(rows[:, :, ::2], rows[:, :, 1::2])
        kernels.activate(before, place.code, before)
        return Base(z, before)

    return run.memo(("conv_batch_last", place.head), make)


def enter(
    run: Run, place: Position, m: nn.Conv2d, moves: Moves, scratch: Scratch
) -> tuple[int, Change]:
    """Propagate moves of elements of the convolution's weight."""
    base, source = _base(run, place), run.call(run.graph.nodes[place.head]).args[0]

    def make() -> Tensor:
        x = _last(source)
        return _padded(m, x, x.new_empty(x.shape[0], *_size(m, *x.shape[1:3]), x.shape[3]))

    x = run.memo(("padded conv_batch_last", place.head), make)
    where = np.stack(np.unravel_index(moves.index, tuple(m.weight.shape)), 1)
    outputs = where[:, 0]
    _, P, Q, N = base.before.shape
    out = scratch.take((moves.K, P, Q, N), x.dtype)
    kernels.batch_last(4 * out.numel()).move(
        x.numpy(), base.z.numpy(), base.before.numpy(), where, moves.steps.numpy(), place.code,
        out.numpy(),
    )  # fmt: skip
    if place.tail is None:
        added = out.permute(0, 3, 1, 2).unsqueeze(2)
        return place.last, slab(run.values[place.last], 1, outputs.tolist(), 1, added)
    columns = run.memo(("columns by channel", place.tail), lambda: _columns(run, place, P * Q))
    picked = columns[torch.from_numpy(outputs)]
    held = out[0].numel() + picked[0].numel()
    return _through(run, place, torch.bmm(picked, out.view(moves.K, P * Q, N)), held)


def flow(
    run: Run, place: Position, m: nn.Conv2d, x: Change, scratch: Scratch
) -> tuple[int, Change] | None:
    """Propagate a change of the convolution's input: one channel per probe, or all channels."""
    one = x.dim == 1 and x.width == 1
    if not one and not x.is_dense:
        return None
    base = _base(run, place)
    added = x.delta().permute(0, 2, 3, 4, 1).contiguous()  # (K, I or 1, H, W, N)
    K, I, H, W, N = added.shape  # noqa: E741
    wide = scratch.take((K * I, *_size(m, H, W), N), added.dtype)
    delta = _padded(m, added.view(K * I, H, W, N), wide).view(K, I, *wide.shape[1:])
    channels = np.array(x.starts * K if x.is_single else x.starts)
    if place.tail is None:
        out = scratch.take((K, *base.before.shape), added.dtype)
        _convolve(run, place, m, delta, channels if one else None, base, out)
        values = run.values[place.last]
        return place.last, Change(values, K, difference=out.permute(0, 4, 1, 2, 3))
    # A few probes at a time, so that the values between the two layers stay in the cache.
    few = min(K, max(2, _NEAR // (base.before.numel() * base.before.element_size())))
    out = scratch.take((few, *base.before.shape), added.dtype)
    weight = _weight_behind(run, place.tail).expand(few, -1, -1)
    sums = scratch.take((K, weight.shape[1], N), added.dtype)
    for first in range(0, K, few):
        part = slice(first, min(K, first + few))
        size = part.stop - first
        _convolve(run, place, m, delta[part], channels[part] if one else None, base, out[:size])
        torch.bmm(weight[:size], out[:size].view(size, -1, N), out=sums[part])
    return _through(run, place, sums, delta[0].numel())


def _convolve(
    run: Run,
    place: Position,
    m: nn.Conv2d,
    delta: Tensor,
    channels: kernels.Indices | None,
    base: Base,
    out: Tensor,
) -> None:
    """Compute the change behind the chain; `channels` is None if all input channels changed."""
    last = (base.z.numpy(), base.before.numpy(), place.code, out.numpy())
    if channels is not None:
        filters = m.weight.detach().reshape(*m.weight.shape[:2], 9).contiguous().numpy()
        kernels.batch_last(9 * out.numel()).correct(delta[:, 0].numpy(), channels, filters, *last)
    else:
        filters = run.memo(("winograd", place.head), lambda: _winograd(m.weight)).numpy()
        kernels.batch_last(16 * out.numel()).convolve(delta.numpy(), filters, *last)


def _through(run: Run, place: Position, added: Tensor, held: int) -> tuple[int, Change]:
    """Wrap (K, outputs, N) as the change of the linear layer behind the chain."""
    assert place.tail is not None
    values = run.values[place.tail]
    return place.tail, Change(values, len(added), difference=added.mT, on_the_way=held)


def _weight_behind(run: Run, tail: int) -> Tensor:
    linear = run.graph.nodes[tail].module
    assert isinstance(linear, nn.Linear)
    return linear.weight.detach()


def _columns(run: Run, place: Position, size: int) -> Tensor:
    """The linear layer's weight, grouped by input channel: (C, outputs, P * Q)."""
    assert place.tail is not None
    weight = _weight_behind(run, place.tail)
    return weight.view(len(weight), -1, size).transpose(0, 1).contiguous()


def _winograd(weight: Tensor) -> Tensor:
    """Transform filters (O, I, 3, 3) -> (O, 16, I)."""
    G = _G.to(weight.device)
    u = torch.einsum("ya,oiab,xb->oyxi", G, weight.detach().double(), G)
    return u.reshape(len(weight), 16, -1).to(weight.dtype).contiguous()
