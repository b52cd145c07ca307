"""`Random`: coordinates drawn anew for every block."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ..parts.types import State
from ..parts.validation import check_seed
from .schedule import Schedule, Stretch


class Random(Schedule):
    """Distinct coordinates drawn at random for each block. Needs a memory of all n.

    >>> schedule = Random(100, seed=0)
    >>> schedule.next(3) == schedule.next(3), len(schedule.next(3))
    (True, 3)
    """

    recalls = False

    def __init__(self, *sizes: int, seed: int = 0) -> None:
        super().__init__(*sizes)
        self._generator = torch.Generator().manual_seed(check_seed(seed)).get_state()

    def order(self, start: int, stop: int, n: int) -> Iterable[Stretch]:
        """The coordinates of one block, which begins at the next refresh."""
        return [(i, i + 1) for i in self._draw(stop - start, n)[0]]

    def advance(self, budget: int) -> None:
        """The proposed coordinates have been refreshed."""
        self._generator = self._draw(budget, self.n)[1]
        super().advance(budget)

    def _draw(self, budget: int, n: int) -> tuple[list[int], Tensor]:
        # Floyd's sampling: O(budget) numbers, where a permutation would take n.
        generator = torch.Generator()
        generator.set_state(self._generator)
        uniform = torch.rand(budget, generator=generator, dtype=torch.float64).tolist()
        chosen: set[int] = set()
        for j, u in zip(range(n - budget, n), uniform, strict=True):
            i = int(u * (j + 1))
            chosen.add(j if i in chosen else i)
        return sorted(chosen), generator.get_state()

    def state_dict(self) -> State:
        """Where the order stands."""
        return {**super().state_dict(), "generator": self._generator.clone()}

    def load_state_dict(self, state: State) -> None:
        """Go on from there; the tensors are known already."""
        super().load_state_dict(state)
        self._generator = state["generator"].clone()
