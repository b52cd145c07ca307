"""Joining and splitting tensors: a changed part is a slab along the joined dimension."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..change import Change, Where
from ..registry import Call, Changed, Changes, Key, rules

if TYPE_CHECKING:
    from typing_extensions import Unpack


@rules.flow(torch.cat, torch.concat)
def concatenate(call: Call, changes: Changes) -> Change | None:
    """A changed part becomes a slab of the whole, along the joined dimension."""
    dim = call.argument(1, "dim", 0) % call.out.dim()
    parts = call.argument(0, "tensors")
    changed = {key[1]: x for key, x in changes.items() if isinstance(key, tuple)}
    if dim == 0 or len(changed) < len(changes):
        return None
    offsets = [0]
    for part in parts:  # torch also accepts empty parts of another shape
        offsets.append(offsets[-1] + (part.shape[dim] if part.dim() == call.out.dim() else 0))
    if len(changed) == 1:
        ((j, x),) = changed.items()
        if x.base.shape == call.out.shape:  # the others are empty
            return _as_stored(x, call.out, x.stored)
        if x.is_dense:
            place: Where = {"dim": dim, "starts": (offsets[j],), "width": parts[j].shape[dim]}
            return _as_stored(x, call.out, x.stored, **place)
        if x.dim == dim:
            starts = tuple(start + offsets[j] for start in x.starts)
            return _as_stored(x, call.out, x.stored, starts=starts)
    first = next(iter(changed.values()))
    where = first if _same_slab(list(changed.values()), dim) else None
    whole = []
    for j, part in enumerate(parts):
        if part.dim() != call.out.dim():
            continue
        if j in changed:
            x = changed[j]
            whole.append((x if where else x.densify()).new())
        else:
            cut = where.restrict(part) if where else part
            whole.append(cut.expand(first.K, *cut.shape[-part.dim() :]))
    values = torch.cat(whole, dim + 1)
    return (where or Change(call.out, first.K)).with_values(call.out, values)


def _same_slab(changes: list[Change], dim: int) -> bool:
    """Do all changes share one slab, in a dimension other than the joined one?"""
    first = changes[0]
    return first.dim not in (None, dim) and all(
        (x.dim, x.starts, x.width) == (first.dim, first.starts, first.width) for x in changes
    )


@rules.flow(torch.stack)
def stack(call: Call, changes: Changes) -> Change | None:
    """Join along a new dimension."""
    dim = call.argument(1, "dim", 0) % call.out.dim()
    parts = call.argument(0, "tensors")
    if any(not isinstance(key, tuple) for key in changes):
        return None
    joined: dict[Key, Change] = {}
    for key, x in changes.items():
        moved = None if x.dim is None else x.dim + (x.dim >= dim)
        joined[key] = replace(
            _as_stored(x, x.base.unsqueeze(dim), x.stored.unsqueeze(dim + 1)), dim=moved
        )
    if dim == 0:
        return None
    args = ([part.unsqueeze(dim) for part in parts], dim)
    return concatenate(Call(torch.cat, None, args, {}, call.out), joined)


@rules.flow(torch.split, torch.chunk, torch.unbind, torch.tensor_split, "split", "chunk", "unbind")
def take_apart(call: Call, changes: Changes) -> Changed:
    """Give each part its share of the change."""
    if set(changes) != {0}:
        return None
    x = changes[0]
    unbound = call.target in (torch.unbind, "unbind")
    dim = call.argument(1, "dim", 0) if unbound else call.argument(2, "dim", 0)
    dim %= x.base.dim()
    found: list[Change | None] = []
    start = 0
    for out in call.out:
        width = 1 if unbound else out.shape[dim]
        part = _share(x, dim, start, width, out.unsqueeze(dim) if unbound else out)
        if part is not None and unbound:
            moved = None if part.dim is None else part.dim - (part.dim > dim)
            if part.dim == dim:  # one entry, all of it
                part, moved = replace(part, dim=None, starts=(0,), width=0), None
            part = replace(_as_stored(part, out, part.stored.squeeze(dim + 1)), dim=moved)
        found.append(part)
        start += width
    return tuple(found)


def _share(x: Change, dim: int, start: int, width: int, out: Tensor) -> Change | None:
    """The change between `start` and `start + width` along `dim`, as a change of that part."""
    if x.dim == dim:
        inside = [start <= s and s + x.width <= start + width for s in x.starts]
        if all(inside):
            return _as_stored(x, out, x.stored, starts=tuple(s - start for s in x.starts))
        if all(s + x.width <= start or start + width <= s for s in x.starts):
            return None
        x = x.densify()
    return _as_stored(x, out, x.stored.narrow(dim + 1, start, width))


def _as_stored(x: Change, base: Tensor, stored: Tensor, **where: Unpack[Where]) -> Change:
    if x.values is None:
        return x.with_delta(base, stored, **where)
    return x.with_values(base, stored, **where)
