"""The changes of one activation by a block of probes.

K probes change an activation of the unperturbed pass, `base`. Often each of them touches one
unit or channel alone; then only that slab is kept, and everything outside it equals `base`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import torch
from torch import Tensor

from .kernels.scratch import room

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Where(TypedDict, total=False):
    """Another place of a change: what it is stored along, from where on, how wide."""

    dim: int | None
    starts: tuple[int, ...]
    width: int


@dataclass(frozen=True)
class Change:
    """K changed versions of `base`, stacked along a leading dimension.

    A dense change stores tensors of shape ``(K, *base.shape)``. A slab stores, for the k-th
    probe, the `width` entries from ``starts[k]`` on along dimension `dim` of `base`: tensors of
    shape ``(K, *base.shape)`` with `width` in the place of ``base.shape[dim]``. If all probes
    touch the same slab, `starts` has one entry.

    Stored are the changed values, or their difference from `base`, or the two factors of that
    difference (one number per sample, one per unit), whichever the operation returned; the others
    are derived. Linear operations map differences to differences, so a small change is not computed
    as the difference of two large numbers.
    """

    base: Tensor
    K: int
    values: Tensor | None = None
    difference: Tensor | None = None
    factors: tuple[Tensor, Tensor] | None = None
    dim: int | None = None
    starts: tuple[int, ...] = (0,)
    width: int = 0
    on_the_way: int = 0  # numbers that a fused chain held for each probe before it came to this

    @property
    def is_dense(self) -> bool:
        return self.dim is None

    @property
    def is_single(self) -> bool:
        """Whether all probes touch the same slab."""
        return len(self.starts) == 1

    @property
    def stored(self) -> Tensor:
        """Values if stored, otherwise differences."""
        return self.values if self.values is not None else self.delta()

    @property
    def numbers(self) -> int:
        """The number of elements that a probe changes here."""
        whole = self.base.numel()
        return whole if self.dim is None else whole // self.base.shape[self.dim] * self.width

    def base_part(self) -> Tensor:
        """The part of `base` at the change, broadcastable against the stored tensors."""
        return self.restrict(self.base)

    def restrict(self, like: Tensor) -> Tensor:
        """The part of a tensor shaped as `base` that this change covers."""
        if self.dim is None:
            return like.unsqueeze(0)
        if self.is_single:
            return like.narrow(self.dim, self.starts[0], self.width).unsqueeze(0)
        index = self.index(like.device)
        picked = like.index_select(self.dim, index.flatten())
        shape = (*like.shape[: self.dim], self.K, self.width, *like.shape[self.dim + 1 :])
        # In order: what is computed from it would have its order, and be copied to be multiplied.
        return picked.reshape(shape).movedim(self.dim, 0).contiguous()

    def index(self, device: torch.device) -> Tensor:
        """Indices along `dim` that each probe covers, (K, width) or (1, width)."""
        return _index(self.starts, self.width).to(device)

    def new(self) -> Tensor:
        """The changed values."""
        if self.values is not None:
            return self.values
        if self.factors is not None:
            out = room((self.K, *self.base.shape), self.base)
            return torch.addcmul(self.base_part(), *self.factors, out=out)
        assert self.difference is not None
        return self.difference + self.base_part()  # in this order: the sum lies as the first does

    def delta(self) -> Tensor:
        """The difference from `base`."""
        if self.difference is not None:
            return self.difference
        if self.factors is not None:
            return self.factors[0] * self.factors[1]
        assert self.values is not None
        return self.values - self.base_part()

    def with_values(self, base: Tensor, values: Tensor, **where: Unpack[Where]) -> Change:
        """The same probes, after an operation that gave changed values."""
        return replace(self, base=base, values=values, difference=None, factors=None, **where)

    def with_delta(self, base: Tensor, difference: Tensor, **where: Unpack[Where]) -> Change:
        """The same probes, after an operation that gave differences."""
        return replace(self, base=base, values=None, difference=difference, factors=None, **where)

    def with_factors(self, base: Tensor, per_sample: Tensor, per_unit: Tensor) -> Change:
        """The same probes, dense, as an outer product that is formed when it is needed."""
        return Change(base, self.K, factors=(per_sample, per_unit))

    def densify(self) -> Change:
        """The same change, stored whole."""
        if self.dim is None:
            return self
        dim = self.dim + 1
        whole = self.base.unsqueeze(0).expand(self.K, *self.base.shape).clone()
        new = self.new()
        if self.is_single:
            whole.narrow(dim, self.starts[0], self.width).copy_(new)
        else:
            shape = [1] * whole.dim()
            shape[0], shape[dim] = self.K, self.width
            index = self.index(whole.device).view(shape).expand_as(new)
            whole.scatter_(dim, index, new)
        return Change(self.base, self.K, values=whole)

    def split(self) -> list[tuple[slice, Change]]:
        """Cut into changes that are single, each with the probes it holds (which are adjacent)."""
        if self.dim is None or self.is_single:
            return [(slice(0, self.K), self)]
        parts = []
        first = 0
        for k in range(1, self.K + 1):
            if k == self.K or self.starts[k] != self.starts[first]:
                where = slice(first, k)
                part = replace(
                    self,
                    K=k - first,
                    starts=(self.starts[first],),
                    values=None if self.values is None else self.values[where],
                    difference=None if self.values is not None else self.delta()[where],
                    factors=None,
                )
                parts.append((where, part))
                first = k
        return parts


@lru_cache(maxsize=4)  # the layers behind each other ask for the same
def _index(starts: tuple[int, ...], width: int) -> Tensor:
    first = torch.from_numpy(np.array(starts))[:, None]
    return first if width == 1 else first + torch.arange(width, device="cpu")


def dense(base: Tensor, *, values: Tensor | None = None, delta: Tensor | None = None) -> Change:
    """A change that is stored whole."""
    stored = values if values is not None else delta
    assert stored is not None
    return Change(base, len(stored), values=values, difference=delta)


def slab(base: Tensor, dim: int, starts: list[int], width: int, delta: Tensor) -> Change:
    """A change of `width` entries along `dim`, from another start for each probe."""
    K = len(starts)
    same = all(start == starts[0] for start in starts)
    return Change(
        base,
        K,
        difference=delta,
        dim=dim % base.dim(),
        starts=(starts[0],) if same else tuple(starts),
        width=width,
    )


def both(a: Change | None, b: Change | None) -> Change:
    """Two changes of the same activation, added."""
    if a is None or b is None:
        only = a or b
        assert only is not None
        return only
    if (a.dim, a.starts, a.width) == (b.dim, b.starts, b.width):
        return a.with_delta(a.base, a.delta() + b.delta())
    if a.is_dense and not b.is_dense:
        a, b = b, a
    if b.is_dense and b.values is not None:  # the slab is added where it is
        whole = b.values.clone()
        _add(whole, a)
        return b.with_values(b.base, whole)
    whole = b.base.new_zeros(b.K, *b.base.shape)
    _add(whole, a)
    _add(whole, b)
    return Change(b.base, b.K, difference=whole)


def _add(whole: Tensor, x: Change) -> None:
    """Add what `x` changes to K stacked tensors."""
    delta = x.delta()
    if x.dim is None:
        whole += delta
    elif x.is_single:
        whole.narrow(x.dim + 1, x.starts[0], x.width).add_(delta)
    else:
        shape = [1] * whole.dim()
        shape[0], shape[x.dim + 1] = x.K, x.width
        where = x.index(whole.device).view(shape).expand_as(delta)
        whole.scatter_add_(x.dim + 1, where, delta)
