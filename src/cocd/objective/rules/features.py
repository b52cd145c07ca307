"""LayerNorm, RMSNorm and softmax mix the last dimensions and keep the leading ones apart."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..change import Change, slab
from ..registry import Call, Changes, Function, Key, Moves, rules

_NORMS = (nn.LayerNorm, nn.RMSNorm, F.layer_norm, F.rms_norm)
SOFTMAXES = (
    nn.Softmax, nn.LogSoftmax, torch.softmax, torch.log_softmax, F.softmax, F.log_softmax,
    "softmax", "log_softmax",
)  # fmt: skip
OVER_FEATURES = (*_NORMS, *SOFTMAXES)


def _plain(m: nn.LayerNorm | nn.RMSNorm, x: Tensor) -> Tensor:
    """Normalise without weight and bias."""
    if isinstance(m, nn.RMSNorm):
        return F.rms_norm(x, m.normalized_shape, eps=m.eps)
    return F.layer_norm(x, m.normalized_shape, eps=m.eps)


@rules.source(nn.LayerNorm, nn.RMSNorm, parameter="weight")
def weight_moves(call: Call[nn.LayerNorm | nn.RMSNorm], moves: Moves) -> Change:
    """One feature changes by its normalised value times the step."""
    m = call.module
    return _features(call, _plain(m, call.args[0]), moves, len(m.normalized_shape))


@rules.source(nn.LayerNorm, parameter="bias")
def bias_moves(call: Call[nn.LayerNorm], moves: Moves) -> Change:
    """One feature moves by the step."""
    m = call.module
    return _features(call, torch.ones_like(call.out), moves, len(m.normalized_shape))


def _features(call: Call, by: Tensor, moves: Moves, dims: int) -> Change:
    flat = by.flatten(-dims)
    if dims == 1:
        picked = flat.movedim(-1, 0)[moves.index].unsqueeze(-1)
        steps = moves.steps.view(-1, *[1] * flat.dim())
        return slab(call.out, -1, moves.index, 1, picked * steps)
    delta = torch.zeros(moves.K, *flat.shape, dtype=flat.dtype, device=flat.device)
    for k, (i, step) in enumerate(zip(moves.index, moves.steps.tolist(), strict=True)):
        delta[k, ..., i] = flat[..., i] * step
    return Change(call.out, moves.K, difference=delta.view(moves.K, *call.out.shape))


@rules.flow(*_NORMS, parameters=True)
def normalise(call: Call[nn.LayerNorm | nn.RMSNorm | None], changes: Changes) -> Change | None:
    """Normalise every row again; a changed bare weight or bias scales or shifts its feature."""
    names: dict[Key, Key] = {2: "weight", 3: "bias"}
    changed: dict[Key, Change] = {names.get(key, key): x for key, x in changes.items()}
    m = call.module
    rms = isinstance(m, nn.RMSNorm) or call.target is F.rms_norm
    if not set(changed) <= {0, "weight", "bias"}:
        return None
    function: Function = F.rms_norm if rms else F.layer_norm
    if set(changed) == {0}:
        rows = changed[0].densify()
        if m is not None:
            return rows.with_values(call.out, m(rows.new()))
        return rows.with_values(call.out, function(rows.new(), *call.args[1:], **call.kwargs))
    shape = m.normalized_shape if m is not None else call.argument(1, "normalized_shape")
    eps = m.eps if m is not None else call.argument(3 if rms else 4, "eps", None if rms else 1e-5)
    x = call.args[0] if 0 not in changed else changed[0].densify().new()
    plain = function(x, shape, eps=eps)
    values = plain if 0 in changed else plain.unsqueeze(0)
    for name, apply in (("weight", torch.mul), ("bias", torch.add)):
        at = {"weight": 2, "bias": 3}[name]
        value = getattr(m, name, None) if m is not None else call.argument(at, name)
        if name in changed:
            whole = changed[name].densify().new()
            between = [1] * (values.dim() - whole.dim())
            value = whole.view(whole.shape[0], *between, *whole.shape[1:])
        if value is not None and not (rms and name == "bias"):
            values = apply(values, value)
    return Change(call.out, next(iter(changed.values())).K, values=values)


@rules.flow(*SOFTMAXES)
def softmax(call: Call, changes: Changes) -> Change | None:
    """Softmax along one dimension; a slab of another dimension stays a slab."""
    if set(changes) != {0} or call.kwargs.get("dtype") is not None:
        return None
    x = changes[0]
    given = call.argument(1, "dim") if call.module is None else getattr(call.module, "dim", None)
    if given is None:
        return None
    dim = given % call.out.dim()
    log = isinstance(call.module, nn.LogSoftmax) or call.target in (
        torch.log_softmax, F.log_softmax, "log_softmax"
    )  # fmt: skip
    if x.dim == dim:
        x = x.densify()
    new = x.new()
    return x.with_values(call.out, (torch.log_softmax if log else torch.softmax)(new, dim + 1))
