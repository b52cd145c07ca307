"""Embedding: an element of a row matters where the batch uses that row, and nowhere else."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..change import Change, slab
from ..registry import Call, Moves, moved_elements, rules


@rules.source(nn.Embedding, parameter="weight")
def weight_moves(call: Call, moves: Moves) -> Change:
    """One feature of the samples that look the row up."""
    m: Any = call.module
    tokens = call.args[0]
    row, feature = moved_elements(m.weight.shape, moves.index)
    used = tokens.unsqueeze(0) == torch.tensor(row, device=tokens.device).view(
        -1, *[1] * tokens.dim()
    )
    steps = moves.steps.view(-1, *[1] * tokens.dim())
    return slab(call.out, -1, feature, 1, (used * steps).unsqueeze(-1))
