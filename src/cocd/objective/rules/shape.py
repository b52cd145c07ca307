"""Shape operations: a slab remains a slab where possible and otherwise becomes dense."""

from __future__ import annotations

import operator
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..change import Change, Where
from ..registry import UNCHANGED, Call, Changed, Changes, again, rules

if TYPE_CHECKING:
    from types import EllipsisType

    from typing_extensions import Unpack

    Index = int | slice | Tensor | EllipsisType | None

_OF_THE_SHAPE = {"shape", "ndim", "dtype", "device", "is_cuda", "requires_grad"}


@rules.flow("size", "dim", "numel", "new_zeros", "new_ones", "new_empty", "new_full",
            torch.zeros_like, torch.ones_like, torch.full_like, torch.numel)  # fmt: skip
def of_the_shape(call: Call, changes: Changes) -> Changed:
    """The result depends only on the shape, so it does not change."""
    return UNCHANGED if set(changes) == {0} else None


@rules.flow(torch.rand_like, torch.randn_like, torch.empty_like)
def drawn(call: Call, changes: Changes) -> Changed:
    """All probes use the random numbers of the unperturbed pass."""
    return UNCHANGED


@rules.flow(getattr)
def attribute(call: Call, changes: Changes) -> Changed:
    """An attribute that does not depend on the values, or a transpose."""
    if call.args[1] in ("T", "mT"):
        return rearrange(call, changes)
    return UNCHANGED if call.args[1] in _OF_THE_SHAPE else None


RESHAPING = (nn.Flatten, nn.Unflatten, torch.flatten, torch.reshape, torch.squeeze, torch.unflatten,
             "flatten", "reshape", "view", "view_as", "unflatten", "squeeze")  # fmt: skip
REARRANGING = (torch.permute, "permute", torch.transpose, "transpose", torch.unsqueeze, "unsqueeze",
               torch.movedim, "movedim", torch.swapaxes, "swapaxes", torch.t, "t")  # fmt: skip


@rules.flow(*RESHAPING)
def reshape(call: Call, changes: Changes) -> Change | None:
    """Reshape the change; the units of a channel stay together."""
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
            before = prod(old[:dim])
            for at in range(1, len(shape)):
                if prod(shape[:at]) == before and shape[at] == old[dim]:
                    new = (x.K, *shape[:at], x.width, *shape[at + 1 :])
                    return _reshaped(x, call.out, new, dim=at)
            if (parts := _taken_apart(x, call.out)) is not None:
                return parts
        x = x.densify()
    return _reshaped(x, call.out, (x.K, *shape))


def _taken_apart(x: Change, out: Tensor) -> Change | None:
    """Split units into heads: each slab must lie within one head and becomes a slab of heads."""
    dim, size = x.base.dim() - 1, out.shape[-1]
    whole = x.dim == dim and out.dim() == dim + 2 and x.base.shape[dim] == prod(out.shape[dim:])
    if not whole or any(start % size + x.width > size for start in x.starts):
        return None
    delta = x.delta()
    heads = delta.new_zeros(*delta.shape[:-1], size)
    inside = torch.tensor([start % size for start in x.starts], device=delta.device)[:, None]
    where = (inside + torch.arange(x.width, device=delta.device)).view(-1, *[1] * (dim), x.width)
    heads.scatter_(-1, where.expand_as(delta), delta)
    starts = tuple(start // size for start in x.starts)
    return x.with_delta(out, heads.unsqueeze(-2), starts=starts, width=1)


def _reshaped(x: Change, base: Tensor, shape: tuple[int, ...], **where: Unpack[Where]) -> Change:
    if x.values is None:
        return x.with_delta(base, x.stored.reshape(shape), **where)
    return x.with_values(base, x.stored.reshape(shape), **where)


@rules.flow(*REARRANGING)
def rearrange(call: Call, changes: Changes) -> Change | None:
    """Permute dimensions; the slab's dimension moves along."""
    if set(changes) != {0} or not isinstance(call.out, Tensor):
        return None
    x = changes[0]
    order = order_of(call, x.base)
    stored = x.stored
    kept = [0] + [i + 1 for i in order if i is not None]
    out = stored.permute(kept)
    for at, i in enumerate(order):
        if i is None:
            out = out.unsqueeze(at + 1)
    where: Where = {} if x.dim is None else {"dim": order.index(x.dim)}
    if x.values is None:
        return x.with_delta(call.out, out, **where)
    return x.with_values(call.out, out, **where)


def order_of(call: Call, x: Tensor) -> list[int | None]:
    """The input dimension of each output dimension; None for a new one."""
    # Run the call on a meta tensor whose sizes are all different.
    marks = torch.empty(tuple(range(2, 2 + x.dim())), device="meta")
    return [size - 2 if size >= 2 else None for size in again(call, marks).shape]


@rules.flow(torch.mean, "mean", torch.sum, "sum")
def reduce(call: Call, changes: Changes) -> Change | None:
    """Means and sums are linear; over dimensions other than the slab's they keep the slab."""
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


@rules.flow("expand", "expand_as", torch.broadcast_to)
def expand(call: Call, changes: Changes) -> Change | None:
    """Expand the change along with the tensor."""
    if set(changes) != {0}:
        return None
    x, shape = changes[0], call.out.shape
    more = len(shape) - x.base.dim()
    if x.dim is not None and shape[x.dim + more] != x.base.shape[x.dim]:
        x = x.densify()
    inner = list(shape)
    dim = None if x.dim is None else x.dim + more
    if dim is not None:
        inner[dim] = x.width
    stored = x.stored
    stored = stored.view(stored.shape[0], *[1] * more, *stored.shape[1:]).expand(-1, *inner)
    if x.values is None:
        return x.with_delta(call.out, stored, dim=dim)
    return x.with_values(call.out, stored, dim=dim)


@rules.flow(torch.repeat_interleave, "repeat_interleave")
def repeat(call: Call, changes: Changes) -> Change | None:
    """Repeat every entry of a dimension; repeating along the slab's dimension widens the slab."""
    dim, times = call.argument(2, "dim"), call.argument(1, "repeats")
    if set(changes) != {0} or dim is None or not isinstance(times, int):
        return None
    x, dim = changes[0], dim % call.out.dim()
    stored = x.stored.repeat_interleave(times, dim + 1)
    where: Where = {}
    if x.dim == dim:
        where = {"starts": tuple(s * times for s in x.starts), "width": x.width * times}
    if x.values is None:
        return x.with_delta(call.out, stored, **where)
    return x.with_values(call.out, stored, **where)


@rules.flow(operator.getitem)
def pick(call: Call, changes: Changes) -> Change | None:
    """Index dimensions other than the slab's."""
    if set(changes) != {0} or not isinstance(call.out, Tensor):
        return None
    x, index = changes[0], call.args[1]
    index = index if isinstance(index, tuple) else (index,)
    if any(not isinstance(i, (int, slice, Tensor, type(Ellipsis), type(None))) for i in index):
        return None
    if any(isinstance(i, (bool, Tensor)) and not _positions(i) for i in index):
        return None
    index = _without_ellipsis(index, x.base.dim())
    plain = all(isinstance(i, (int, slice)) for i in index)
    if x.dim is not None and (
        not plain
        or (len(index) > x.dim and index[x.dim] != slice(None))
        or any(isinstance(i, int) for i in index[: x.dim])
    ):
        x = x.densify()
    apart = [j for j, i in enumerate(index) if isinstance(i, (int, Tensor))]
    if not plain and apart and apart[-1] - apart[0] >= len(apart):
        return None  # torch would put such dimensions before the probes
    out = x.stored[(slice(None), *index)]
    if x.values is None:
        return x.with_delta(call.out, out)
    return x.with_values(call.out, out)


def _positions(index: object) -> bool:
    return isinstance(index, Tensor) and index.dtype == torch.int64


def _without_ellipsis(index: tuple[Index, ...], rank: int) -> tuple[Index, ...]:
    at = next((j for j, part in enumerate(index) if part is Ellipsis), None)
    if at is None:
        return index
    rest = rank - sum(part is not None for part in index) + 1
    return (*index[:at], *[slice(None)] * rest, *index[at + 1 :])
