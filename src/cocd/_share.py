"""How many coordinates may move at once, judged by what a search leaves of their steps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

_FIRST = 3  # sweeps; in those before, lengths are still near where the search began
# What the search leaves, on average, of the step that the trust radius allows: above the one a
# larger block is no worse, below the other a smaller one is better.
_FREE, _CROWDED = 0.8, 0.5


@dataclass
class Room:
    """The mean length of a sweep's steps, 1 being all that the trust radius allows.

    Where the search takes next to all of it, the radius bounds the block and not the way in which
    its coordinates interact: more of them may move at once. `budget` is what was found.

    >>> room = Room(64)
    >>> for length, sweeps in ((0.9, 1), (0.9, 2), (0.9, 3), (0.9, 3.5), (0.9, 4), (0.3, 5)):
    ...     room.learn(length, sweeps, least=64, most=1000)
    ...     print(room.budget, end=" ")
    64 64 64 64 128 64
    """

    budget: int
    total: float = 0.0
    count: int = 0
    sweep: int = 0
    seen: int = 0  # whole sweeps

    def learn(self, length: float, sweeps: float, *, least: int, most: int) -> None:
        """A step's length, `sweeps` in all being done."""
        self.total, self.count = self.total + length, self.count + 1
        now = int(sweeps)
        if now == self.sweep:
            return
        mean, whole = self.total / self.count, now == self.sweep + 1
        self.total, self.count, self.sweep = 0.0, 0, now
        if not whole:  # steps in between had no length, or there are more coordinates now
            return
        self.seen += 1
        if self.seen > _FIRST:
            factor = 2.0 if mean > _FREE else 0.5 if mean < _CROWDED else 1.0
            self.budget = min(max(int(self.budget * factor), least), most)

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)
