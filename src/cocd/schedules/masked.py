"""`Masked`: some coordinates of each tensor, redrawn from time to time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

from ..parts.types import State
from ..parts.validation import check_choice, check_count
from .schedule import Schedule, Stretch, largest_in, stretches


class Masked(Schedule):
    """A schedule on a subset of the coordinates; the others are not probed.

    With a full budget, ``decay=0`` and one-sided differences, `CoherentGradient` on a random mask
    is DeepZero's estimator. With a smaller budget and a memory, CoCD replaces it.

    Args:
        schedule: the order within the mask.
        ratios: the share of each tensor to leave out, in the order of the parameters: a sequence,
            or what `cocd.sparsity.zo_grasp` returns. Tensors beyond its end are kept whole.
        by: "random" draws the mask, "magnitude" keeps each tensor's largest weights.
        redraw: sweeps of the mask between two redraws; None for never.
        forget: set remembered slopes to zero at a redraw. Otherwise the slopes of coordinates
            that left the mask stay, and decay.
        seed: decides the random masks.

    >>> import torch, cocd
    >>> x = torch.ones(10, requires_grad=True)
    >>> mask = cocd.schedules.Masked(cocd.schedules.Cyclic(), [0.6], seed=0)
    >>> optimizer = cocd.CoCD([x], lr=0.5, compute_budget=4, schedule=mask)
    >>> for _ in range(30):
    ...     loss = optimizer.step(lambda: (x**2).sum())
    >>> x.detach().round(decimals=3).abs().sum()
    tensor(6.)
    """

    def __init__(
        self,
        schedule: Schedule,
        ratios: Sequence[float] | Mapping[str, float],
        *,
        by: Literal["random", "magnitude"] = "random",
        redraw: int | None = None,
        forget: bool = False,
        seed: int = 0,
    ) -> None:
        if not isinstance(ratios, (Mapping, Sequence)):
            raise ValueError(f"ratios must hold a number for each tensor, got {ratios!r}")
        shares = tuple(ratios.values() if isinstance(ratios, Mapping) else ratios)
        for share in shares:
            if not (isfinite(share) and 0 <= share <= 1):
                raise ValueError(f"ratios must be numbers from 0 to 1, got {share!r}")
        self.ratios = tuple(map(float, shares))
        self.by = check_choice("by", by, ("random", "magnitude"))
        self.redraw = None if redraw is None else check_count("redraw", redraw)
        self.forget = bool(forget)
        self.seed = seed
        self._inner = copy.deepcopy(schedule)
        self._chosen: tuple[int, Tensor] | None = None  # which mask, and the coordinates in it
        super().__init__()
        self.repeats = schedule.repeats or redraw is not None
        self.recalls = schedule.recalls and by == "random"
        self.ascending = schedule.ascending

    @property
    def size(self) -> int:
        """How many coordinates are in the mask."""
        return sum(self._kept(self.sizes))

    def order(self, start: int, stop: int, n: int) -> Iterator[Stretch]:
        """The inner order over the coordinates of the mask of that time."""
        sizes = self._first(n)
        size = sum(self._kept(sizes))
        while start < stop:
            mask = self._mask(start, size)
            end = stop if self.redraw is None else min(stop, (mask + 1) * self.redraw * size)
            inside = self._inner.order(start, end, size)
            yield from stretches(self._coordinates(mask, sizes), inside)
            start = end

    def prepared(
        self, budget: int, weights: Callable[[], Tensor], slopes: Callable[[], Tensor]
    ) -> Masked:
        """The mask of the largest weights, where it is time to choose it."""
        mask = self._mask(self._position(), self.size)
        if self.by == "random" or (self._chosen is not None and self._chosen[0] == mask):
            return self
        parts = torch.split(weights().abs(), list(self.sizes))
        kept = zip(parts, self._kept(self.sizes), self._offsets(), strict=True)
        found = copy.copy(self)
        found._inner = copy.deepcopy(self._inner)
        found._chosen = mask, torch.cat([largest_in(part, k) + first for part, k, first in kept])
        return found

    def voids(self, budget: int) -> bool:
        """Whether the next block begins a new mask, and slopes of the last one are forgotten."""
        first = self._position()
        if not (self.forget and self.redraw and first):
            return False
        before, last = self._mask(first - 1, self.size), self._mask(first + budget - 1, self.size)
        return before != last

    def advance(self, budget: int) -> None:
        """The proposed coordinates have been refreshed."""
        self._inner.advance(budget)
        super().advance(budget)

    def grow(self, sizes: Sequence[int]) -> None:
        """New tensors join; the mask is chosen again."""
        super().grow(sizes)
        self._chosen = None
        if sizes and not self.size:
            raise ValueError(f"ratios={list(self.ratios)} leave no coordinate of {sum(sizes)}")
        self._inner.grow(self._kept(self.sizes))

    # --- which coordinates -----------------------------------------------------------------------

    def _position(self) -> int:
        """The number of the next refresh, as `order` counts."""
        piece = self._pieces[-1]
        return self.count - piece.start + piece.cursor

    def _mask(self, refresh: int, size: int) -> int:
        return 0 if self.redraw is None else refresh // (self.redraw * size)

    def _first(self, n: int) -> tuple[int, ...]:
        """The sizes of the tensors of the time when there were n coordinates."""
        sizes, total = [], 0
        for size in self.sizes:
            if total == n:
                break
            sizes.append(size)
            total += size
        return tuple(sizes)

    def _kept(self, sizes: Iterable[int]) -> list[int]:
        shares = [*self.ratios, *[0.0] * len(self.sizes)]
        return [round((1 - share) * size) for share, size in zip(shares, sizes, strict=False)]

    def _offsets(self) -> list[int]:
        return [sum(self.sizes[:i]) for i in range(len(self.sizes))]

    def _coordinates(self, mask: int, sizes: tuple[int, ...]) -> Tensor:
        if self.by == "random":
            return _drawn(sizes, tuple(self._kept(sizes)), self.seed, mask)
        if self._chosen is None:
            raise RuntimeError("a mask by magnitude is chosen by the optimizer; see `prepared`")
        return self._chosen[1]

    # --- saving ---------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Where the order stands, and the mask where it cannot be derived."""
        chosen = None if self._chosen is None else [self._chosen[0], self._chosen[1].clone()]
        return {**super().state_dict(), "inner": self._inner.state_dict(), "chosen": chosen}

    def load_state_dict(self, state: State) -> None:
        """Go on from there; the tensors are known already."""
        super().load_state_dict(state)
        self._inner.load_state_dict(state["inner"])
        chosen = state["chosen"]
        self._chosen = None if chosen is None else (int(chosen[0]), chosen[1].clone())


@lru_cache(maxsize=4)
def _drawn(sizes: tuple[int, ...], kept: tuple[int, ...], seed: int, mask: int) -> Tensor:
    """The coordinates of a random mask, ascending. The same for the same arguments."""
    generator = torch.Generator().manual_seed((seed + 1) * 1_000_003 + mask)
    parts, first = [], 0
    for size, count in zip(sizes, kept, strict=True):
        drawn = torch.randperm(size, generator=generator, device="cpu")[:count]
        parts.append(drawn.sort().values + first)
        first += size
    return torch.cat(parts)
