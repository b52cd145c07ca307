"""Shapes: a slab is followed where it stays a slab, and spread out where it does not."""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ..change import Change
from ..registry import UNCHANGED, Call, rules

_OF_THE_SHAPE = {"shape", "ndim", "dtype", "device", "is_cuda", "requires_grad"}


@rules.flow("size", "dim", "numel", "new_zeros", "new_ones", "new_empty", "new_full",
            torch.zeros_like, torch.ones_like, torch.full_like, torch.numel)  # fmt: skip
def of_the_shape(call: Call, changes: dict[Any, Change]) -> Any:
    """What depends on the shape alone stays as it is."""
    return UNCHANGED if set(changes) == {0} else None


@rules.flow(torch.rand_like, torch.randn_like, torch.empty_like)
def drawn(call: Call, changes: dict[Any, Change]) -> Any:
    """All probes see the numbers that the unperturbed pass drew."""
    return UNCHANGED


@rules.flow(getattr)
def attribute(call: Call, changes: dict[Any, Change]) -> Any:
    """A property of the tensor rather than of its values."""
    return UNCHANGED if call.args[1] in _OF_THE_SHAPE else None


@rules.flow(nn.Flatten, nn.Unflatten, torch.flatten, torch.reshape, "flatten", "reshape", "view",
            "view_as", "unflatten")  # fmt: skip
def reshape(call: Call, changes: dict[Any, Change]) -> Change | None:
    """The same numbers in another shape; the units of a channel stay together."""
    if set(changes) != {0} or not isinstance(call.out, Tensor):
        return None
    x, shape = changes[0], call.out.shape
    if not x.is_dense:
        dim, old = x.dim, x.base.shape
        assert dim is not None
        if len(shape) > dim and shape[:dim] == old[:dim]:
            if shape[dim] == old[dim]:
                factor = 1
            elif shape[dim] == prod(old[dim:]) and len(shape) == dim + 1:
                factor = prod(old[dim + 1 :])
            else:
                factor = 0
            if factor:
                width = x.width * factor
                new = (x.K, *shape[:dim], width, *shape[dim + 1 :])
                starts = tuple(start * factor for start in x.starts)
                return _reshaped(x, call.out, new, starts=starts, width=width)
        x = x.densify()
    return _reshaped(x, call.out, (x.K, *shape))


def _reshaped(x: Change, base: Tensor, shape: tuple[int, ...], **where: Any) -> Change:
    if x.values is None:
        return x.with_delta(base, x.stored.reshape(shape), **where)
    return x.with_values(base, x.stored.reshape(shape), **where)


@rules.flow(torch.permute, "permute", torch.transpose, "transpose", torch.unsqueeze, "unsqueeze",
            torch.movedim, "movedim", torch.swapaxes, "t")  # fmt: skip
def rearrange(call: Call, changes: dict[Any, Change]) -> Change | None:
    """Dimensions change places; the slab's goes with them."""
    if set(changes) != {0} or not isinstance(call.out, Tensor):
        return None
    x = changes[0]
    # Which input dimension stands where in the output: asked of a tensor that cannot be mistaken.
    marks = torch.empty(tuple(range(2, 2 + x.base.dim())), device="meta")
    moved = list(_call(call, marks).shape)
    order = [size - 2 if size >= 2 else None for size in moved]
    stored = x.stored
    kept = [0] + [i + 1 for i in order if i is not None]
    out = stored.permute(kept)
    for at, i in enumerate(order):
        if i is None:
            out = out.unsqueeze(at + 1)
    where = {} if x.dim is None else {"dim": order.index(x.dim)}
    if x.values is None:
        return x.with_delta(call.out, out, **where)
    return x.with_values(call.out, out, **where)


def _call(call: Call, x: Tensor) -> Any:
    if isinstance(call.target, str):
        return getattr(x, call.target)(*call.args[1:], **call.kwargs)
    return call.target(x, *call.args[1:], **call.kwargs)


@rules.flow(torch.cat, torch.concat)
def concatenate(call: Call, changes: dict[Any, Change]) -> Change | None:
    """A changed part becomes, along the joined dimension, a slab of the whole."""
    dim = call.argument(1, "dim", 0) % call.out.dim()
    parts = call.argument(0, "tensors")
    if dim == 0 or any(not isinstance(key, tuple) for key in changes):
        return None
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + part.shape[dim])
    if len(changes) == 1:
        (((_, j), x),) = changes.items()
        if x.is_dense:
            width = parts[j].shape[dim]
            where = {"dim": dim, "starts": (offsets[j],), "width": width}
        elif x.dim == dim:
            where = {"starts": tuple(start + offsets[j] for start in x.starts)}
        else:
            return None
        if x.values is None:
            return x.with_delta(call.out, x.stored, **where)
        return x.with_values(call.out, x.stored, **where)
    K = next(iter(changes.values())).K
    whole = [
        changes[0, j].densify().new() if (0, j) in changes else part.expand(K, *part.shape)
        for j, part in enumerate(parts)
    ]
    return Change(call.out, K, values=torch.cat(whole, dim + 1))


@rules.flow(torch.mean, "mean", torch.sum, "sum")
def reduce(call: Call, changes: dict[Any, Change]) -> Change | None:
    """Means and sums over other dimensions than the slab's are linear."""
    if set(changes) != {0} or not isinstance(call.out, Tensor):
        return None
    x = changes[0]
    dims = call.argument(1, "dim")
    if dims is None or "dtype" in call.kwargs:
        return None
    rank = x.base.dim()
    dims = sorted({d % rank for d in ([dims] if isinstance(dims, int) else dims)})
    keep = bool(call.argument(2, "keepdim", False))
    if 0 in dims:
        return None
    if x.dim in dims:
        x = x.densify()
    name = call.target if isinstance(call.target, str) else call.target.__name__
    out = getattr(x.delta(), name)(dim=[d + 1 for d in dims], keepdim=keep)
    dim = x.dim
    if dim is not None and not keep:
        dim -= sum(d < dim for d in dims)
    return x.with_delta(call.out, out, dim=dim)


@rules.flow(operator.getitem)
def pick(call: Call, changes: dict[Any, Change]) -> Change | None:
    """Slices of other dimensions than the slab's."""
    if set(changes) != {0} or not isinstance(call.out, Tensor):
        return None
    x, index = changes[0], call.args[1]
    index = index if isinstance(index, tuple) else (index,)
    if any(not isinstance(i, (int, slice)) for i in index):
        return None
    if x.dim is not None and (
        (len(index) > x.dim and index[x.dim] != slice(None))
        or any(isinstance(i, int) for i in index[: x.dim])
    ):
        x = x.densify()
    out = x.stored[(slice(None), *index)]
    if x.values is None:
        return x.with_delta(call.out, out)
    return x.with_values(call.out, out)
