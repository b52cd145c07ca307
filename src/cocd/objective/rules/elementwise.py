"""Functions of each element alone: they keep every kind of change what it is."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..change import Change, slab
from ..kernels.linear_tanh import tanh_of
from ..kernels.scratch import room
from ..registry import Call, rules

_MODULES = (
    nn.Tanh, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish,
    nn.Sigmoid, nn.LogSigmoid, nn.Softplus, nn.Softsign, nn.Softshrink, nn.Hardshrink, nn.Hardtanh,
    nn.Hardsigmoid, nn.Hardswish, nn.Tanhshrink, nn.Threshold,
)  # fmt: skip
_FUNCTIONS = (
    F.tanh, F.relu, F.relu6, F.leaky_relu, F.elu, F.selu, F.celu, F.gelu, F.silu, F.mish, F.sigmoid,
    F.logsigmoid, F.softplus, F.softsign, F.softshrink, F.hardshrink, F.hardtanh, F.hardsigmoid,
    F.hardswish, F.tanhshrink, F.threshold, torch.tanh, torch.relu, torch.sigmoid, torch.exp,
    torch.log, torch.log1p, torch.expm1, torch.sqrt, torch.rsqrt, torch.abs, torch.neg, torch.sin,
    torch.cos, torch.erf, torch.square, torch.reciprocal, torch.clamp, torch.sign, torch.selu,
    torch.clone, operator.neg,
)  # fmt: skip
_METHODS = (
    "tanh", "relu", "sigmoid", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "abs", "neg", "sin",
    "cos", "erf", "square", "reciprocal", "clamp", "clone", "contiguous", "float", "double",
)  # fmt: skip


@rules.flow(*_MODULES, *_FUNCTIONS, *_METHODS)
def unary(call: Call, changes: dict[Any, Change]) -> Change | None:
    """f(new), element by element."""
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
    """tanh(x), in its place where that is nobody else's."""
    return tanh_of(x.mul_(2) if owned else torch.mul(x, 2, out=room(tuple(x.shape), x)))


def _apply(call: Call, x: Tensor) -> Tensor:
    if call.module is not None:
        # The functional forms of modules have no state here, and in-place ones would write to x.
        if getattr(call.module, "inplace", False):
            x = x.clone()
        return call.module(x)  # type: ignore[no-any-return]
    kwargs = {k: v for k, v in call.kwargs.items() if k != "inplace"}
    if isinstance(call.target, str):
        return getattr(x, call.target)(*call.args[1:], **kwargs)  # type: ignore[no-any-return]
    return call.target(x, *call.args[1:], **kwargs)  # type: ignore[no-any-return]


@rules.flow(nn.Identity)
def identity(call: Call, changes: dict[Any, Change]) -> Change | None:
    """Nothing happens."""
    return changes.get(0)


@rules.flow(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, F.dropout, F.dropout1d,
            F.dropout2d, F.dropout3d)  # fmt: skip
def dropout(call: Call, changes: dict[Any, Change]) -> Change | None:
    """The mask of the unperturbed pass, for all probes."""
    if set(changes) != {0}:
        return None
    x = changes[0]
    if call.noise is None:
        return x.with_delta(call.out, x.delta())
    return x.with_delta(call.out, x.delta() * x.restrict(call.noise))


@rules.flow(operator.add, operator.iadd, torch.add, "add", "add_", operator.sub, torch.sub, "sub",
            operator.mul, torch.mul, "mul", operator.truediv, torch.div, "div", operator.pow,
            torch.pow, "pow", torch.maximum, torch.minimum)  # fmt: skip
def binary(call: Call, changes: dict[Any, Change]) -> Change | None:
    """Two operands, one or both changed; slabs stay slabs where the other operand allows it."""
    if not isinstance(call.out, Tensor) or len(call.args) != 2 or not set(changes) <= {0, 1}:
        return None
    where = _common(call, changes)
    operands = [
        _stack(changes[i].new(), call.out.dim()) if i in changes else _rest(call, i, where)
        for i in (0, 1)
    ]
    if where.is_dense:
        operands = [
            _stack(changes[i].densify().new(), call.out.dim()) if i in changes else operands[i]
            for i in (0, 1)
        ]
    if isinstance(call.target, str):
        values = getattr(operands[0], call.target.rstrip("_"))(operands[1], **call.kwargs)
    else:
        target = operator.add if call.target is operator.iadd else call.target
        values = target(*operands, **call.kwargs)
    if where.is_dense:
        return Change(call.out, where.K, values=values)
    return where.with_values(call.out, values)


def _common(call: Call, changes: dict[Any, Change]) -> Change:
    """The slab that all changed operands share, or else something dense."""
    given = list(changes.values())
    first = given[0]
    same = all(
        c.dim is not None
        and c.base.shape == call.out.shape
        and (c.dim, c.starts, c.width) == (first.dim, first.starts, first.width)
        for c in given
    )
    return first if same else Change(first.base, first.K, values=first.stored)


def _rest(call: Call, i: int, where: Change) -> Any:
    """The unchanged operand, cut to the slab."""
    operand = call.args[i]
    if not isinstance(operand, Tensor) or operand.dim() == 0:
        return operand
    if where.is_dense:
        return operand.unsqueeze(0) if operand.dim() == call.out.dim() else operand
    return where.restrict(operand.expand(call.out.shape))


def _stack(tensor: Tensor, dim: int) -> Tensor:
    """(K, *shape) with as many dimensions behind K as the output has, for broadcasting."""
    missing = dim - (tensor.dim() - 1)
    return tensor.view(tensor.shape[0], *[1] * missing, *tensor.shape[1:]) if missing else tensor


@rules.source(nn.PReLU, parameter="weight")
def prelu_moves(call: Call, moves: Any) -> Change:
    """min(x, 0) * step, in one channel or, for a single shared slope, everywhere."""
    x = call.args[0]
    low = x.clamp(max=0)
    steps = moves.steps.view(-1, *[1] * x.dim())
    m: Any = call.module
    if m.weight.numel() == 1:
        return Change(call.out, moves.K, difference=low * steps)
    picked = low.movedim(1, 0)[moves.index].unsqueeze(2)
    return slab(call.out, 1, moves.index, 1, picked * steps)


@rules.flow(nn.PReLU)
def prelu(call: Call, changes: dict[Any, Change]) -> Change | None:
    """The slope of each probe's own channel."""
    x = changes[0]
    m: Any = call.module
    slope = m.weight
    if slope.numel() > 1:
        shape = [1] * x.base.dim()
        shape[1] = -1
        slope = x.restrict(slope.view(shape).expand(x.base.shape))
    new = x.new()
    return x.with_values(call.out, torch.where(new > 0, new, slope * new))
