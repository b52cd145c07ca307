"""Let Ctrl-C interrupt the objective, but never a change of state."""

from __future__ import annotations

import threading

# The functions of `signal` convert numbers to enums and back, which takes ten times as long.
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found]
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """While entered, SIGINT is handled only while ``window`` is True; otherwise it waits.

    A KeyboardInterrupt inside a ``finally`` would leave a weight perturbed; one between the updates
    of two tensors would leave a step half done. Only the main thread receives signals, so in other
    threads this does nothing.
    """

    def __init__(self) -> None:
        self.window = False
        self.waiting: tuple[int, FrameType | None] | None = None
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            previous = getsignal(SIGINT)
            if callable(previous):  # SIG_DFL and SIG_IGN raise nothing
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
        """Allow SIGINT inside, where no state changes."""
        self.deliver()
        self.window = True
        try:
            yield
        finally:
            self.window = False

    def deliver(self) -> None:
        """Raise a waiting SIGINT; call this where an exception leaves no change half done."""
        if self.waiting is not None:
            waiting, self.waiting = self.waiting, None
            self._previous(*waiting)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.window:
            self.window = False  # a second signal must not cut the unwinding short
            self._previous(number, frame)
        else:
            self.waiting = (number, frame)
