"""Elementwise functions: a slab stays a slab, and a dense change stays dense."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..change import Change, slab
from ..kernels.linear_tanh import tanh_of
from ..kernels.scratch import room
from ..registry import UNCHANGED, Call, Changed, Changes, Key, Moves, rules

MODULES = (
    nn.Tanh, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish,
    nn.Sigmoid, nn.LogSigmoid, nn.Softplus, nn.Softsign, nn.Softshrink, nn.Hardshrink, nn.Hardtanh,
    nn.Hardsigmoid, nn.Hardswish, nn.Tanhshrink, nn.Threshold,
)  # fmt: skip
_NAMES = (
    "tanh", "relu", "sigmoid", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "abs", "neg", "sin",
    "cos", "erf", "square", "reciprocal", "clamp", "clone",
)  # fmt: skip
FUNCTIONS = (
    F.tanh, F.relu, F.relu6, F.leaky_relu, F.elu, F.selu, F.celu, F.gelu, F.silu, F.mish, F.sigmoid,
    F.logsigmoid, F.softplus, F.softsign, F.softshrink, F.hardshrink, F.hardtanh, F.hardsigmoid,
    F.hardswish, F.tanhshrink, F.threshold, torch.sign, torch.selu, operator.neg,
    *(getattr(torch, name) for name in _NAMES),
)  # fmt: skip
METHODS = (*_NAMES, "sign", "contiguous", "detach")
UNARY = (*MODULES, *FUNCTIONS, *METHODS)
CASTS = ("float", "double", "half", "bfloat16", "to", "type", "type_as")
BINARY = (
    operator.add, operator.iadd, torch.add, "add", "add_", operator.sub, torch.sub, "sub",
    operator.mul, torch.mul, "mul", operator.truediv, torch.div, "div", operator.pow, torch.pow,
    "pow", torch.maximum, torch.minimum,
)  # fmt: skip


@rules.flow(*UNARY)
def unary(call: Call, changes: Changes) -> Change | None:
    """Compute f(new), element by element."""
    if set(changes) != {0}:
        return None
    x = changes[0]
    new = x.new()
    if x.is_dense and new.dtype == torch.float32 and _is_tanh(call):
        return x.with_values(call.out, fast_tanh(new, owned=new is not x.values))
    return x.with_values(call.out, _apply(call, new))


def _is_tanh(call: Call) -> bool:
    return isinstance(call.module, nn.Tanh) or call.target in (torch.tanh, F.tanh, "tanh")


def fast_tanh(x: Tensor, owned: bool) -> Tensor:
    """Compute tanh(x), in place if the caller owns `x`."""
    return tanh_of(x.mul_(2) if owned else torch.mul(x, 2, out=room(tuple(x.shape), x)))


def _apply(call: Call, x: Tensor) -> Tensor:
    if call.module is not None:
        # These modules have no state, and their in-place versions would write to x.
        if getattr(call.module, "inplace", False):
            x = x.clone()
        return call.module(x)  # type: ignore[no-any-return]
    kwargs = {k: v for k, v in call.kwargs.items() if k != "inplace"}
    if isinstance(call.target, str):
        return getattr(x, call.target)(*call.args[1:], **kwargs)  # type: ignore[no-any-return]
    return call.target(x, *call.args[1:], **kwargs)  # type: ignore[no-any-return]


@rules.flow(*CASTS)
def cast(call: Call, changes: Changes) -> Changed:
    """Cast the stack to the output's dtype; cast differences, too, if no rounding occurs."""
    if 0 not in changes:  # only the tensor that gives the dtype has changed
        return UNCHANGED
    x, dtype = changes[0], call.out.dtype
    if not (dtype.is_floating_point and x.base.dtype.is_floating_point):
        return None
    if x.base.device != call.out.device:
        return None
    if torch.finfo(dtype).bits >= torch.finfo(x.base.dtype).bits and x.values is None:
        return x.with_delta(call.out, x.delta().to(dtype))
    return x.with_values(call.out, x.new().to(dtype))


@rules.flow(nn.Identity)
def identity(call: Call, changes: Changes) -> Change | None:
    """The change passes through as it is."""
    return changes.get(0)


@rules.flow(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, F.dropout, F.dropout1d,
            F.dropout2d, F.dropout3d)  # fmt: skip
def dropout(call: Call, changes: Changes) -> Change | None:
    """All probes use the mask of the unperturbed pass."""
    if set(changes) != {0}:
        return None
    x = changes[0]
    if call.noise is None:
        return x.with_delta(call.out, x.delta())
    return x.with_delta(call.out, x.delta() * x.restrict(call.noise))


@rules.flow(*BINARY)
def binary(call: Call, changes: Changes) -> Change | None:
    """Two operands, one or both changed; a slab stays a slab where the other operand allows it."""
    if not isinstance(call.out, Tensor) or len(call.args) != 2 or not set(changes) <= {0, 1}:
        return None
    where = _common(call, changes)
    operands = [
        _stack(_part(changes[i], where), call.out.dim())
        if i in changes
        else _rest(call.args[i], call.out, where)
        for i in (0, 1)
    ]
    if isinstance(call.target, str):
        values = getattr(operands[0], call.target.rstrip("_"))(operands[1], **call.kwargs)
    else:
        target = operator.add if call.target is operator.iadd else call.target
        values = target(*operands, **call.kwargs)
    return where.with_values(call.out, values)


def _common(call: Call, changes: Changes) -> Change:
    """The slab of the output that all changed operands share, or else a dense change."""
    given = list(changes.values())
    first = given[0]
    whole = Change(first.base, first.K, values=first.stored)
    if first.dim is None:
        return whole
    dim = first.dim + call.out.dim() - first.base.dim()
    same = all(
        x.dim is not None
        and x.dim + call.out.dim() - x.base.dim() == dim
        and x.base.shape[x.dim] == call.out.shape[dim]
        and (x.starts, x.width) == (first.starts, first.width)
        for x in given
    )
    return replace(first, base=call.out, dim=dim) if same else whole


def _part(x: Change, where: Change) -> Tensor:
    return x.densify().new() if where.is_dense else x.new()


def _rest(operand: Any, out: Tensor, where: Change) -> Any:
    """Cut the unchanged operand to the slab."""
    if not isinstance(operand, Tensor) or operand.dim() == 0:
        return operand
    if where.is_dense:
        return operand.unsqueeze(0) if operand.dim() == out.dim() else operand
    assert where.dim is not None
    at = where.dim - out.dim() + operand.dim()
    if at < 0 or operand.shape[at] == 1:  # broadcast over the slab's dimension
        return operand.unsqueeze(0) if operand.dim() == out.dim() else operand
    if operand.dim() == out.dim():
        return where.restrict(operand)
    return where.restrict(operand.expand(out.shape))


def _stack(tensor: Tensor, dim: int) -> Tensor:
    """Reshape to (K, *shape) with the output's number of dimensions behind K, for broadcasting."""
    missing = dim - (tensor.dim() - 1)
    return tensor.view(tensor.shape[0], *[1] * missing, *tensor.shape[1:]) if missing else tensor


@rules.flow(torch.where, torch.masked_fill, "masked_fill", "where")
def choose(call: Call, changes: Changes) -> Change | None:
    """Pick each element from one of two operands; the condition must be unchanged."""
    first = call.target not in (torch.where, "where")  # masked_fill(x, mask, value)
    x, mask, y = call.args if first else (call.args[1], call.args[0], call.args[2])
    keys: dict[Key, int] = {0: 0} if first else {1: 0, 2: 1}
    if call.target == "where":  # x.where(mask, y)
        x, mask, y, keys = call.args[0], call.args[1], call.args[2], {0: 0, 2: 1}
    if call.kwargs or len(call.args) != 3 or not set(changes) <= set(keys):
        return None
    if first:  # where the mask is set
        x, y, keys = y, x, {0: 1}
    given: dict[Key, Change] = {keys[key]: change for key, change in changes.items()}
    if any(change.base.shape != call.out.shape for change in given.values()):
        return None
    where = _common(call, given)
    parts = [
        _part(given[i], where) if i in given else _rest(operand, call.out, where)
        for i, operand in enumerate((x, y))
    ]
    values = torch.where(_rest(mask, call.out, where), parts[0], parts[1])
    return where.with_values(call.out, values)


@rules.source(nn.PReLU, parameter="weight")
def prelu_moves(call: Call[nn.PReLU], moves: Moves) -> Change:
    """min(x, 0) * step, in one channel or, for a single shared slope, everywhere."""
    x = call.args[0]
    low = x.clamp(max=0)
    steps = moves.steps.view(-1, *[1] * x.dim())
    m = call.module
    if m.weight.numel() == 1:
        return Change(call.out, moves.K, difference=low * steps)
    picked = low.movedim(1, 0)[moves.index].unsqueeze(2)
    return slab(call.out, 1, moves.index, 1, picked * steps)


@rules.flow(nn.PReLU)
def prelu(call: Call[nn.PReLU], changes: Changes) -> Change | None:
    """Apply the slope of each probe's changed channel."""
    x = changes[0]
    m = call.module
    slope: Tensor = m.weight
    if slope.numel() > 1:
        shape = [1] * x.base.dim()
        shape[1] = -1
        slope = x.restrict(slope.view(shape).expand(x.base.shape))
    new = x.new()
    return x.with_values(call.out, torch.where(new > 0, new, slope * new))
