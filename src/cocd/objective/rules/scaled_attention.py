"""`scaled_dot_product_attention`: recompute all that has changed, as one larger batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..change import Change
from ..registry import Call, Changes, rules
from .matmul import times

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


@rules.flow(F.scaled_dot_product_attention)
def attention(call: Call, changes: Changes) -> Change | None:
    """Recompute only the changed heads if the changes are a slab; reuse the weights for values."""
    given = {**dict(zip(_NAMES, call.args, strict=False)), **call.kwargs}
    changed = {_NAMES[key] if isinstance(key, int) else key: x for key, x in changes.items()}
    q, k, v = (given[name] for name in _NAMES[:3])
    plain = q.dim() == k.dim() == v.dim() and q.dim() >= 3 and not given.get("dropout_p")
    if not plain or not set(changed) <= {"query", "key", "value"}:
        return None
    grouped = q.shape[-3] != k.shape[-3] and bool(given.get("enable_gqa"))
    if q.shape[:-2] != v.shape[:-2] and not grouped:
        return None
    bias = _bias(q, k, given.get("attn_mask"), bool(given.get("is_causal")))
    scale = given.get("scale") or q.shape[-1] ** -0.5
    first = next(iter(changed.values()))
    slab = all(
        x.dim is not None
        and x.dim < q.dim() - 2
        and (x.dim, x.starts, x.width) == (first.dim, first.starts, first.width)
        for x in changed.values()
    )
    if slab and not grouped:  # for example of heads
        parts = [
            changed[name].new() if name in changed else first.restrict(given[name])
            for name in _NAMES[:3]
        ]
        cut = None if bias is None else first.restrict(bias.expand(*q.shape[:-1], k.shape[-2]))
        return first.with_values(call.out, _attend(parts[0], parts[1], parts[2], cut, scale))
    parts = [changed[n].densify().new() if n in changed else given[n] for n in _NAMES[:3]]
    if grouped:
        parts[1:] = [t.repeat_interleave(q.shape[-3] // k.shape[-3], -3) for t in parts[1:]]
    if set(changed) == {"value"}:
        weights = _weights(q @ parts[1].mT * scale, bias)
        return Change(call.out, first.K, values=times(parts[2], weights, left=True))
    if set(changed) == {"query"}:
        weights = _weights(times(parts[0], parts[1].mT) * scale, bias)
        return Change(call.out, first.K, values=times(weights, parts[2]))
    whole = [
        t if name in changed else t.expand(first.K, *t.shape)
        for name, t in zip(_NAMES, parts, strict=False)
    ]
    if bias is not None:
        bias = bias.expand(*q.shape[:-1], k.shape[-2])
        bias = bias.expand(first.K, *bias.shape).flatten(0, 1)
    flat = [t.flatten(0, 1) for t in whole]
    out = F.scaled_dot_product_attention(flat[0], flat[1], flat[2], bias, scale=scale)
    return Change(call.out, first.K, values=out.unflatten(0, (first.K, -1)))


def _bias(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """The additive mask, with as many dimensions as the scores."""
    if causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
    return mask.view(*[1] * (q.dim() - mask.dim()), *mask.shape)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    return _weights(q @ k.mT * scale, bias) @ v


def _weights(scores: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return scores.softmax(-1)
    scores = scores.add_(bias)
    # A query with all keys masked gets zero weights; a plain softmax would give NaN.
    nothing = (bias == -torch.inf).all(-1, keepdim=True)
    return scores.softmax(-1).masked_fill_(nothing, 0)
