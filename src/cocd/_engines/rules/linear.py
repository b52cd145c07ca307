"""Linear layers: a weight touches one output unit; a changed unit is a rank-one correction."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..change import Change, slab
from ..registry import Call, Moves, moved_elements, rules


@rules.source(nn.Linear, parameter="weight")
def weight_moves(call: Call, moves: Moves) -> Change:
    """y_i changes by step * x_j."""
    x = call.args[0]
    assert call.module is not None
    unit, feature = moved_elements(call.module.weight.shape, moves.index)
    picked = x.movedim(-1, 0)[feature]  # (K, *batch)
    steps = moves.steps.view(-1, *[1] * (x.dim() - 1))
    return slab(call.out, -1, unit, 1, (picked * steps).unsqueeze(-1))


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
    if x.is_dense:
        return x.with_delta(call.out, F.linear(x.delta(), W))
    if x.dim != x.base.dim() - 1:  # whole feature vectors of some rows: apply to these rows
        return x.with_delta(call.out, F.linear(x.delta(), W))
    delta = x.delta()
    where = {"dim": None, "starts": (0,), "width": 0}
    if x.is_single:
        columns = W[:, x.starts[0] : x.starts[0] + x.width]
        change = delta * columns[:, 0] if x.width == 1 else F.linear(delta, columns)
        return x.with_delta(call.out, change, **where)
    columns = W[:, x.index(W.device)].permute(1, 2, 0)  # (K, width, out)
    if x.width == 1:
        change = delta * columns.view(x.K, *[1] * (delta.dim() - 2), -1)
    else:
        change = torch.bmm(delta.reshape(x.K, -1, x.width), columns)
        change = change.view(*delta.shape[:-1], -1)
    return x.with_delta(call.out, change, **where)
