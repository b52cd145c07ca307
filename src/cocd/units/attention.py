"""Attention as calls that have rules: torch shows each form of it to overrides as one call."""

from __future__ import annotations

import types
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

# The same code as torch's, which does not ask for overrides.
multi_head = types.FunctionType(
    F.multi_head_attention_forward.__code__,
    {**F.multi_head_attention_forward.__globals__, "has_torch_function": lambda *_: False},
    argdefs=F.multi_head_attention_forward.__defaults__,
)


def with_dropout(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Scaled dot-product attention whose dropout is a call of its own, so that its mask is kept."""
    if not dropout_p or enable_gqa:
        raise NotImplementedError
    scores = query @ key.transpose(-2, -1) * (1 / sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    return F.dropout(scores.softmax(-1), dropout_p, True) @ value
