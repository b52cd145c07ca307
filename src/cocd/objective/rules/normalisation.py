"""Channel normalisation. BatchNorm keeps channels apart in both modes; the others mix them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..change import Change, slab
from ..registry import Call, Changes, Moves, rules, stacked

_BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_InstanceNorm = nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d
_INSTANCE_NORMS: dict[type[nn.Module], int] = {
    nn.InstanceNorm1d: 3,
    nn.InstanceNorm2d: 4,
    nn.InstanceNorm3d: 5,
}  # dimensions


def _uses_batch(module: _BatchNorm) -> bool:
    return bool(module.training or module.running_mean is None)


@rules.source(*_BATCH_NORMS, parameter="weight")
def batch_norm_weight(call: Call[_BatchNorm], moves: Moves) -> Change:
    """One channel changes by its normalised value times the step."""
    m = call.module
    x = call.args[0]
    plain = F.batch_norm(
        x, None if _uses_batch(m) else m.running_mean, None if _uses_batch(m) else m.running_var,
        None, None, _uses_batch(m), 0.0, m.eps,
    )  # fmt: skip
    return _scaled(call, plain, moves)


@rules.source(*_BATCH_NORMS, nn.GroupNorm, *_INSTANCE_NORMS, parameter="bias")
def channel_bias(call: Call[nn.Module], moves: Moves) -> Change | None:
    """One channel moves by the step."""
    if not _has_samples(call):
        return None
    return _scaled(call, torch.ones_like(call.out[:, :1]).expand_as(call.out), moves)


def _scaled(call: Call, by: Tensor, moves: Moves) -> Change:
    picked = by.movedim(1, 0)[moves.index].unsqueeze(2)  # (K, N, 1, *space)
    steps = moves.steps.view(-1, *[1] * call.out.dim())
    return slab(call.out, 1, moves.index, 1, picked * steps)


@rules.flow(*_BATCH_NORMS)
def batch_norm(call: Call[_BatchNorm], changes: Changes) -> Change | None:
    """Use each probe's own statistics in train mode and the running statistics in eval mode."""
    x, m = changes[0], call.module
    if x.dim not in (None, 1):
        x = x.densify()
    new, batch = x.new(), _uses_batch(m)
    if x.is_dense and not batch:
        return x.with_values(call.out, stacked(lambda t: _normalise(m, t, False), new))
    if x.is_dense and new.dim() == 5 and new[0].is_contiguous(memory_format=torch.channels_last):
        # Probe by probe, in the memory order of convolutions: faster than all at once.
        out = torch.empty_like(new)
        for k in range(x.K):
            out[k] = _normalise(m, new[k], True)
        return x.with_values(call.out, out)
    # (K, N, C, ...) -> (N, K * C, ...): normalise every probe's channels separately.
    K, N, C = new.shape[:3]
    wide = new.transpose(0, 1).reshape(N, K * C, *new.shape[3:])

    def spread(v: Tensor | None) -> Tensor | None:
        if v is None:
            return None
        shape = [1] * x.base.dim()
        shape[1] = -1
        part = x.restrict(v.view(shape)) if x.dim is not None else v.view(1, *shape)
        return part.reshape(part.shape[0], -1).expand(K, C).reshape(-1)

    out = F.batch_norm(
        wide, None if batch else spread(m.running_mean), None if batch else spread(m.running_var),
        spread(m.weight), spread(m.bias), batch, 0.0, m.eps,
    )  # fmt: skip
    out = out.reshape(N, K, C, *new.shape[3:]).transpose(0, 1)
    return x.with_values(call.out, out)


def _normalise(m: _BatchNorm, x: Tensor, batch: bool) -> Tensor:
    """Normalise with the batch's statistics, without storing them, or with the running ones."""
    mean, variance = (None, None) if batch else (m.running_mean, m.running_var)
    return F.batch_norm(x, mean, variance, m.weight, m.bias, batch, 0.0, m.eps)


@rules.source(nn.GroupNorm, parameter="weight")
def group_norm_weight(call: Call[nn.GroupNorm], moves: Moves) -> Change:
    """One channel changes by its normalised value times the step."""
    m = call.module
    return _scaled(call, F.group_norm(call.args[0], m.num_groups, None, None, m.eps), moves)


@rules.source(*_INSTANCE_NORMS, parameter="weight")
def instance_norm_weight(call: Call[_InstanceNorm], moves: Moves) -> Change | None:
    """One channel changes by its normalised value times the step."""
    m = call.module
    if m.track_running_stats or not _has_samples(call):
        return None
    return _scaled(call, F.instance_norm(call.args[0], eps=m.eps), moves)


def _has_samples(call: Call[nn.Module]) -> bool:
    """Is the input a batch, and not a single sample without a batch dimension?"""
    return bool(call.out.dim() == _INSTANCE_NORMS.get(type(call.module), call.out.dim()))


@rules.flow(nn.GroupNorm, *_INSTANCE_NORMS)
def per_sample(call: Call[nn.GroupNorm | _InstanceNorm], changes: Changes) -> Change | None:
    """The layer mixes features of a sample, not samples."""
    m = call.module
    if not isinstance(m, nn.GroupNorm) and (m.track_running_stats or not _has_samples(call)):
        return None
    x = changes[0].densify()
    return x.with_values(call.out, stacked(m, x.new()))
