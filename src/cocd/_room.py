"""How many coordinates may move at once: as many as hardly get into each other's way."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

_FIRST = 3  # sweeps; in those before, lengths are still near where the search began
# Of its own best move, what is left to a coordinate when the whole block moves: above the one a
# larger block would do as well, below the other a smaller one does better.
_ALONE, _CROWDED = 0.8, 0.5


@dataclass
class Room:
    """The mean length of a sweep's steps, as multiples of what each coordinate alone would do.

    Near 1 coordinates do not interact, and a larger block does as well: its slopes are measured on
    fewer mini-batches, and fewer whole passes are made.

    >>> room = Room()
    >>> [room.factor(length, sweeps) for length, sweeps in ((0.9, 3.5), (0.9, 4), (0.3, 5))]
    [1.0, 2.0, 0.5]
    """

    total: float = 0.0
    count: int = 0
    sweep: int = 0

    def factor(self, length: float, sweeps: float) -> float:
        """Learn a step's length, `sweeps` in all being done; by what the block may grow now."""
        self.total, self.count = self.total + length, self.count + 1
        if int(sweeps) == self.sweep:
            return 1.0
        mean = self.total / self.count
        self.total, self.count, self.sweep = 0.0, 0, int(sweeps)
        if self.sweep <= _FIRST:
            return 1.0
        return 2.0 if mean > _ALONE else 0.5 if mean < _CROWDED else 1.0

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)
