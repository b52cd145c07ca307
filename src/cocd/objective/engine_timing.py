"""Is an engine worth it? A probe's time beside that of an evaluation of the closure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from torch import Tensor

# Before that many probes that have taken that long there is too little to tell from, or to gain.
_PROBES, _SECONDS = 32, 0.02


@dataclass
class EngineTiming:
    """The fastest probe and the fastest evaluation that were seen; decided on once.

    What is measured is the processor's time of this thread, in which others on the machine have no
    part; of other devices the time on the clock.
    """

    probes: int = 0
    seconds: float = 0.0
    probe: float = inf  # the fastest, of calls that made many
    evaluation: float = inf
    decided: bool = False

    @contextmanager
    def probing(self, probes: int, tensor: Tensor) -> Iterator[None]:
        """What is done inside answers so many probes."""
        started = now(tensor)
        yield
        if self.decided or not probes:  # what was decided on stays as it was
            return
        spent = now(tensor) - started
        self.probes += probes
        self.seconds += spent
        self.probe = min(self.probe, spent / probes)

    @contextmanager
    def evaluating(self, count: int, tensor: Tensor) -> Iterator[None]:
        """What is done inside calls the closure so many times."""
        started = now(tensor)
        yield
        if not self.decided:
            self.evaluation = min(self.evaluation, (now(tensor) - started) / count)

    @property
    def is_due(self) -> bool:
        """Is there enough to decide on?"""
        return not self.decided and self.probes >= _PROBES and self.seconds >= _SECONDS

    @property
    def gain(self) -> float | None:
        """How many probes the time of an evaluation holds; None before both are known."""
        known = 0 < self.probe < inf and 0 < self.evaluation < inf
        return self.evaluation / self.probe if known else None


def now(tensor: Tensor) -> float:
    """The seconds that count where this tensor lives."""
    return time.thread_time() if tensor.is_cpu else time.perf_counter()
