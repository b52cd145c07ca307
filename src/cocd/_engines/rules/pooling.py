"""Pooling keeps channels apart, so that a slab of channels stays one."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..change import Change
from ..registry import Call, rules, stacked

_AVERAGES = (
    nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d, nn.ZeroPad2d,
)  # fmt: skip
_OTHERS = (
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
    nn.LPPool2d, nn.Upsample, nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReplicationPad1d,
    nn.ReplicationPad2d, nn.ConstantPad1d, nn.ConstantPad2d, nn.CircularPad2d,
    nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d,
)  # fmt: skip
_LINEAR_FUNCTIONS = (
    F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d,
    torch.avg_pool1d, torch.adaptive_avg_pool1d,
)  # fmt: skip
_FUNCTIONS = (F.max_pool1d, F.max_pool2d, F.max_pool3d, F.pad, F.interpolate,
              torch.max_pool1d, torch.max_pool2d, torch.nn.functional.pad)  # fmt: skip


@rules.flow(*_AVERAGES, *_LINEAR_FUNCTIONS)
def average(call: Call, changes: dict[Any, Change]) -> Change | None:
    """A linear map of each channel, applied to the difference."""
    return _channelwise(call, changes, linear=True)


@rules.flow(*_OTHERS, *_FUNCTIONS)
def other(call: Call, changes: dict[Any, Change]) -> Change | None:
    """Any map of each channel alone."""
    return _channelwise(call, changes, linear=False)


def _channelwise(call: Call, changes: dict[Any, Change], linear: bool) -> Change | None:
    x = changes.get(0)
    batched = x is not None and x.base.dim() == call.out.dim() and x.base.dim() >= 3
    if (
        x is None
        or len(changes) > 1
        or not batched
        or getattr(call.module, "return_indices", False)
    ):
        return None
    if x.base.shape[:2] != call.out.shape[:2]:
        return None
    if x.dim not in (None, 1):
        x = x.densify()

    def apply(t: torch.Tensor) -> torch.Tensor:
        if call.module is not None:
            return call.module(t)  # type: ignore[no-any-return]
        return call.target(t, *call.args[1:], **call.kwargs)  # type: ignore[no-any-return]

    if linear:
        return x.with_delta(call.out, stacked(apply, x.delta()))
    return x.with_values(call.out, stacked(apply, x.new()))
