"""Delay SIGTERM until the run has been saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from ..parts.interrupts import Interrupts


class Termination:
    """A context in which SIGTERM interrupts like Ctrl-C; the process ends when the context does.

    It acts only if SIGTERM has its default handler, and only in the main thread, which receives
    signals.
    """

    def __init__(self, interrupts: Interrupts, wanted: bool) -> None:
        self._interrupts, self._wanted = interrupts, wanted
        self._installed = False
        self.asked = False

    def __enter__(self) -> Termination:
        if (
            self._wanted
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        ):
            signal.signal(signal.SIGTERM, self._handle)
            self._installed = True
        return self

    def __exit__(self, *error: object) -> None:
        if self._installed:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if self.asked:
                signal.raise_signal(signal.SIGTERM)

    def deliver(self) -> None:
        """Raise KeyboardInterrupt if SIGTERM has arrived; call it between complete operations."""
        if self.asked:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if self._interrupts.window:
            self._interrupts.window = False  # a second signal must not cut the unwinding short
            raise KeyboardInterrupt
