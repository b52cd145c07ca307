"""`Schedule`: a coordinate order, from which the next block and the age of estimates follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..parts.types import State

Stretch = tuple[int, int]  # start:stop of the flat vector


class Piece(NamedTuple):
    """From refresh `start` on there are `n` coordinates, beginning with their `cursor`-th."""

    start: int
    cursor: int
    n: int


class Schedule(ABC):
    """The order in which coordinates are refreshed; subclasses define `order`.

    The flat vector is the trained parameters one after the other, each row-major. The optimizer
    works on a copy, so that one schedule may be passed to several optimizers.

    >>> import torch, cocd
    >>> class Backwards(cocd.schedules.Schedule):
    ...     def order(self, start, stop, n):
    ...         for k in range(start, stop):
    ...             i = n - 1 - k % n
    ...             yield i, i + 1
    >>> x = torch.zeros(6, requires_grad=True)
    >>> slopes = torch.arange(1.0, 7.0)
    >>> optimizer = cocd.CoCD(
    ...     [x], lr=0.1, compute_budget=2, memory_budget=3, schedule=Backwards()
    ... )
    >>> for _ in range(2):
    ...     loss = optimizer.step(lambda: slopes @ x)
    >>> optimizer.estimate().round().tolist()  # 6 has had its time
    [0.0, 0.0, 3.0, 4.0, 5.0, 0.0]
    """

    # True: the same coordinate may come again before n others have. It costs a search for older
    # estimates of it, at every step, where fewer than n are remembered.
    repeats: bool = True
    ascending: bool = False  # a block is probed in the order of the flat vector
    recalls: bool = True  # `order` knows the past, too

    def __init__(self, *sizes: int) -> None:
        self.count = 0  # refreshes so far
        self.sizes: tuple[int, ...] = ()  # of the tensors that make up the flat vector
        self._pieces = [Piece(0, 0, 0)]
        if sizes:
            self.grow(sizes)

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "order" in vars(cls) and "repeats" not in vars(cls):
            cls.repeats = True  # what the parent promised was of its own order

    @abstractmethod
    def order(self, start: int, stop: int, n: int) -> Iterable[Stretch]:
        """The coordinates of the refreshes number ``start:stop`` of `n` coordinates.

        A function of its arguments alone: it is asked for the past as well as for what comes next.
        """

    # --- what follows from it -------------------------------------------------------------------

    @property
    def n(self) -> int:
        """The number of coordinates."""
        return self._pieces[-1].n

    @property
    def size(self) -> int:
        """How many of them are visited; fewer than n for an order on a subset."""
        return self.n

    @property
    def done(self) -> float:
        """How often the coordinates that are visited now could have been swept so far."""
        return self.count / self.size

    def next(self, budget: int) -> list[Stretch]:
        """The next `budget` coordinates; changes nothing."""
        return list(self.refreshed(self.count, self.count + budget))

    def advance(self, budget: int) -> None:
        """The proposed coordinates have been refreshed."""
        self.count += budget

    def refreshed(self, start: int, stop: int) -> Iterator[Stretch]:
        """The coordinates of the refreshes number ``start:stop``, past or to come."""
        ends = [piece.start for piece in self._pieces[1:]] + [stop]
        for piece, end in zip(self._pieces, ends, strict=True):
            first, last = max(start, piece.start), min(end, stop)
            if first < last:
                shift = piece.cursor - piece.start
                yield from self.order(first + shift, last + shift, piece.n)

    def prepared(
        self, budget: int, weights: Callable[[], Tensor], slopes: Callable[[], Tensor]
    ) -> Schedule:
        """The schedule that the next block is taken from: this one, or a copy that has chosen.

        `weights` and `slopes` give the flat parameters and the estimate, for orders that choose by
        them. Nothing is changed, because the step may still fail.
        """
        return self

    def voids(self, budget: int) -> bool:
        """Whether what is remembered is forgotten before the next block is."""
        return False

    def settled(self, start: int) -> bool:
        """Whether all refreshes from `start` on were of as many coordinates as there are now."""
        return start >= self._pieces[-1].start

    def grow(self, sizes: Sequence[int]) -> None:
        """Tensors of these sizes make up the flat vector; those that are new are at its end."""
        last = self._pieces[-1]
        cursor = (last.cursor + self.count - last.start) % last.n if last.n else 0
        if self.count == last.start:  # nothing refreshed in that piece: it never was
            self._pieces.pop()
        self.sizes = tuple(sizes)
        self._pieces.append(Piece(self.count, cursor, sum(sizes)))

    # --- saving ---------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Where the order stands."""
        return {"count": self.count, "sweeps": [list(piece) for piece in self._pieces]}

    def load_state_dict(self, state: State) -> None:
        """Go on from there; the tensors are known already."""
        self.count = int(state["count"])
        self._pieces = [Piece(*map(int, piece)) for piece in state["sweeps"]]


def check_schedule(schedule: object, memory: int | None) -> Schedule:
    """A schedule that can be used with a memory of this size."""
    if not isinstance(schedule, Schedule):
        raise ValueError(
            f"schedule must be a cocd.schedules.Schedule, such as Cyclic(), got {schedule!r}"
        )
    if memory is not None and not schedule.recalls:
        raise ValueError(
            f"memory_budget={memory} needs a schedule that can reconstruct its past, which "
            f"{type(schedule).__name__} cannot; use memory_budget=None, or another schedule"
        )
    return schedule


def stretches(coordinates: Tensor, positions: Iterable[Stretch]) -> Iterator[Stretch]:
    """The coordinates at these positions of a list of them; neighbours make one stretch.

    >>> list(stretches(torch.tensor([2, 3, 7]), [(0, 3)]))
    [(2, 4), (7, 8)]
    """
    for start, stop in positions:
        part = coordinates[start:stop]
        cuts = (part.diff() != 1).nonzero().flatten() + 1
        for run in torch.tensor_split(part, cuts):
            if len(run):
                yield int(run[0]), int(run[-1]) + 1


def largest_in(scores: Tensor, count: int) -> Tensor:
    """The positions of the largest numbers, ascending; of equal ones the first.

    >>> largest_in(torch.tensor([1.0, 5.0, 5.0, 5.0]), 2)
    tensor([1, 2])
    """
    order = scores.detach().double().cpu().sort(descending=True, stable=True).indices
    return order[:count].sort().values
