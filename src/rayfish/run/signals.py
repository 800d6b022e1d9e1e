"""Ctrl-C and SIGTERM: once to finish the iteration and save, twice to stop at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered, the first signal only sets `requested`; the second raises KeyboardInterrupt.

    :param tell: called with one line for the console at the first signal
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.requested = ""
        self._tell = tell
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        # Python delivers signals to the main thread only; elsewhere (a notebook cell run in a
        # thread) the caller keeps its own handling.
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = signal.Signals(number).name
        again = "again: stop now" if number == signal.SIGINT else "SIGINT: stop now"
        line = f"{self.requested}: finishing this iteration, then saving a checkpoint ({again})"
        # From another thread: the handler may have interrupted the display in the middle of a frame.
        threading.Thread(target=self._tell, args=(line,), daemon=True).start()
