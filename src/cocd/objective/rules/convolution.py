"""Convolutions.

A weight affects one output channel; a changed input channel adds its change convolved with that
channel's filters.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..change import Change, slab
from ..registry import Call, Changes, Moves, moved_elements, rules, stacked

_Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d
_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def padded(m: _Conv, x: Tensor) -> Tensor:
    """Pad the input as the convolution does, in any padding mode."""
    if m.padding_mode != "zeros":
        return F.pad(x, m._reversed_padding_repeated_twice, mode=m.padding_mode)
    if isinstance(m.padding, str):
        if m.padding == "valid":
            return x
        return F.pad(x, m._reversed_padding_repeated_twice)
    if not any(m.padding):
        return x
    return F.pad(x, [p for size in reversed(m.padding) for p in (size, size)])


def has_samples(m: _Conv, out: Tensor) -> bool:
    """Is the input a batch, and not a single sample without a batch dimension?"""
    return out.dim() == m.weight.dim()


@rules.source(*_CONVS, parameter="weight")
def weight_moves(call: Call[_Conv], moves: Moves) -> Change | None:
    """Output channel o changes by the step times input channel i, shifted by the tap."""
    m = call.module
    if not has_samples(call.module, call.out):
        return None
    x = padded(m, call.args[0])
    out_channel, in_channel, *taps = moved_elements(m.weight.shape, moves.index)
    per_group_out, per_group_in = m.out_channels // m.groups, m.in_channels // m.groups
    space = call.out.shape[2:]
    delta = x.new_empty(moves.K, x.shape[0], 1, *space)
    shifted: dict[tuple[int, ...], Tensor] = {}
    for k, (o, i, *tap) in enumerate(zip(out_channel, in_channel, *taps, strict=True)):
        channel = (o // per_group_out) * per_group_in + i
        key = (channel, *tap)
        if key not in shifted:
            window = tuple(
                slice(t * d, t * d + (size - 1) * s + 1, s)
                for t, d, s, size in zip(tap, m.dilation, m.stride, space, strict=True)
            )
            shifted[key] = x[(slice(None), channel, *window)]
        torch.mul(shifted[key], moves.steps[k], out=delta[k, :, 0])
    return slab(call.out, 1, out_channel, 1, delta)


@rules.source(*_CONVS, nn.ConvTranspose2d, parameter="bias")
def bias_moves(call: Call[_Conv], moves: Moves) -> Change | None:
    """One output channel moves by the step."""
    if not has_samples(call.module, call.out):
        return None
    shape = list(call.out.shape)
    shape[1] = 1
    delta = moves.steps.view(-1, *[1] * len(shape)).expand(-1, *shape)
    return slab(call.out, 1, moves.index, 1, delta)


@rules.flow(*_CONVS)
def inputs_change(call: Call[_Conv], changes: Changes) -> Change | None:
    """Convolve dense inputs as one large batch, and only the changed channels of a slab."""
    x, m = changes[0], call.module
    if not has_samples(call.module, call.out):
        return None
    if x.dim not in (None, 1):
        x = x.densify()
    if x.is_dense:
        if x.values is not None:
            return x.with_values(call.out, _convolve(m, x.values, m.weight, m.groups, m.bias))
        return x.with_delta(call.out, _convolve(m, x.delta(), m.weight, m.groups))
    if m.groups == 1:
        parts = [_correction(m, part) for _, part in x.split()]
        delta = parts[0] if len(parts) == 1 else torch.cat(parts)
        return x.with_delta(call.out, delta, dim=None, starts=(0,), width=0)
    return _grouped(call, x)


def _convolve(
    m: _Conv, delta: Tensor, weight: Tensor, groups: int, bias: Tensor | None = None
) -> Tensor:
    conv = (F.conv1d, F.conv2d, F.conv3d)[delta.dim() - 4]
    # With channels innermost in memory, oneDNN need not reorder a stack before and after: two to
    # three times as fast with few channels. A BatchNorm behind it is faster in that order, too.
    innermost = isinstance(m, nn.Conv2d) and delta.dtype == torch.float32 and delta.is_cpu
    if innermost:
        weight = weight.contiguous(memory_format=torch.channels_last)

    def apply(x: Tensor) -> Tensor:
        if innermost:
            x = x.contiguous(memory_format=torch.channels_last)
        if m.padding_mode == "zeros":  # conv pads by itself, without a copy
            return conv(x, weight, bias, m.stride, m.padding, m.dilation, groups)
        return conv(padded(m, x), weight, bias, m.stride, 0, m.dilation, groups)

    return stacked(apply, delta)


def _correction(m: _Conv, x: Change) -> Tensor:
    """Convolve only the changed channels, as one product of patches and filters where faster."""
    weight = m.weight[:, x.starts[0] : x.starts[0] + x.width]
    delta = x.delta()
    if isinstance(m, nn.Conv2d) and x.width == 1:
        return _patches_times_filters(m, delta, weight)
    return _convolve(m, delta, weight, 1)


def _patches_times_filters(m: nn.Conv2d, delta: Tensor, weight: Tensor) -> Tensor:
    """(K, N, 1, H, W) -> (K, N, out, H', W'), channels innermost in memory.

    With one input channel the filters are a (taps x out) matrix, and the product takes only as long
    as writing its result; conv2d takes about five times as long.
    """
    K, N = delta.shape[:2]
    x = padded(m, delta.flatten(0, 1))[:, 0]
    (kh, kw), (sh, sw), (dh, dw) = m.kernel_size, m.stride, m.dilation
    H = (x.shape[1] - dh * (kh - 1) - 1) // sh + 1
    W = (x.shape[2] - dw * (kw - 1) - 1) // sw + 1
    n, h, w = x.stride()
    patches = x.as_strided((K * N, H, W, kh, kw), (n, h * sh, w * sw, h * dh, w * dw))
    patches = patches.reshape(K * N * H * W, kh * kw)
    out = patches @ weight.reshape(weight.shape[0], -1).T
    return out.view(K, N, H, W, -1).movedim(-1, 2)


def _grouped(call: Call[_Conv], x: Change) -> Change | None:
    """A channel reaches only the outputs of its own group, so the change stays a slab."""
    m = call.module
    per_in, per_out = m.in_channels // m.groups, m.out_channels // m.groups
    if any(s // per_in != (s + x.width - 1) // per_in for s in x.starts):
        dense = x.densify()
        return dense.with_delta(call.out, _convolve(m, dense.delta(), m.weight, m.groups))
    parts = []
    for _, part in x.split():
        start = part.starts[0]
        group, inside = divmod(start, per_in)
        rows = slice(group * per_out, (group + 1) * per_out)
        weight = m.weight[rows, inside : inside + x.width]
        parts.append(_convolve(m, part.delta(), weight, 1))
    starts = tuple(s // per_in * per_out for s in x.starts)
    delta = parts[0] if len(parts) == 1 else torch.cat(parts)
    return x.with_delta(call.out, delta, dim=1, starts=starts, width=per_out)


# --- transposed --------------------------------------------------------------------------


@rules.source(nn.ConvTranspose2d, parameter="weight")
def transposed_weight_moves(call: Call[nn.ConvTranspose2d], moves: Moves) -> Change | None:
    """Output channel o receives the step times input channel i, spread out by the stride."""
    m = call.module
    if not has_samples(call.module, call.out):
        return None
    x = call.args[0]
    in_channel, out_in_group, a, b = moved_elements(m.weight.shape, moves.index)
    per_in, per_out = m.in_channels // m.groups, m.out_channels // m.groups
    (sh, sw), (dh, dw), (ph, pw) = m.stride, m.dilation, _sizes(m.padding)
    H, W = call.out.shape[2:]
    h, w = x.shape[2:]
    full = x.new_zeros(moves.K, x.shape[0], H + 2 * ph + sh * h, W + 2 * pw + sw * w)
    for k, (i, ta, tb) in enumerate(zip(in_channel, a, b, strict=True)):
        rows = slice(ta * dh, ta * dh + (h - 1) * sh + 1, sh)
        columns = slice(tb * dw, tb * dw + (w - 1) * sw + 1, sw)
        full[k, :, rows, columns] = x[:, i] * moves.steps[k]
    delta = full[:, :, ph : ph + H, pw : pw + W].unsqueeze(2)
    out_channel = [i // per_in * per_out + o for i, o in zip(in_channel, out_in_group, strict=True)]
    return slab(call.out, 1, out_channel, 1, delta)


@rules.flow(nn.ConvTranspose2d)
def transposed_inputs_change(call: Call[nn.ConvTranspose2d], changes: Changes) -> Change | None:
    """The layer is linear in its input, so only the changed channels of a slab are convolved."""
    x, m = changes[0], call.module
    if not has_samples(call.module, call.out):
        return None
    if x.dim not in (None, 1) or m.groups > 1:
        x = x.densify()

    def spread(delta: Tensor, weight: Tensor) -> Tensor:
        out = F.conv_transpose2d(
            delta.flatten(0, 1), weight, None, m.stride, _sizes(m.padding),
            _output_padding(m, call), m.groups, m.dilation,
        )  # fmt: skip
        apart: Tensor = out.unflatten(0, delta.shape[:2])
        return apart

    if x.is_dense:
        return x.with_delta(call.out, spread(x.delta(), m.weight))
    parts = [
        spread(part.delta(), m.weight[part.starts[0] : part.starts[0] + part.width])
        for _, part in x.split()
    ]
    return x.with_delta(call.out, torch.cat(parts), dim=None, starts=(0,), width=0)


def _sizes(padding: str | tuple[int, ...]) -> tuple[int, ...]:
    assert not isinstance(padding, str)  # only ordinary convolutions accept strings
    return padding


def _output_padding(m: nn.ConvTranspose2d, call: Call[_Conv]) -> list[int]:
    """The output padding of the unperturbed call, recovered from the size of its output."""
    sizes = []
    padding = _sizes(m.padding)
    for d, size in enumerate(call.out.shape[2:]):
        least = (
            (call.args[0].shape[2 + d] - 1) * m.stride[d]
            - 2 * padding[d]
            + m.dilation[d] * (m.kernel_size[d] - 1)
            + 1
        )
        sizes.append(size - least)
    return sizes
