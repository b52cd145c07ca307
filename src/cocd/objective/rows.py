"""Some rows of a tensor: those of a node's output that the loss reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .change import Change


@dataclass(frozen=True)
class Rows:
    """Entries `index` along `dim`: (m,) the same of every sample, or (N, m) of each its own.

    What is picked keeps its dimensions. A tensor of size 1 along `dim` is spread over all rows and
    stays as it is. One that has fewer than `rank` dimensions is spread over the missing ones.
    """

    dim: int
    index: Tensor
    rank: int = 0

    def of(self, x: Tensor, lead: int = 0) -> Tensor:
        """These rows of a tensor, or of tensors stacked along `lead` leading dimensions."""
        missing = self.rank - (x.dim() - lead)
        if missing > 0:
            x = x.reshape(*x.shape[:lead], *[1] * missing, *x.shape[lead:])
        dim = self.dim + lead
        if x.shape[dim] == 1:
            return x
        if self.index.dim() == 1:
            first, m = int(self.index[0]), len(self.index)
            if m == 1 or int(self.index[-1]) - first == m - 1:
                return x.narrow(dim, first, m)
            return x.index_select(dim, self.index)
        samples = torch.arange(len(self.index), device=x.device)[:, None]
        where: tuple[slice | Tensor, ...] = (slice(None),) * lead
        turned = x.movedim(dim, lead + 1)
        if turned.shape[lead] == 1:  # one for all samples
            turned = turned.expand(*turned.shape[:lead], len(samples), *turned.shape[lead + 1 :])
        return turned[(*where, samples, self.index)].movedim(lead + 1, dim)

    def at(self, dim: int) -> Rows:
        """The same rows where they are counted along another dimension."""
        return self if dim == self.dim else Rows(dim, self.index)

    def same(self, other: Rows) -> bool:
        """Are these the same rows?"""
        if (self.dim, self.rank) != (other.dim, other.rank):
            return False
        return self.index is other.index or torch.equal(self.index, other.index)

    def narrow(self, x: Change) -> Change:
        """A change of these rows alone."""
        apart = x.dim not in (None, self.dim) and not (x.dim == 0 and self.index.dim() == 2)
        if self.rank > x.base.dim() or not (x.is_dense or apart):
            x = Change(x.base, x.K, values=x.densify().new())
        base = self.of(x.base)
        if x.factors is not None and self.dim < x.base.dim() - 1:
            return x.with_factors(base, self.of(x.factors[0], 1), x.factors[1])
        if x.values is not None:
            return x.with_values(base, self.of(x.values, 1))
        return x.with_delta(base, self.of(x.delta(), 1))
