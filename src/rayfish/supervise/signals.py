"""Ctrl-C, SIGTERM and SIGHUP: once to finish the iteration and save, twice to stop at once.

A job that is preempted gets SIGTERM and is killed soon after, so that an iteration which does not
end in time is given up: the checkpoint before it is good, and a resume goes on from there. SIGHUP, of a
terminal that was closed, is treated like SIGTERM, unless it is ignored (`nohup`); shell and kernel may both
send one, so that a second one means nothing.
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

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.05
_received = 0
"""The first signal that asked this process to end."""


def exit_code() -> int:
    """What shells expect of a program that a signal ended: 130 (Ctrl-C), 143 (SIGTERM) or 129 (SIGHUP)."""
    return 128 + (_received or signal.SIGINT)


def was_asked_to_end() -> bool:
    """Whether a signal has asked this process to end."""
    return bool(_received)


def handle(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Lets `handler` take the signals that end a run; gives the handlers before it.

    Python delivers signals to the main thread only; elsewhere (a notebook cell run in a thread) the caller
    keeps its own handling. SIGHUP stays ignored where `nohup` has it so.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    wanted = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in wanted}


def ignore(number: int, frame: FrameType | None) -> None:
    """A handler that does nothing; unlike `SIG_IGN`, programs that are started here do not inherit it."""


def note(number: int) -> None:
    """Remember a signal for `exit_code`."""
    global _received
    _received = _received or number


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
        """From now on there is an iteration to finish; Ray, which takes over the signals, has started."""
        self._listen()
        if self.reason:
            raise KeyboardInterrupt
        self._begun = True

    def saving(self) -> None:
        """The iteration has ended in time; a checkpoint that is being written is not given up."""
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Everything is saved and only Ray is being closed: a signal causes no traceback any more."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()

    def _listen(self) -> None:
        for number, previous in handle(self._handle).items():
            self._previous.setdefault(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        note(number)
        if number == signal.SIGHUP and (self._closing or self.requested or self.reason):
            return
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
        if number != signal.SIGINT:
            self._timer = threading.Timer(PATIENCE_S, self._give_up)
            self._timer.daemon = True
            self._timer.start()

    def _dropped(self, dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, SystemExit) and not self._begun:  # of Ray's handler, while it starts
            note(signal.SIGTERM)
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
        self.reason = f"{self.requested}; {late} and is done again on resume"
        signal.pthread_kill(_main(), signal.SIGTERM)


def _main() -> int:
    return threading.main_thread().ident or 0
