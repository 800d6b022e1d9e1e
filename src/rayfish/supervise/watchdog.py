"""A thread that looks after a run: hanging environments, no progress, a Ray that is gone.

What it finds ends the work of the watched thread by an exception inside `section()`. A thread that
does not answer (stuck in C code) is given some seconds; then the run's last words are written and
the process ends. When Ray is gone that happens at once.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from rayfish.errors import RunFailed
from rayfish.supervise.pulse import Patience, noticed_pause, pulse, user_line
from rayfish.supervise.pulse import hanging as hanging_call
from rayfish.supervise.ray_watch import Lifeline
from rayfish.supervise.worker_messages import heard

if TYPE_CHECKING:
    from rayfish.experiment import Experiment

ANSWER_S = 10.0
"""How long the main thread has to react."""

CLOSE_S = 60.0
"""How long a run that has been ended this way has to close its files and Ray."""

# Nobody else's signal: USR1, USR2 and ALRM belong to schedulers and to user code.
_SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2

_live: list[Watch] = []
"""The watches of this process, one per open Trainer; they know nothing of each other."""

_last_words: Callable[[RunFailed], None] | None = None


class Alarm(KeyboardInterrupt):
    """Raised in the watched thread; Ray lets no other exception out of its waiting calls."""


@contextmanager
def spoken_for(last_words: Callable[[RunFailed], None]) -> Iterator[None]:
    """While entered, `last_words` ends the process for a main thread that cannot do so itself."""
    global _last_words
    _last_words = last_words
    try:
        yield
    finally:
        _last_words = None


class Watch:
    """Looks after one run; a context manager that lasts as long as the run and its Ray.

    :param experiment: says how long to wait for what
    """

    def __init__(self, experiment: Experiment) -> None:
        self.reason: RunFailed | None = None
        self.ray_is_lost = False
        self.closing = False
        self._patience = Patience.of(experiment)
        workers = ("rollouts.num_env_runners", "learners.num_learners")
        self._remote = any(experiment.get(key) for key in workers)
        self._lifeline = Lifeline()
        self._thread = threading.get_ident()
        self._depth = 0
        self._expecting = False
        self._alarmed = self._answered = 0.0
        self._progress = self._left = time.monotonic()
        self._finished = -1
        self._over = threading.Event()
        self._speaking = threading.Lock()

    def __enter__(self) -> Watch:
        _live.append(self)
        _listen()
        threading.Thread(target=self._look, name="rayfish-watch", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        _live.remove(self)

    @contextmanager
    def section(self) -> Iterator[None]:
        """Work that may hang; what the watch finds is raised from here."""
        if self.reason is not None:
            self._answer()
            raise self.reason
        if self._depth == 0:
            self._thread = threading.get_ident()
        self._depth += 1
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            if self.reason is None and isinstance(error, Exception):
                self._ray_gone()  # its end shows itself as an exception of some kind, too
            if self.reason is None:
                raise
            self._answer()
            raise self.reason from (None if isinstance(error, Alarm) else error)
        finally:
            self._depth -= 1

    @contextmanager
    def expecting_progress(self) -> Iterator[None]:
        """Work that must make steps or updates; building, saving and loading make none, however long."""
        self._progress += time.monotonic() - self._left  # time outside is not counted
        self._expecting = True
        try:
            yield
        finally:
            self._expecting = False
            self._left = time.monotonic()

    def progress(self) -> None:
        """An iteration got on."""
        self._progress = time.monotonic()

    def works_on(self, thread: int) -> bool:
        """Whether a thread is at present in this watch's section."""
        return self._depth > 0 and self._thread == thread

    def _look(self) -> None:
        limits = [s for s in (self._patience.env_timeout_s, self._patience.no_progress_s) if s]
        every = min(1.0, *(s / 5 for s in limits), 1.0)
        before = time.monotonic()
        while not self._over.is_set():
            self._lifeline.wait(every)
            before = noticed_pause(before, every)
            if self.reason is not None:
                self._press()
            elif not self.closing and not self._ray_gone() and self._depth:
                self._check()
        self._lifeline.close()

    def _check(self) -> None:
        others = [watch._thread for watch in list(_live) if watch is not self and watch._depth]
        found = hanging_call(self._patience.env_timeout_s, others)
        if found is not None:
            self._alarm(RunFailed(*found))
        elif self._expecting:
            self._check_progress()

    def _check_progress(self) -> None:
        now, mine = time.monotonic(), pulse()
        if mine.running or mine.finished != self._finished:
            self._progress, self._finished = now, mine.finished
        self._progress = max(self._progress, heard.last_beat, mine.woken)
        patience = self._patience.no_progress_s
        if patience is None or now - self._progress <= patience or (self._remote and not heard.voices):
            return
        where = user_line(sys._current_frames().get(self._thread))
        stands = f"; the main process stands at {where}" if where else ""
        self._alarm(
            RunFailed(
                f"no environment step and no update was made for {patience:g} s{stands}",
                "log.txt has what workers said last; fault_tolerance.no_progress_timeout_s says how long to "
                "wait (null: for ever)",
            )
        )

    def _ray_gone(self) -> bool:
        lost = self._lifeline.lost()
        if lost:
            self.ray_is_lost = True
            hint = "rayfish doctor looks at the machine; --resume goes on from the last checkpoint"
            self._alarm(RunFailed(lost, hint))
            self._speak()  # at once: Ray ends this process, too, without a word, when it next needs its node
        return bool(lost)

    def _alarm(self, reason: RunFailed) -> None:
        if self.reason is None:
            self.reason = reason

    def _press(self) -> None:
        """Make the watched thread see the reason; when it cannot, speak for it."""
        now = time.monotonic()
        if self._answered:
            if now - self._answered > CLOSE_S:
                self._speak()
        elif self._depth and not self._alarmed:
            self._alarmed = now
            self._interrupt()
        elif self._depth and now - self._alarmed > ANSWER_S:
            self._speak()

    def _answer(self) -> None:
        """The watched thread has seen the reason; when Ray is gone the other thread is ending the process."""
        if self.ray_is_lost:
            self._speak()
        self._answered = time.monotonic()

    def _speak(self) -> None:
        if _last_words is not None and self.reason is not None:
            self._speaking.acquire()  # never released: a second thread waits here for the end
            _last_words(self.reason)

    def _interrupt(self) -> None:
        if self._thread == threading.main_thread().ident and signal.getsignal(_SIGNAL) is _raise:
            signal.pthread_kill(self._thread, _SIGNAL)  # also wakes it from a system call
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(Alarm))


def _listen() -> None:
    """Once per process and for good: without a handler, a signal that comes late would end the process."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(_SIGNAL) is not _raise:
        signal.signal(_SIGNAL, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    """The main thread is told that a watch has found something."""
    if any(watch.reason is not None and watch.works_on(threading.get_ident()) for watch in _live):
        raise Alarm
