"""How many coordinates may move at once: as many as hardly get into each other's way."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

_FIRST = 3  # sweeps; in those before, lengths are still near where the search began
_ALONE = 0.8  # of its own best move: what is left to a coordinate when the whole block moves


@dataclass
class Room:
    """The mean length of a sweep's steps, as multiples of what each coordinate alone would do.

    Near 1 coordinates do not interact, and a larger block would do as well: its losses are
    measured on fewer, so less noisy, mini-batches, and fewer whole passes are made.

    >>> room = Room()
    >>> [room.is_left(length, sweeps) for length, sweeps in ((0.9, 3.5), (0.9, 4.0), (0.5, 5.0))]
    [False, True, False]
    """

    total: float = 0.0
    count: int = 0
    sweep: int = 0

    def is_left(self, length: float, sweeps: float) -> bool:
        """Learn the length of a step, the last of so many sweeps; at the end of one, say."""
        self.total, self.count = self.total + length, self.count + 1
        if int(sweeps) == self.sweep:
            return False
        mean = self.total / self.count
        self.total, self.count, self.sweep = 0.0, 0, int(sweeps)
        return self.sweep > _FIRST and mean > _ALONE

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)
