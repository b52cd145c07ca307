"""Ctrl-C and SIGTERM as a wish: the step at hand is finished and saved first."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Wish:
    """While entered, the first signal sets `asked`; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.asked = False
        self.code = 0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Wish:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked, self.code = True, 128 + number
