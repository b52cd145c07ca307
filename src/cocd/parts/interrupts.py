"""Ctrl-C arrives while the objective runs, or waits: never in the middle of a change."""

from __future__ import annotations

import threading

# Those of `signal` turn every number into an enum and back, which takes ten times as long.
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found]
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """While entered, SIGINT is handled only inside ``window``; at other moments it waits.

    A KeyboardInterrupt that lands in a ``finally`` would leave a weight perturbed, one that
    lands between two tensors' updates a step half taken. Only the main thread gets signals, so
    elsewhere this does nothing.
    """

    def __init__(self) -> None:
        self.window = False
        self.waiting: tuple[int, FrameType | None] | None = None
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            previous = getsignal(SIGINT)
            if callable(previous):  # SIG_DFL and SIG_IGN have nothing that could be raised
                self._previous = previous
                signal(SIGINT, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._previous is None:
            return
        previous, self._previous = self._previous, None
        signal(SIGINT, previous)
        if self.waiting is not None and not isinstance(value, KeyboardInterrupt):
            previous(*self.waiting)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """A SIGINT may arrive inside: nothing is changed there."""
        self.deliver()
        self.window = True
        try:
            yield
        finally:
            self.window = False

    def deliver(self) -> None:
        """Let a waiting SIGINT through, at a moment when an exception finds nothing changed."""
        if self.waiting is not None:
            waiting, self.waiting = self.waiting, None
            self._previous(*waiting)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.window:
            self.window = False  # what unwinds from here on must not be cut short again
            self._previous(number, frame)
        else:
            self.waiting = (number, frame)
