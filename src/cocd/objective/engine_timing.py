"""Whether an engine pays: the time of a probe against an evaluation of the closure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from torch import Tensor

# With fewer probes, or less time, there is too little to compare, or to gain.
_PROBES, _SECONDS = 32, 0.02


@dataclass
class EngineTiming:
    """The fastest probe and the fastest evaluation seen; the decision is made once.

    Measures processor time of this thread, which other programs do not affect; on other devices,
    wall time.
    """

    probes: int = 0
    seconds: float = 0.0
    probe: float = inf  # the fastest, of calls that made many
    evaluation: float = inf
    decided: bool = False

    @contextmanager
    def probing(self, probes: int, tensor: Tensor) -> Iterator[None]:
        """The code inside answers this many probes."""
        started = now(tensor)
        yield
        if self.decided or not probes:  # the decision stays
            return
        spent = now(tensor) - started
        self.probes += probes
        self.seconds += spent
        self.probe = min(self.probe, spent / probes)

    @contextmanager
    def evaluating(self, count: int, tensor: Tensor) -> Iterator[None]:
        """The code inside calls the closure this many times."""
        started = now(tensor)
        yield
        if not self.decided:
            self.evaluation = min(self.evaluation, (now(tensor) - started) / count)

    @property
    def is_due(self) -> bool:
        """Whether there is enough data to decide."""
        return not self.decided and self.probes >= _PROBES and self.seconds >= _SECONDS

    @property
    def gain(self) -> float | None:
        """Time of an evaluation over time of a probe; None before both are known."""
        known = 0 < self.probe < inf and 0 < self.evaluation < inf
        return self.evaluation / self.probe if known else None


def now(tensor: Tensor) -> float:
    """The relevant clock for this tensor's device."""
    return time.thread_time() if tensor.is_cpu else time.perf_counter()
