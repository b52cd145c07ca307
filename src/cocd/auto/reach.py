"""How far coordinates may move in one step: further if this limit ends steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..parts.types import State
from .config import AutoConfig

_LONGEST = 1e9  # times the first reach


@dataclass
class Reach:
    """Settles where a fifth of all steps end at the limit, and never below the first one.

    >>> reach = Reach()
    >>> for _ in range(20):
    ...     reach.observe(limited=True)
    >>> round(reach.value)
    38
    """

    value: float = 1.0  # factor on the reach
    config: AutoConfig = field(default=AutoConfig(), repr=False)

    def observe(self, limited: bool) -> None:
        """Record whether a search ended at the limit."""
        grow, share = self.config.reach_growth, self.config.limited
        if limited:
            self.value = min(_LONGEST, self.value * grow)
        else:
            self.value = max(1.0, self.value * grow ** (-share / (1 - share)))

    def reset(self) -> None:
        self.value = 1.0

    def state_dict(self) -> State:
        return {"value": self.value}

    @classmethod
    def from_state(cls, saved: State, config: AutoConfig) -> Reach:
        return cls(float(saved["value"]), config)
