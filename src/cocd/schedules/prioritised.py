"""`Prioritised`: important coordinates often, all of them now and then."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from typing import Literal

from torch import Tensor

from ..parts.types import State
from ..parts.validation import check_choice, check_count
from .schedule import Schedule, Stretch, largest_in, stretches


class Prioritised(Schedule):
    """One sweep over all coordinates, then several over the most important ones, in turn.

    Importance costs no evaluation: it is the size of the remembered slope (the Gauss-Southwell
    rule, on the memory) or of the weight. Needs a memory of all n.

    Args:
        share: the share of coordinates that are important.
        sweeps: sweeps over the important ones between two sweeps over all.
        by: "slope" or "magnitude".

    >>> import torch, cocd
    >>> steep = torch.tensor([1.0, 1.0, 9.0, 1.0])
    >>> x = torch.ones(4, requires_grad=True)
    >>> order = cocd.schedules.Prioritised(share=0.25, sweeps=2)
    >>> optimizer = cocd.CoCD([x], lr=0.0, compute_budget=1, schedule=order)
    >>> probed = []
    >>> for _ in range(7):
    ...     loss = optimizer.step(lambda: (steep * x**2).sum())
    ...     probed.append(optimizer.schedule.last[0][0])
    >>> probed
    [0, 1, 2, 3, 2, 2, 0]
    """

    recalls = False

    def __init__(
        self,
        *,
        share: float,
        sweeps: int,
        by: Literal["slope", "magnitude"] = "slope",
    ) -> None:
        if not (isfinite(share) and 0 < share <= 1):
            raise ValueError(f"share must be above 0 and at most 1, got {share!r}")
        self.share = float(share)
        self.sweeps = check_count("sweeps", sweeps)
        self.by = check_choice("by", by, ("slope", "magnitude"))
        self.last: list[Stretch] = []  # the block that was probed last
        self._chosen: tuple[int, Tensor] | None = None  # in which cycle, and the coordinates
        super().__init__()

    @property
    def important(self) -> int:
        """How many coordinates are important."""
        return max(1, round(self.share * self.n))

    @property
    def size(self) -> int:
        """A block may hold as many as there are important ones, or one would come twice."""
        return self.important

    @property
    def done(self) -> float:
        """Refreshes per coordinate so far."""
        return self.count / self.n

    def order(self, start: int, stop: int, n: int) -> Iterator[Stretch]:
        """Within a cycle: all n coordinates, then the important ones."""
        length = n + self.sweeps * self.important
        while start < stop:
            position = start % length
            if position < n:
                taken = min(stop - start, n - position)
                yield position, position + taken
            else:
                place = (position - n) % self.important
                taken = min(stop - start, self.important - place)
                if self._chosen is None:
                    raise RuntimeError("coordinates are chosen by the optimizer; see `prepared`")
                yield from stretches(self._chosen[1], [(place, place + taken)])
            start += taken

    def prepared(
        self, budget: int, weights: Callable[[], Tensor], slopes: Callable[[], Tensor]
    ) -> Prioritised:
        """The important coordinates, chosen where the next block needs them for the first time."""
        piece = self._pieces[-1]
        first = self.count - piece.start + piece.cursor
        cycle, position = divmod(first, self.n + self.sweeps * self.important)
        known = self._chosen is not None and self._chosen[0] == cycle
        if known or position + budget <= self.n:
            return self
        scores = (slopes() if self.by == "slope" else weights()).abs()
        found = copy.copy(self)
        found._chosen = cycle, largest_in(scores, self.important)
        return found

    def advance(self, budget: int) -> None:
        """The proposed coordinates have been refreshed."""
        self.last = self.next(budget)
        super().advance(budget)

    def grow(self, sizes: Sequence[int]) -> None:
        """New tensors join; what is important is chosen again."""
        super().grow(sizes)
        self._chosen = None
        last = self._pieces[-1]
        self._pieces[-1] = last._replace(cursor=0)  # a new cycle begins, with all coordinates

    def state_dict(self) -> State:
        """Where the order stands, and what was chosen."""
        chosen = None if self._chosen is None else [self._chosen[0], self._chosen[1].clone()]
        return {**super().state_dict(), "chosen": chosen}

    def load_state_dict(self, state: State) -> None:
        """Go on from there; the tensors are known already."""
        super().load_state_dict(state)
        chosen = state["chosen"]
        self._chosen = None if chosen is None else (int(chosen[0]), chosen[1].clone())
