"""Embeddings: an element of a row matters only where the batch uses that row."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..change import Change, slab
from ..registry import Call, Changes, Moves, moved_elements, rules


@rules.relevant(nn.Embedding, nn.EmbeddingBag, parameter="weight")
def rows_in_use(call: Call[nn.Embedding | nn.EmbeddingBag], index: list[int]) -> list[bool]:
    """Does the batch look up the row of each of these elements?"""
    m = call.module
    if m.max_norm is not None:
        return [True] * len(index)
    used = set(call.args[0].unique().tolist())
    return [i // m.embedding_dim in used for i in index]


@rules.source(nn.Embedding, parameter="weight")
def weight_moves(call: Call[nn.Embedding], moves: Moves) -> Change | None:
    """One feature changes in the samples that look up the row."""
    m = call.module
    if m.max_norm is not None:  # the forward rescales rows and so the step
        return None
    tokens = call.args[0]
    row, feature = moved_elements(m.weight.shape, moves.index)
    used = tokens.unsqueeze(0) == torch.tensor(row, device=tokens.device).view(
        -1, *[1] * tokens.dim()
    )
    steps = moves.steps.view(-1, *[1] * tokens.dim())
    return slab(call.out, -1, feature, 1, (used * steps).unsqueeze(-1))


@rules.flow(F.embedding)
def bare_weight_changes(call: Call, changes: Changes) -> Change | None:
    """The samples that look up a changed row change."""
    rows = changes.get(1, changes.get("weight"))
    if rows is None or len(changes) > 1 or rows.dim != 0 or rows.width != 1:
        return None
    if call.argument(3, "max_norm") is not None:
        return None
    tokens = call.argument(0, "input")
    start = torch.tensor(rows.starts, device=tokens.device).view(-1, *[1] * tokens.dim())
    row = rows.delta().view(rows.K, *[1] * tokens.dim(), -1)
    return rows.with_delta(
        call.out, (tokens == start).unsqueeze(-1) * row, dim=None, starts=(0,), width=0
    )


@rules.source(nn.EmbeddingBag, parameter="weight")
def bag_weight_moves(call: Call[nn.EmbeddingBag], moves: Moves) -> Change | None:
    """One feature changes in the bags that contain the row, by its weight in each bag."""
    m = call.module
    if m.max_norm is not None or m.mode == "max":
        return None
    row, feature = moved_elements(m.weight.shape, moves.index)
    # Each moved row gets its own number; all others share one whose table row is zero. The padding
    # keeps its own number, because a mean leaves it out of its denominator.
    rows = sorted(set(row))
    number = torch.full((m.num_embeddings,), len(rows), device=m.weight.device)
    number[rows] = torch.arange(len(rows), device=m.weight.device)
    padding = None
    if m.padding_idx is not None:
        padding = len(rows) + 1
        number[m.padding_idx] = padding
    table = torch.eye(len(rows) + 2, len(rows), dtype=m.weight.dtype, device=m.weight.device)
    held = F.embedding_bag(
        number[call.args[0]], table, call.argument(1, "offsets"), mode=m.mode,
        per_sample_weights=call.argument(2, "per_sample_weights"),
        include_last_offset=m.include_last_offset, padding_idx=padding,
    )  # fmt: skip
    where = {r: i for i, r in enumerate(rows)}
    picked = held[:, [where[r] for r in row]].T * moves.steps[:, None]
    return slab(call.out, 1, feature, 1, picked.unsqueeze(-1))
