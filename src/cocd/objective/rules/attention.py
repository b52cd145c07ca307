"""Multi-head attention.

A moved projection weight changes one unit, so only one head recomputes its attention; the change
is dense from there on. Changed inputs run through the layer as one large batch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..change import Change, slab
from ..registry import Call, Changed, Changes, Moves, moved_elements, rules

_PARTS = ("q_proj_weight", "k_proj_weight", "v_proj_weight")


class _Attention:
    """The unperturbed pass in parts: the inputs and outputs of every head."""

    def __init__(self, call: Call[nn.MultiheadAttention]) -> None:
        m = call.module
        self.m, self.call, self.first = m, call, m.batch_first
        self.inputs: list[Tensor] = [self.turn(x) for x in call.args[:3]]  # (N, L, features) each
        if m._qkv_same_embed_dim:
            weights = list(m.in_proj_weight.chunk(3))
        else:
            weights = [getattr(m, part) for part in _PARTS]
        biases = [None] * 3 if m.in_proj_bias is None else m.in_proj_bias.chunk(3)
        self.heads = [
            F.linear(x, W, b).unflatten(-1, (m.num_heads, -1)).permute(2, 0, 1, 3)
            for x, W, b in zip(self.inputs, weights, biases, strict=True)
        ]  # (head, N, L, size) each
        self.mask = self._mask()
        q, k, v = self.heads
        self.weights, self.mixed = self.attend(q, k, v, self.mask)

    def turn(self, x: Tensor) -> Tensor:
        """Put the samples first, or put them back."""
        return x if self.first else x.transpose(0, 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + mask
        # A query with all keys masked gets zero weights; a plain softmax would give NaN.
        weights = scores.softmax(-1).masked_fill((mask == -torch.inf).all(-1, keepdim=True), 0)
        return weights, weights @ v

    def _mask(self) -> Tensor:
        """Both masks as one additive mask for the scores, (head, N, L, S)."""
        q, k, _ = self.heads
        (H, N, L), S = q.shape[:3], k.shape[2]
        mask: Tensor = q.new_zeros(H, N, L, S)
        padding, seen = (
            self.call.argument(3, "key_padding_mask"),
            self.call.argument(5, "attn_mask"),
        )
        if padding is not None:
            mask = mask + _additive(padding, q)[:, None]
        if seen is not None:
            added = _additive(seen, q)
            mask = mask + (added if added.dim() == 2 else added.view(N, H, L, S).transpose(0, 1))
        return mask


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -torch.inf)


def _is_plain(call: Call[nn.MultiheadAttention]) -> bool:
    """Can the rules handle this call: batched, without random numbers or extra keys?"""
    m = call.module
    return (
        len(call.args) >= 3
        and call.args[0].dim() == 3
        and m.bias_k is None
        and not m.add_zero_attn
        and not (m.training and m.dropout)
    )


@rules.source(nn.MultiheadAttention, parameter="in_proj_weight")
def joint_projection_moves(call: Call[nn.MultiheadAttention], moves: Moves) -> Changed:
    """Each row belongs to one unit of the queries, keys or values."""
    m = call.module
    row, feature = moved_elements(m.in_proj_weight.shape, moves.index)
    return _projected(call, moves, row, feature)


@rules.source(nn.MultiheadAttention, parameter="in_proj_bias")
def projection_bias_moves(call: Call[nn.MultiheadAttention], moves: Moves) -> Changed:
    """The unit moves by the step for every sample."""
    return _projected(call, moves, moves.index, None)


def _separate(part: int) -> None:
    @rules.source(nn.MultiheadAttention, parameter=_PARTS[part])
    def projection_moves(call: Call[nn.MultiheadAttention], moves: Moves) -> Changed:
        m = call.module
        row, feature = moved_elements(getattr(m, _PARTS[part]).shape, moves.index)
        return _projected(call, moves, [r + part * m.embed_dim for r in row], feature)


for _part in range(3):
    _separate(_part)


def _projected(
    call: Call[nn.MultiheadAttention], moves: Moves, row: list[int], feature: list[int] | None
) -> Changed:
    """Recompute the attention of the head whose units move, and correct its part of the output."""
    if not _is_plain(call):
        return None
    a = _Attention(call)
    m, size = a.m, a.m.embed_dim // a.m.num_heads
    head = [r % m.embed_dim // size for r in row]
    heads = [heads[head] for heads in a.heads]  # (K, N, L, size) each: the head of each probe
    for part in range(3):
        probes = [k for k, r in enumerate(row) if r // m.embed_dim == part]
        by = moves.steps[probes].view(-1, 1, 1)
        if feature is not None:
            by = by * a.inputs[part].movedim(-1, 0)[[feature[k] for k in probes]]
        heads[part][probes, :, :, [row[k] % size for k in probes]] += by
    weights, mixed = a.attend(heads[0], heads[1], heads[2], a.mask[head])
    columns = m.out_proj.weight.unflatten(1, (m.num_heads, size)).permute(1, 2, 0)[head]
    delta = torch.einsum("knls,kso->knlo", mixed - a.mixed[head], columns)
    out, shown = call.out
    change = Change(out, moves.K, difference=delta if a.first else delta.transpose(1, 2))
    if shown is None:
        return change, None
    moved = weights - a.weights[head]
    if call.argument(6, "average_attn_weights", True):
        return change, Change(shown, moves.K, difference=moved / m.num_heads)
    return change, slab(shown, 1, head, 1, moved.unsqueeze(2))


@rules.source(nn.MultiheadAttention, parameter="out_proj.weight")
def output_weight_moves(call: Call[nn.MultiheadAttention], moves: Moves) -> Changed:
    """One output unit moves by the step times the heads' output; the attention is unchanged."""
    if not _is_plain(call):
        return None
    a = _Attention(call)
    unit, feature = moved_elements(a.m.out_proj.weight.shape, moves.index)
    mixed = a.turn(a.mixed.permute(1, 2, 0, 3).flatten(2))
    delta = mixed.movedim(-1, 0)[feature] * moves.steps.view(-1, 1, 1)
    return slab(call.out[0], -1, unit, 1, delta.unsqueeze(-1)), None


@rules.source(nn.MultiheadAttention, parameter="out_proj.bias")
def output_bias_moves(call: Call, moves: Moves) -> Changed:
    """One output unit moves by the step."""
    out = call.out[0]
    steps = moves.steps.view(-1, *[1] * out.dim())
    return slab(out, -1, moves.index, 1, steps.expand(-1, *out.shape[:-1], 1)), None


@rules.flow(nn.MultiheadAttention)
def inputs_change(call: Call[nn.MultiheadAttention], changes: Changes) -> Changed:
    """Samples do not mix, so all probes run as one batch, K times as large."""
    if not _is_plain(call) or not set(changes) <= {0, 1, 2}:
        return None
    m = call.module
    K = next(iter(changes.values())).K
    N = 0 if m.batch_first else 1  # the dimension of the samples

    def stack(x: Tensor | None, at: int) -> Tensor | None:
        return x if x is None else x.expand(K, *x.shape).movedim(0, at).flatten(at, at + 1)

    inputs = [
        changes[i].densify().new().movedim(0, N).flatten(N, N + 1)
        if i in changes
        else stack(call.args[i], N)
        for i in range(3)
    ]
    padding, seen = call.argument(3, "key_padding_mask"), call.argument(5, "attn_mask")
    out, shown = m(
        *inputs,
        key_padding_mask=stack(padding, 0),
        need_weights=call.out[1] is not None,
        attn_mask=seen if seen is None or seen.dim() == 2 else stack(seen, 0),
        average_attn_weights=call.argument(6, "average_attn_weights", True),
        is_causal=call.argument(7, "is_causal", False),
    )
    change = Change(call.out[0], K, values=out.unflatten(N, (K, -1)).movedim(N, 0))
    if shown is None:
        return change, None
    return change, Change(call.out[1], K, values=shown.unflatten(0, (K, -1)))
