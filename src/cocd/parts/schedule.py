"""Which coordinates next. A schedule proposes a block; it moves on only when told to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

Stretch = tuple[int, int]  # start:stop of the flat vector


class Schedule(Protocol):
    """What an optimizer asks of a coordinate order."""

    @property
    def n(self) -> int: ...

    def next(self, budget: int) -> list[Stretch]:
        """The next `budget` coordinates, as stretches of the flat vector; changes nothing."""

    def advance(self, budget: int) -> None:
        """The proposed coordinates have been refreshed."""

    def grow(self, n: int) -> None:
        """Coordinates have been added at the end of the flat vector."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Sweep(NamedTuple):
    """From the `start`-th refresh on, the order runs cyclically over `n` from `cursor`."""

    start: int
    cursor: int
    n: int


class Cyclic:
    """The paper's order, i <- (i mod n) + 1 (section 3.2).

    One counter says it all: with `count` coordinates refreshed so far the next one is
    ``count mod n``. Coordinates that join later make a second sweep with its own start, so that
    the order of the past, and with it what the memory holds, stays known.
    """

    gone = 0  # refreshes before the first that is counted

    def __init__(self, n: int) -> None:
        self.count = 0
        self.sweeps = [Sweep(0, 0, n)]

    @property
    def n(self) -> int:
        return self.sweeps[-1].n

    @property
    def done(self) -> float:
        """How often the coordinates that there are now could have been swept so far."""
        return (self.gone + self.count) / self.n

    def next(self, budget: int) -> list[Stretch]:
        return list(self.order(self.count, self.count + budget))

    def advance(self, budget: int) -> None:
        self.count += budget

    def order(self, start: int, stop: int) -> Iterator[Stretch]:
        """The coordinates of the refreshes number ``start:stop``, past or to come."""
        for sweep, end in self._pieces(stop):
            first = max(start, sweep.start)
            position = (sweep.cursor + first - sweep.start) % sweep.n
            while first < end:
                length = min(end - first, sweep.n - position)
                yield position, position + length
                first, position = first + length, 0

    def seen(self, count: int, before: Callable[[int], int]) -> int:
        """How many of the first `count` refreshes were of the coordinates that `before` counts."""
        total = 0
        for sweep, end in self._pieces(count):
            laps, position = divmod(sweep.cursor + end - sweep.start, sweep.n)
            total += laps * before(sweep.n) + before(position) - before(sweep.cursor)
        return total

    def grow(self, n: int) -> None:
        last = self.sweeps[-1]
        cursor = (last.cursor + self.count - last.start) % last.n if last.n else 0
        if self.count == last.start:  # nothing refreshed in that sweep: it never was
            self.sweeps.pop()
        self.sweeps.append(Sweep(self.count, cursor, n))

    def forget(self, keep: int) -> None:
        """Number the refreshes from the oldest of the last `keep` on."""
        gone = self.count - keep
        self.count, self.gone = keep, self.gone + gone
        pieces = []
        for i, sweep in enumerate(self.sweeps):
            nxt = self.sweeps[i + 1].start if i + 1 < len(self.sweeps) else None
            if nxt is not None and nxt <= gone:
                continue
            skip = max(0, gone - sweep.start)
            pieces.append(
                Sweep(sweep.start + skip - gone, (sweep.cursor + skip) % sweep.n, sweep.n)
            )
        self.sweeps = pieces

    def _pieces(self, stop: int) -> Iterator[tuple[Sweep, int]]:
        for i, sweep in enumerate(self.sweeps):
            end = self.sweeps[i + 1].start if i + 1 < len(self.sweeps) else stop
            if sweep.start < (end := min(end, stop)):
                yield sweep, end

    def state_dict(self) -> dict[str, Any]:
        sweeps = [list(sweep) for sweep in self.sweeps]
        return {"count": self.count, "gone": self.gone, "sweeps": sweeps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count, self.gone = int(state["count"]), int(state.get("gone", 0))
        self.sweeps = [Sweep(*map(int, sweep)) for sweep in state["sweeps"]]


class Spread(Cyclic):
    """The cyclic order with a long stride: the coordinates of a block lie far apart.

    Neighbours in the flat vector belong to the same unit or filter, and what one of them is worth
    depends on the others. The k-th refresh is of coordinate ``k stride mod n``, with a stride near
    n over the golden ratio that has no divisor in common with n: every coordinate once a sweep, any
    few in a row spread evenly, and nothing to remember.
    """

    @property
    def stride(self) -> int:
        stride = max(1, round(self.n * 0.6180339887498949))
        while gcd(stride, self.n) != 1:
            stride += 1
        return stride

    def next(self, budget: int) -> list[Stretch]:
        last, stride = self.sweeps[-1], self.stride
        first = last.cursor + self.count - last.start
        drawn = sorted((k * stride) % self.n for k in range(first, first + budget))
        found: list[Stretch] = []
        for i in drawn:
            if found and found[-1][1] == i:
                found[-1] = (found[-1][0], i + 1)
            else:
                found.append((i, i + 1))
        return found


class Random:
    """`budget` distinct coordinates, drawn afresh each time."""

    def __init__(self, n: int, seed: int) -> None:
        self._n = n
        self._generator = torch.Generator().manual_seed(seed).get_state()

    @property
    def n(self) -> int:
        return self._n

    def next(self, budget: int) -> list[Stretch]:
        drawn, _ = self._draw(budget)
        return [(i, i + 1) for i in drawn]

    def advance(self, budget: int) -> None:
        _, self._generator = self._draw(budget)

    def grow(self, n: int) -> None:
        self._n = n

    def _draw(self, budget: int) -> tuple[list[int], Tensor]:
        # Floyd's sampling: O(budget) numbers, where a permutation would take n.
        generator = torch.Generator()
        generator.set_state(self._generator)
        uniform = torch.rand(budget, generator=generator, dtype=torch.float64).tolist()
        chosen: set[int] = set()
        for j, u in zip(range(self.n - budget, self.n), uniform, strict=True):
            i = int(u * (j + 1))
            chosen.add(j if i in chosen else i)
        return sorted(chosen), generator.get_state()

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n, "generator": self._generator.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._n = int(state["n"])
        self._generator = state["generator"].clone()
