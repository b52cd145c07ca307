"""Linear layers: a weight touches one output unit; a changed unit is a rank-one correction."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..change import Change, slab
from ..kernels.scratch import room
from ..registry import Call, Moves, rules

_FEW = 16  # outputs: a vector register of them


@rules.source(nn.Linear, parameter="weight")
def weight_moves(call: Call, moves: Moves) -> Change:
    """y_i changes by step * x_j."""
    x = call.args[0]
    m: Any = call.module
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


@rules.flow(nn.Linear, F.linear)
def inputs_change(call: Call, changes: dict[Any, Change]) -> Change | None:
    """W times the change: of rank `width` where a slab of features has changed."""
    if set(changes) != {0}:
        return None
    x = changes[0]
    W: Tensor = call.module.weight if call.module is not None else call.argument(1, "weight")  # type: ignore[assignment]
    bias = call.module.bias if call.module is not None else call.argument(2, "bias")
    if x.is_dense or x.dim != x.base.dim() - 1:  # all features, perhaps of some rows alone
        if x.is_dense and x.values is not None and x.values.dim() == 3 and len(W) < _FEW:
            return x.with_delta(call.out, _few(x.values, W, bias, call.out))  # type: ignore[arg-type]
        if x.values is not None:
            return x.with_values(call.out, _times(x.values, W, bias))  # type: ignore[arg-type]
        return x.with_delta(call.out, _times(x.delta(), W, None))
    delta = x.delta()
    where = {"dim": None, "starts": (0,), "width": 0}
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
    """One large product: F.linear would make K small ones of a stack that is not contiguous."""
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

    What they were before is taken off in the product, whose sum is the one that is rounded.
    """
    K, units = len(x), len(W)
    change = room((K, units, x.shape[1]), x)
    start = (-before if bias is None else bias - before).T
    torch.baddbmm(start.expand(K, *start.shape), W.expand(K, *W.shape), x.mT, out=change)
    return change.mT
