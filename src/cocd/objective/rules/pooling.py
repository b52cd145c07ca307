"""Pooling, padding and resizing keep channels apart, so a slab of channels stays a slab."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..change import Change
from ..kernels.maxpool import max_of_windows, window_of
from ..registry import Call, Changes, Target, again, rules, stacked

# The dimensions of a batched input; one fewer means a single sample without a batch dimension.
_AVERAGES: dict[Target, int] = {
    nn.AvgPool1d: 3, nn.AvgPool2d: 4, nn.AvgPool3d: 5, nn.AdaptiveAvgPool1d: 3,
    nn.AdaptiveAvgPool2d: 4, nn.AdaptiveAvgPool3d: 5, nn.ZeroPad1d: 3, nn.ZeroPad2d: 4,
    nn.ZeroPad3d: 5, F.avg_pool1d: 3, F.avg_pool2d: 4, F.avg_pool3d: 5, F.adaptive_avg_pool1d: 3,
    F.adaptive_avg_pool2d: 4, F.adaptive_avg_pool3d: 5, torch.avg_pool1d: 3,
    torch.adaptive_avg_pool1d: 3,
}  # fmt: skip
_OTHERS: dict[Target, int] = {
    nn.MaxPool1d: 3, nn.MaxPool2d: 4, nn.MaxPool3d: 5, nn.AdaptiveMaxPool1d: 3,
    nn.AdaptiveMaxPool2d: 4, nn.AdaptiveMaxPool3d: 5, nn.LPPool1d: 3, nn.LPPool2d: 4,
    nn.ReflectionPad1d: 3, nn.ReflectionPad2d: 4, nn.ReflectionPad3d: 5, nn.ReplicationPad1d: 3,
    nn.ReplicationPad2d: 4, nn.ReplicationPad3d: 5, nn.ConstantPad1d: 3, nn.ConstantPad2d: 4,
    nn.ConstantPad3d: 5, nn.CircularPad1d: 3, nn.CircularPad2d: 4, nn.CircularPad3d: 5,
    nn.UpsamplingNearest2d: 4, nn.UpsamplingBilinear2d: 4, F.max_pool1d: 3, F.max_pool2d: 4,
    F.max_pool3d: 5, F.adaptive_max_pool1d: 3, F.adaptive_max_pool2d: 4, torch.max_pool1d: 3,
    torch.max_pool2d: 4,
}  # fmt: skip
_OF_ANY_SIZE = (nn.Upsample, F.interpolate, F.pad)


@rules.flow(*_AVERAGES)
def average(call: Call, changes: Changes) -> Change | None:
    """A linear map of each channel, applied to the difference."""
    return _channelwise(call, changes, linear=True)


@rules.flow(*_OTHERS, *_OF_ANY_SIZE)
def other(call: Call, changes: Changes) -> Change | None:
    """Any map that treats each channel separately."""
    return _channelwise(call, changes, linear=False)


def _channelwise(call: Call, changes: Changes, linear: bool) -> Change | None:
    if set(changes) != {0} or not isinstance(call.out, torch.Tensor):  # max-pools may give indices
        return None
    x = changes[0]
    size = _AVERAGES.get(call.target) or _OTHERS.get(call.target) or max(x.base.dim(), 3)
    if x.base.dim() != size or x.base.shape[:2] != call.out.shape[:2]:
        return None
    if call.target is F.pad and len(call.argument(1, "pad")) > 2 * (size - 2):
        return None  # padding shifts channels or samples
    if x.dim not in (None, 1):
        x = x.densify()

    window = window_of(call.module)

    def apply(t: torch.Tensor) -> torch.Tensor:
        if window:
            return max_of_windows(t, window)
        if call.module is not None:
            return call.module(t)  # type: ignore[no-any-return]
        return again(call, t)

    if linear:
        return x.with_delta(call.out, stacked(apply, x.delta()))
    return x.with_values(call.out, stacked(apply, x.new()))
