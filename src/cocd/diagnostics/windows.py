"""Records over time in bounded memory: as a run grows longer, its windows grow wider."""

from __future__ import annotations

import numpy as np
import torch

from ..parts.types import State
from .moments import COLUMNS, Array, merge, quotient, report, total


class Window:
    """Some consecutive steps: moments for each tensor, and the norms of the steps."""

    def __init__(self, start: int) -> None:
        self.start = start  # number of its first step
        self.steps = 0
        self.norms = 0  # how many steps are in the sum: a first step has no norm
        self.norm_sum = 0.0
        self.norm_max = 0.0
        self.table: Array = np.zeros((0, COLUMNS))  # one row for each tensor

    def add(self, rows: list[tuple[int, Array]], norm: float | None) -> None:
        """One step: rows of the tensors that were refreshed, and how far it went."""
        self.steps += 1
        if norm is not None:
            self.norms, self.norm_sum = self.norms + 1, self.norm_sum + norm
            self.norm_max = max(self.norm_max, norm)
        self._widen(1 + max((t for t, _ in rows), default=-1))
        for t, row in rows:
            self.table[t] = merge(self.table[t], row)

    def followed_by(self, other: Window) -> Window:
        """This window and the next one as one."""
        both = Window(self.start)
        both.steps, both.norms = self.steps + other.steps, self.norms + other.norms
        both.norm_sum = self.norm_sum + other.norm_sum
        both.norm_max = max(self.norm_max, other.norm_max)
        self._widen(len(other.table))
        other._widen(len(self.table))
        both.table = merge(self.table, other.table)
        return both

    def _widen(self, tensors: int) -> None:
        missing = tensors - len(self.table)
        if missing > 0:
            self.table = np.concatenate([self.table, np.zeros((missing, COLUMNS))])

    def report(self, names: list[str]) -> State:
        """All in plain numbers."""
        return {
            **report(total(self.table)),
            "step_norm": quotient(self.norm_sum, self.norms),
            "step_max": quotient(self.norm_max, 1.0) if self.norms else None,
            "steps": self.steps,
            "by_tensor": {name: report(row) for name, row in zip(names, self.table, strict=False)},
        }

    def state_dict(self) -> State:
        state = {name: value for name, value in vars(self).items() if name != "table"}
        return {**state, "table": torch.from_numpy(self.table.copy())}

    @classmethod
    def from_state(cls, state: State) -> Window:
        window = cls(int(state["start"]))
        window.steps, window.norms = int(state["steps"]), int(state["norms"])
        window.norm_sum, window.norm_max = float(state["norm_sum"]), float(state["norm_max"])
        window.table = state["table"].numpy().copy()
        return window


class Windows:
    """At most `keep` windows of `length` steps; when they are full, neighbours become one."""

    def __init__(self, length: int, keep: int) -> None:
        self.length = length
        self.keep = keep
        self.closed: list[Window] = []
        self.open = Window(1)

    def add(self, rows: list[tuple[int, Array]], norm: float | None) -> None:
        self.open.add(rows, norm)
        if self.open.steps < self.length:
            return
        self.closed.append(self.open)
        self.open = Window(self.open.start + self.open.steps)
        if len(self.closed) == self.keep:
            halves = zip(self.closed[::2], self.closed[1::2], strict=True)
            self.closed = [first.followed_by(second) for first, second in halves]
            self.length *= 2

    def all(self) -> list[Window]:
        return [*self.closed, self.open] if self.open.steps else list(self.closed)

    def whole(self) -> Window:
        whole = Window(self.closed[0].start if self.closed else self.open.start)
        for window in self.all():
            whole = whole.followed_by(window)
        return whole

    def state_dict(self) -> State:
        return {
            "length": self.length,
            "keep": self.keep,
            "closed": [window.state_dict() for window in self.closed],
            "open": self.open.state_dict(),
        }

    @classmethod
    def from_state(cls, state: State) -> Windows:
        windows = cls(int(state["length"]), int(state["keep"]))
        windows.closed = [Window.from_state(window) for window in state["closed"]]
        windows.open = Window.from_state(state["open"])
        return windows
