"""Linear layers: a weight affects one output unit; a changed input unit adds a rank-one term."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..change import Change, Where, both, slab
from ..kernels.scratch import room
from ..registry import Call, Changes, Key, Moves, rules

_FEW = 16  # outputs: a vector register of them


@rules.source(nn.Linear, parameter="weight")
def weight_moves(call: Call[nn.Linear], moves: Moves) -> Change:
    """y_i changes by step * x_j."""
    x = call.args[0]
    m = call.module
    unit, feature = np.divmod(moves.index, m.weight.shape[1])
    picked = x.movedim(-1, 0).index_select(0, torch.from_numpy(feature).to(x.device))  # (K, *batch)
    picked *= moves.steps.view(-1, *[1] * (x.dim() - 1))
    return slab(call.out, -1, unit.tolist(), 1, picked.unsqueeze(-1))


@rules.source(nn.Linear, parameter="bias")
def bias_moves(call: Call, moves: Moves) -> Change:
    """y_i changes by the step, for all samples."""
    delta = moves.steps.view(-1, *[1] * call.out.dim())
    delta = delta.expand(-1, *call.out.shape[:-1], 1)
    return slab(call.out, -1, moves.index, 1, delta)


@rules.flow(nn.Linear, F.linear, parameters=True)
def linear(call: Call[nn.Linear | None], changes: Changes) -> Change | None:
    """(x + dx)(W + dW) - x W = dx W + (x + dx) dW, plus the change of the bias."""
    m = call.module
    W: Tensor = call.argument(1, "weight") if m is None else m.weight
    bias = call.argument(2, "bias") if m is None else m.bias
    names: dict[Key, Key] = {"input": 0, 1: "weight", 2: "bias"}
    changed: dict[Key, Change] = {names.get(key, key): x for key, x in changes.items()}
    if not set(changed) <= {0, "weight", "bias"}:
        return None
    x, dW, db = changed.get(0), changed.get("weight"), changed.get("bias")
    found = None if x is None else _inputs_change(call, x, W, bias)
    if dW is not None:
        old = call.argument(0, "input")
        found = both(found, _weight_changes(call, old if x is None else x, dW))
    if db is not None and db.base.dim() != 1:
        return None
    if db is not None:
        shape = (db.K, *[1] * (call.out.dim() - 1), -1)
        delta = db.delta().reshape(shape).expand(-1, *call.out.shape[:-1], -1)
        found = both(found, replace(db.with_delta(call.out, delta), dim=_last(db, call.out)))
    return found


def _last(x: Change, out: Tensor) -> int | None:
    return None if x.is_dense else out.dim() - 1


def _weight_changes(call: Call, x: Tensor | Change, dW: Change) -> Change:
    """Multiply the changed rows of W with x: a slab of as many units."""
    if dW.dim == 1:
        dW = dW.densify()
    rows = dW.delta()  # (K, units, features)
    if isinstance(x, Change):
        new = x.densify().new()
        delta = torch.matmul(new.flatten(1, -2), rows.mT).view(*new.shape[:-1], -1)
    else:
        flat = x.reshape(-1, x.shape[-1]) @ rows.flatten(0, 1).T
        delta = flat.view(-1, dW.K, rows.shape[1]).movedim(1, 0).reshape(dW.K, *x.shape[:-1], -1)
    return replace(dW.with_delta(call.out, delta), dim=_last(dW, call.out))


def _inputs_change(call: Call, x: Change, W: Tensor, bias: Tensor | None) -> Change:
    """Multiply the change with W: a product of rank `width` for a slab of features."""
    if x.is_dense or x.dim != x.base.dim() - 1:  # all features, perhaps only of some rows
        if x.is_dense and x.values is not None and x.values.dim() == 3 and len(W) < _FEW:
            return x.with_delta(call.out, _few(x.values, W, bias, call.out))
        if x.values is not None:
            return x.with_values(call.out, _times(x.values, W, bias))
        return x.with_delta(call.out, _times(x.delta(), W, None))
    delta = x.delta()
    where: Where = {"dim": None, "starts": (0,), "width": 0}
    if x.is_single:
        columns = W[:, x.starts[0] : x.starts[0] + x.width]
        if x.width == 1:
            return x.with_factors(call.out, delta, columns[:, 0].contiguous())
        return x.with_delta(call.out, _times(delta, columns, None), **where)
    columns = W.T.contiguous()[x.index(W.device)]  # (K, width, out)
    if x.width == 1:
        per_unit = columns.view(x.K, *[1] * (delta.dim() - 2), -1)
        return x.with_factors(call.out, delta, per_unit)
    change = torch.bmm(delta.reshape(x.K, -1, x.width), columns)
    return x.with_delta(call.out, change.view(*delta.shape[:-1], -1), **where)


def _times(x: Tensor, W: Tensor, bias: Tensor | None) -> Tensor:
    """One large product; F.linear would compute K small ones for a non-contiguous stack."""
    out = room((*x.shape[:-1], len(W)), x)
    rows = x.reshape(-1, x.shape[-1])
    flat = out.view(-1, len(W))
    if bias is None:
        torch.mm(rows, W.T, out=flat)
    else:
        torch.addmm(bias, rows, W.T, out=flat)
    return out


def _few(x: Tensor, W: Tensor, bias: Tensor | None, before: Tensor) -> Tensor:
    """The change of few outputs: small products with W on the left are twice as fast.

    The product starts from minus the old outputs, so only the difference is rounded.
    """
    K, units = len(x), len(W)
    change = room((K, units, x.shape[1]), x)
    start = (-before if bias is None else bias - before).T
    torch.baddbmm(start.expand(K, *start.shape), W.expand(K, *W.shape), x.mT, out=change)
    return change.mT
