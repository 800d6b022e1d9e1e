"""Ctrl-C and SIGTERM: once to finish the iteration and save, twice to stop at once.

A job that is preempted gets SIGTERM and is killed soon after, so that an iteration which does not
end in time is given up: the checkpoint before it is good, and a resume goes on from there.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

PATIENCE_S = 12.0
"""How long an iteration may still run after SIGTERM; closing Ray takes a few seconds more."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_S = 0.05


class Interrupts:
    """While entered, the first signal only sets `requested`; the second raises KeyboardInterrupt.

    Before `begin` there is nothing to finish: there the first one raises. Python drops an exception that
    a signal raises inside a finaliser or a callback of C code; such a one is raised again right after.

    :param tell: called with one line for the console at the first signal; it says `plan`, what is done then
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.requested = ""
        self.reason = ""
        self.tell = tell
        self.plan = "finishing this iteration, then saving a checkpoint"
        self._begun = False
        self._closing = False
        self._late_signals = 0
        self._previous: dict[int, Any] = {}
        self._hook = sys.unraisablehook
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Interrupts:
        self._listen()
        self._hook, sys.unraisablehook = sys.unraisablehook, self._dropped
        return self

    def __exit__(self, *exc: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        sys.unraisablehook = self._hook
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def begin(self) -> None:
        """From now on there is an iteration to finish; Ray, which takes over the signals, has started.

        :raises KeyboardInterrupt: a signal came before, and somebody caught what it raised
        """
        self._listen()
        if self.reason:
            raise KeyboardInterrupt
        self._begun = True

    def saving(self) -> None:
        """The iteration has ended in time; a checkpoint that is being written is not given up."""
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """All is saved and told, only Ray is being closed: a signal is not worth a traceback any more."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()

    def _listen(self) -> None:
        # Python delivers signals to the main thread only; elsewhere (a notebook cell run in a
        # thread) the caller keeps its own handling.
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                previous = signal.signal(number, self._handle)
                self._previous.setdefault(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._closing:
            self._late_signals += 1
            if self._late_signals > 1:
                os._exit(128 + number)  # Ray's processes end with this one
            return
        if self.requested or not self._begun:
            when = "at once" if self._begun else "before it began"
            self.reason = self.reason or f"{name}, {when}"
            raise KeyboardInterrupt
        self.requested = name
        again = "again: stop now" if number == signal.SIGINT else f"within {PATIENCE_S:.0f} s"
        line = f"{name}: {self.plan} ({again})"
        # From another thread: the handler may have interrupted the display in the middle of a frame.
        threading.Thread(target=self.tell, args=(line,), daemon=True).start()
        if number == signal.SIGTERM:
            self._timer = threading.Timer(PATIENCE_S, self._give_up)
            self._timer.daemon = True
            self._timer.start()

    def _dropped(self, dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, SystemExit) and not self._begun:  # of Ray's handler, while it starts
            self.reason = self.reason or "SIGTERM, before it began"
        elif not self.reason or not issubclass(dropped.exc_type, KeyboardInterrupt):
            self._hook(dropped)
            return
        if not self._closing:
            again = threading.Timer(_AGAIN_S, signal.pthread_kill, (_main(), signal.SIGINT))
            again.daemon = True
            again.start()

    def _give_up(self) -> None:
        late = f"the iteration did not end within {PATIENCE_S:.0f} s"
        self.reason = f"SIGTERM; {late} and is done again on resume"
        signal.pthread_kill(_main(), signal.SIGTERM)


def _main() -> int:
    return threading.main_thread().ident or 0
