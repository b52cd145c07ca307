"""Which input rows a call needs for some of its output rows, and the call on only these rows."""

from __future__ import annotations

import operator
from dataclasses import replace
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..registry import Call, Key, Needed, rules
from ..rows import Rows
from .elementwise import BINARY, CASTS, UNARY
from .features import OVER_FEATURES, SOFTMAXES
from .shape import REARRANGING, RESHAPING, order_of

_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def _on(call: Call, rows: Rows, args: dict[Key, object]) -> Call:
    """The call with other arguments, returning only `rows` of its output."""
    given = tuple(args.get(i, x) for i, x in enumerate(call.args))
    kwargs = {key: args.get(key, x) for key, x in call.kwargs.items()}
    return replace(call, args=given, kwargs=kwargs, out=rows.of(call.out))


@rules.need(*UNARY, *BINARY, *CASTS, torch.where, torch.masked_fill, "where", "masked_fill",
            nn.Identity, nn.Dropout, F.dropout)  # fmt: skip
def pointwise(call: Call, rows: Rows | None) -> Needed | None:
    """Take the same rows of every operand that has them."""
    if rows is None:
        return None
    args: dict[Key, object] = {}
    needed: dict[Key, Rows | None] = {}
    rank = call.out.dim()
    given: list[tuple[Key, Any]] = [*enumerate(call.args), *call.kwargs.items()]
    for key, x in given:
        if isinstance(x, (list, tuple)) and any(isinstance(part, Tensor) for part in x):
            return None
        dim = rows.dim - rank + x.dim() if isinstance(x, Tensor) else -1
        if dim < 0 or x.shape[dim] == 1:
            continue
        # If each sample has its own rows, an operand broadcast over samples is expanded first.
        spread = rows.index.dim() == 2 and x.dim() < rank
        part = replace(rows, rank=rank) if spread else rows.at(dim)
        needed[key], args[key] = part, part.of(x)
    noise = None if call.noise is None else rows.of(call.noise)
    return replace(_on(call, rows, args), noise=noise), needed


@rules.need(nn.Linear, F.linear, *OVER_FEATURES)
def per_row(call: Call, rows: Rows | None) -> Needed | None:
    """The call mixes the last dimensions and keeps the leading ones apart."""
    if rows is None or not call.args:
        return None
    x, m = call.args[0], call.module
    mixed = x.dim() - 1
    if call.target in SOFTMAXES:
        dim = call.argument(1, "dim") if m is None else m.dim
        mixed = mixed if dim in (-1, mixed) else 0
    elif call.target in OVER_FEATURES:
        shape = call.argument(1, "normalized_shape") if m is None else m.normalized_shape
        mixed = x.dim() - len(shape)  # type: ignore[arg-type]
    if rows.dim >= mixed:
        return None
    return _on(call, rows, {0: rows.of(x)}), {0: rows}


@rules.need(torch.mean, "mean", torch.sum, "sum")
def reduce(call: Call, rows: Rows | None) -> Needed | None:
    """Means over dimensions other than that of the rows."""
    dims, x = call.argument(1, "dim"), call.args[0]
    if rows is None or dims is None:
        return None
    over = {d % x.dim() for d in ([dims] if isinstance(dims, int) else dims)}
    left = [d for d in range(x.dim()) if d not in over]
    dim = rows.dim if call.out.dim() == x.dim() else left[rows.dim]
    if dim in over or (rows.index.dim() == 2 and 0 in over):
        return None
    return _on(call, rows, {0: rows.at(dim).of(x)}), {0: rows.at(dim)}


@rules.need(torch.matmul, operator.matmul, "matmul", torch.bmm, "bmm")
def product(call: Call, rows: Rows | None) -> Needed | None:
    """Rows of a product are rows of its left factor."""
    a, b = call.args[:2] if len(call.args) > 1 else (call.args[0], None)
    if rows is None or b is None or a.dim() < 2 or b.dim() < 2 or a.dim() != call.out.dim():
        return None
    if rows.dim != a.dim() - 2 and (rows.dim == a.dim() - 1 or b.dim() > 2):
        return None
    if a.shape[:-1] != call.out.shape[:-1]:  # the left factor is shared by samples
        return None
    return _on(call, rows, {0: rows.of(a)}), {0: rows}


@rules.need(F.scaled_dot_product_attention)
def attention(call: Call, rows: Rows | None) -> Needed | None:
    """Take some queries and all keys and values."""
    q, k = call.argument(0, "query"), call.argument(1, "key")
    if rows is None or rows.dim != q.dim() - 2 or q.shape[:-1] != call.out.shape[:-1]:
        return None
    if call.argument(4, "dropout_p", 0.0):
        return None
    place = {name: i if len(call.args) > i else name for i, name in enumerate(_ATTENTION)}
    args: dict[Key, object] = {place["query"]: rows.of(q)}
    needed: dict[Key, Rows | None] = {place["query"]: rows}
    mask, kwargs = call.argument(3, "attn_mask"), dict(call.kwargs)
    if call.argument(5, "is_causal", False):
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        args |= {
            place["attn_mask"]: replace(rows, rank=q.dim()).of(seen), place["is_causal"]: False
        }  # fmt: skip
        kwargs |= {"attn_mask": None, "is_causal": False}
    elif mask is not None and mask.shape[-2] > 1:
        part = replace(rows, rank=q.dim())
        args[place["attn_mask"]], needed[place["attn_mask"]] = part.of(mask), part
    kwargs = {key: x for key, x in kwargs.items() if place.get(key, key) == key}
    return _on(replace(call, kwargs=kwargs), rows, args), needed


@rules.need(*RESHAPING)
def reshape(call: Call, rows: Rows | None) -> Needed | None:
    """The dimension of the rows must survive; the others may change shape."""
    if rows is None or not isinstance(call.args[0], Tensor):
        return None
    x, out, d = call.args[0], call.out, rows.dim
    if rows.index.dim() == 2 and x.shape[:1] != out.shape[:1]:
        return None
    before = prod(out.shape[:d])
    for dim in range(x.dim()):
        if prod(x.shape[:dim]) == before and x.shape[dim] == out.shape[d]:
            part, picked = rows.at(dim), rows.of(out)
            args = (part.of(x), tuple(picked.shape))  # with the size for these rows only
            return Call("reshape", None, args, {}, picked), {0: part}
    return None


@rules.need(*REARRANGING)
def rearrange(call: Call, rows: Rows | None) -> Needed | None:
    """Follow the dimension of the rows to its place in the input."""
    x = call.args[0]
    if rows is None or not isinstance(x, Tensor):
        return None
    order = order_of(call, x)
    dim = order[rows.dim]
    if dim is None or (rows.index.dim() == 2 and (order[0] != 0 or dim == 0)):
        return None
    return _on(call, rows, {0: rows.at(dim).of(x)}), {0: rows.at(dim)}


@rules.need(operator.getitem)
def pick(call: Call, rows: Rows | None) -> Needed | None:
    """Indexing that picks rows, or slices other dimensions."""
    x, index = call.args
    if not isinstance(x, Tensor):
        return None
    index = _spelled_out(index, x.dim())
    if index is None:
        return None
    if rows is not None:
        dims = [d for d, i in enumerate(index) if not isinstance(i, int)]
        dim = dims[rows.dim] if rows.dim < len(dims) else -1
        own = rows.index.dim() == 2 and index[0] != slice(None)
        if dim < 0 or own or index[dim] != slice(None):
            return None
        if any(isinstance(i, Tensor) for i in index):
            return None
        return _on(call, rows, {0: rows.at(dim).of(x)}), {0: rows.at(dim)}
    found = _picked(x, index)
    if found is None:
        return None
    part, inside = found
    args = (part.of(x), tuple(inside))
    return replace(call, args=args), {0: part}


def _picked(x: Tensor, index: list[Any]) -> tuple[Rows, list[Any]] | None:
    """The rows that an index picks, and the index within these rows."""
    tensors = [d for d, i in enumerate(index) if isinstance(i, Tensor)]
    if tensors == [0, 1]:
        samples, own = index[:2]
        plain = samples.dim() == own.dim() == 1 and len(samples) == len(x)
        if not plain or not torch.equal(samples, torch.arange(len(x), device=samples.device)):
            return None
        part = Rows(1, (own % x.shape[1])[:, None])
        return part, [samples, torch.zeros_like(own), *index[2:]]
    for d, i in enumerate(index):
        if isinstance(i, int):
            where, inside = [i % x.shape[d]], 0
        elif isinstance(i, slice) and i != slice(None):
            where, inside = list(range(x.shape[d]))[i], slice(None)  # type: ignore[assignment]
        else:
            continue
        if where and len(where) < x.shape[d] and d < x.dim() - 1:
            return Rows(d, torch.tensor(where)), [*index[:d], inside, *index[d + 1 :]]
    return None


def _spelled_out(index: Any, rank: int) -> list[Any] | None:
    """Expand an index to one integer, slice or tensor of positions per dimension."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(part is None or isinstance(part, (bool, list)) for part in parts):
        return None
    if any(isinstance(p, Tensor) and p.dtype != torch.int64 for p in parts):
        return None
    at = next((j for j, part in enumerate(parts) if part is Ellipsis), len(parts))
    rest = rank - len(parts) + (at < len(parts))
    return parts[:at] + [slice(None)] * rest + parts[at + 1 :]
