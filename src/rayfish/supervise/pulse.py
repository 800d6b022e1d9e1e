"""What this process does with its environments: since when a call runs, and how many came back.

One thread per worker process (`watch`) ends it when a call hangs, so that Ray starts another, and
lets the driver hear every few seconds that work is being done. In the driver `run.watch` looks at
the same figures itself.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rayfish.experiment.experiment import Experiment

PAUSE_S = 30.0
"""A round of a watching thread that takes so much longer than it should: the process was stopped."""

BEAT = "rayfish.beat"
"""The logger by which the driver hears that a worker gets on; shown nowhere."""

FAULT = __name__
"""The logger by which the driver hears what ended a worker."""

_OURS = str(Path(__file__).resolve().parent.parent)
_LIBRARY = ("site-packages", "dist-packages", "/lib/python3", "<frozen", "<string>")


@dataclass(frozen=True)
class Patience:
    """How long to wait for what (the `fault_tolerance` section); None for any time.

    :param env_timeout_s: one call into an environment
    :param no_progress_s: neither a step nor an update anywhere
    """

    env_timeout_s: float | None = 300.0
    no_progress_s: float | None = 300.0

    @classmethod
    def of(cls, experiment: Experiment) -> Patience:
        """What an experiment says."""
        values = (
            experiment.get(f"fault_tolerance.{key}") for key in ("env_timeout_s", "no_progress_timeout_s")
        )
        return cls(*(None if value is None else float(value) for value in values))

    @property
    def beat_s(self) -> float:
        """How often a worker lets the driver hear that it gets on."""
        return min(10.0, (self.no_progress_s or 40.0) / 4)


class Call(NamedTuple):
    """A call into an environment that has not come back: when it began, its guard, and what was called."""

    since: float
    env: Any
    method: str


class Pulse:
    """The figures of one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.running: dict[int, Call] = {}
        self.finished = 0
        self.woken = 0.0
        self.watching = False
        self.voices: list[logging.Handler] = []
        self.give_up: Callable[[str, str], None] = leave


def leave(what: str, hint: str) -> None:
    """Ends this worker process with its reason; Ray starts another one in its place."""
    _say(logging.ERROR, FAULT, f"{what}\n{hint}")
    time.sleep(1.0)  # the message is still on its way to the driver
    os._exit(1)


_pulse = Pulse()


def pulse() -> Pulse:
    """The figures of this very process; a forked child begins again."""
    global _pulse
    if _pulse.pid != os.getpid():
        _pulse = Pulse()
    return _pulse


def alive(*_: object) -> None:
    """Something was finished: a step, or an update of a network."""
    _pulse.finished += 1


def hanging(timeout_s: float | None, others: Collection[int] = ()) -> tuple[str, str] | None:
    """What hangs and the next step, when a call of this process has been running for longer than that.

    :param others: threads that somebody else looks after
    """
    if timeout_s is None:
        return None
    for thread, call in list(_pulse.running.items()):
        if thread not in others and time.monotonic() - max(call.since, _pulse.woken) > timeout_s:
            return _told(thread, call, timeout_s)
    return None


def noticed_pause(before: float, every: float) -> float:
    """The time now; after a pause of the whole process (Ctrl-Z, a stopped container) waiting begins again.

    :param before: when the watching thread's last round began
    :param every: how long a round takes
    """
    now = time.monotonic()
    if now - before > every + PAUSE_S:
        _pulse.woken = now
    return now


def watch(patience: Patience) -> None:
    """Starts this process's watchdog thread, once: it ends the process when a call hangs."""
    mine = pulse()
    if not mine.watching:
        mine.watching = True
        mine.voices = list(logging.getLogger().handlers)
        threading.Thread(target=_watch, args=(mine, patience), name="rayfish-pulse", daemon=True).start()


def _watch(mine: Pulse, patience: Patience) -> None:
    timeout_s, beat_s = patience.env_timeout_s, patience.beat_s
    every = min(1.0, beat_s, (timeout_s or 5.0) / 5)
    heard, told, before = -1, 0.0, time.monotonic()
    while True:
        time.sleep(every)
        before = noticed_pause(before, every)
        found = hanging(timeout_s)
        if found is not None:
            mine.give_up(*found)
        # A call that is running counts as life: how long it may run is the timeout's business.
        if time.monotonic() - told >= beat_s and (mine.finished != heard or mine.running):
            heard, told = mine.finished, time.monotonic()
            _say(logging.INFO, BEAT, str(heard))


def _say(level: int, logger: str, text: str) -> None:
    """To the driver, whatever user code has made of the levels and handlers of `logging` since."""
    record = logging.LogRecord(logger, level, __file__, 0, text, None, None)
    for handler in _pulse.voices or logging.getLogger().handlers:
        handler.handle(record)


def _told(thread: int, call: Call, timeout_s: float) -> tuple[str, str]:
    where = user_line(sys._current_frames().get(thread))
    cls, _, _ = source_of(call.env.env, call.method)
    what = (
        f"{call.method}() of {cls} has not come back for {timeout_s:g} s, "
        f"in step {call.env.episode_step} of the episode"
    )
    hint = "fault_tolerance.env_timeout_s says how long a call may take (null: any time)"
    if where:
        what += f"; it stands at {where.rpartition('/')[2]}"
        hint = f"look at {where.partition(' in ')[0]}; {hint}"
    return what, hint


def source_of(env: Any, method: str) -> tuple[str, str, int]:
    """The user's class, its file and the line where `method` is defined ("" and 0 when unknown)."""
    layer, outer = env, None
    while layer is not None and layer is not outer:
        code = getattr(getattr(type(layer), method, None), "__code__", None)
        if code is not None and not is_library(code.co_filename):
            return type(layer).__name__, code.co_filename, code.co_firstlineno
        layer, outer = getattr(layer, "env", None), layer
    return type(getattr(env, "unwrapped", env)).__name__, "", 0


def user_line(frame: FrameType | None) -> str:
    """Where the user's own code stands in a stack: `file:line in function`, "" when nowhere."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_library(file):
            return f"{file}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def is_library(file: str) -> bool:
    """Whether a source file is Python's, an installed package's or ours, and not the user's."""
    return file.startswith((_OURS, "<")) or any(part in file for part in _LIBRARY)
