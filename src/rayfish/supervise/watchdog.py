"""Watchdog: ends a run whose environment hangs, which makes no progress, or whose Ray is gone.

Runs as one thread per process. Workers report calls in progress; the driver's thread decides.

- A worker process (`watch_process`) ends itself when a call into its environment hangs, so that Ray starts
  another, and sends the driver a heartbeat every few seconds while work is being done.
- The driver of a run (`Watch`) raises what it finds in the watched thread, inside `section()`. A thread that
  does not react (stuck in C code) has some seconds; then the run's last words are written and the process
  ends. When Ray is gone that happens at once.
- The driver of a sweep or of jobs (`RayWatch`) checks Ray alone.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from rayfish.compat import ray_node
from rayfish.errors import RayfishError, RunFailed
from rayfish.supervise.error_messages import describe_exit, source_of, user_line
from rayfish.supervise.logs import to_terminal
from rayfish.supervise.worker_messages import FAULT, HEARTBEAT, worker_messages

if TYPE_CHECKING:
    from rayfish.experiment.experiment import Experiment

PAUSE_S = 30.0
"""A round of a watching thread that takes so much longer than it should: the process was stopped."""

ANSWER_S = 10.0
"""How long the watched thread has to react."""

CLOSE_S = 60.0
"""How long a run that has been ended this way has to close its files and Ray."""

_RAY_CHECK_EVERY_S, _CLUSTER_CHECK_EVERY_S, _CLUSTER_SILENT_S = 1.0, 3.0, 30.0

# A signal that nothing else uses: USR1, USR2 and ALRM belong to schedulers and to user code.
_SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2

_live: list[Watch] = []
"""The watches of this process, one per open Trainer; they are independent of each other."""

_last_words: Callable[[RunFailed], None] | None = None


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
        """The timeouts of an experiment."""
        values = (
            experiment.get(f"fault_tolerance.{key}") for key in ("env_timeout_s", "no_progress_timeout_s")
        )
        return cls(*(None if value is None else float(value) for value in values))


class Call(NamedTuple):
    """A call into an environment that is in progress: when it began, its guard, and what was called."""

    since: float
    env: Any
    method: str


class Activity:
    """The calls into environments that this process has in progress, and how many have finished.

    :param resumed: when the whole process last went on after a pause
    :param handlers: those of the root logger when the watchdog started; heartbeats go through them
    :param give_up: called with what hangs and the next step, in a worker process
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.running: dict[int, Call] = {}
        self.finished = 0
        self.resumed = 0.0
        self.watched = False
        self.handlers: list[logging.Handler] = []
        self.give_up: Callable[[str, str], None] = _end_worker


def _end_worker(what: str, hint: str) -> None:
    """Ends this worker process with its reason; Ray starts another one in its place."""
    _send(logging.ERROR, FAULT, f"{what}\n{hint}")
    time.sleep(1.0)  # the message is still on its way to the driver
    os._exit(1)


_activity = Activity()


def activity() -> Activity:
    """The activity of this very process; a forked child starts from zero."""
    global _activity
    if _activity.pid != os.getpid():
        _activity = Activity()
    return _activity


def report_progress(*_: object) -> None:
    """Something was finished: a step, or an update of a network."""
    _activity.finished += 1


def hanging_call(timeout_s: float | None, others: Collection[int] = ()) -> tuple[str, str] | None:
    """What hangs and the next step, when a call of this process has been running for longer than that."""
    if timeout_s is None:
        return None
    for thread, call in list(_activity.running.items()):
        if thread not in others and time.monotonic() - max(call.since, _activity.resumed) > timeout_s:
            return _describe_hang(thread, call, timeout_s)
    return None


def _describe_hang(thread: int, call: Call, timeout_s: float) -> tuple[str, str]:
    where = user_line(sys._current_frames().get(thread))
    cls, _, _ = source_of(call.env.env, call.method)
    place = f"in step {call.env.episode_step} of the episode"
    hint = "fault_tolerance.env_timeout_s says how long a call may take (null: any time)"
    if where:
        place = f"at {where.rpartition('/')[2]}, {place}"
        hint = f"look at {where.partition(' in ')[0]}; {hint}"
    return f"{cls}.{call.method}() has been running for {timeout_s:g} s ({place})", hint


def notice_pause(before: float, every: float) -> float:
    """The time now; after a pause of the whole process (Ctrl-Z, a stopped container) every wait restarts.

    :param before: when the watching thread's last round began
    :param every: how long a round takes
    """
    now = time.monotonic()
    if now - before > every + PAUSE_S:
        _activity.resumed = now
    return now


def watch_process(patience: Patience) -> None:
    """Starts this worker process's watchdog thread, once: it ends the process when a call hangs."""
    mine = activity()
    if not mine.watched:
        mine.watched = True
        mine.handlers = list(logging.getLogger().handlers)
        threading.Thread(
            target=_watch, args=(mine, patience), name="rayfish-worker-watch", daemon=True
        ).start()


def _watch(mine: Activity, patience: Patience) -> None:
    timeout_s, heartbeat_s = patience.env_timeout_s, min(10.0, (patience.no_progress_s or 40.0) / 4)
    every = min(1.0, heartbeat_s, (timeout_s or 5.0) / 5)
    reported, sent, before = -1, 0.0, time.monotonic()
    while True:
        time.sleep(every)
        before = notice_pause(before, every)
        found = hanging_call(timeout_s)
        if found is not None:
            mine.give_up(*found)
        # A call in progress counts as life: how long it may run is the timeout's business.
        if time.monotonic() - sent >= heartbeat_s and (mine.finished != reported or mine.running):
            reported, sent = mine.finished, time.monotonic()
            _send(logging.INFO, HEARTBEAT, str(reported))


def _send(level: int, logger: str, text: str) -> None:
    """To the driver, whatever user code has made of the levels and handlers of `logging` since."""
    record = logging.LogRecord(logger, level, __file__, 0, text, None, None)
    for handler in _activity.handlers or logging.getLogger().handlers:
        handler.handle(record)


class Alarm(KeyboardInterrupt):
    """Raised in the watched thread; Ray lets no other exception out of its waiting calls."""


@contextmanager
def with_last_words(last_words: Callable[[RunFailed], None]) -> Iterator[None]:
    """While entered, `last_words` ends the process for a main thread that cannot do so itself."""
    global _last_words
    _last_words = last_words
    try:
        yield
    finally:
        _last_words = None


class Watch:
    """Watches one run; a context manager that lasts as long as the run and its Ray."""

    def __init__(self, experiment: Experiment) -> None:
        self.reason: RunFailed | None = None
        self.ray_is_lost = False
        self.closing = False
        self._patience = Patience.of(experiment)
        workers = ("rollouts.num_env_runners", "learners.num_learners")
        self._remote = any(experiment.get(key) for key in workers)
        self._ray = RayHealth()
        self._thread = threading.get_ident()
        self._depth = 0
        self._expecting = False
        self._alarmed = self._acknowledged = 0.0
        self._progress = self._left = time.monotonic()
        self._finished = -1
        self._over = threading.Event()
        self._ending = threading.Lock()

    def __enter__(self) -> Watch:
        _live.append(self)
        _listen()
        threading.Thread(target=self._run, name="rayfish-watch", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        _live.remove(self)

    @contextmanager
    def section(self) -> Iterator[None]:
        """Work that may hang; what the watchdog finds is raised from here."""
        if self.reason is not None:
            self._acknowledge()
            raise self.reason
        if self._depth == 0:
            self._thread = threading.get_ident()
        self._depth += 1
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            if self.reason is None and isinstance(error, Exception):
                self._ray_lost()  # its end may surface as any exception
            if self.reason is None:
                raise
            self._acknowledge()
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
        """An iteration has made progress."""
        self._progress = time.monotonic()

    def _run(self) -> None:
        limits = [s for s in (self._patience.env_timeout_s, self._patience.no_progress_s) if s]
        every = min(1.0, *(s / 5 for s in limits), 1.0)
        before = time.monotonic()
        while not self._over.is_set():
            self._ray.wait(every)
            before = notice_pause(before, every)
            if self.reason is not None:
                self._enforce()
            elif not self.closing and not self._ray_lost() and self._depth:
                self._check()
        self._ray.close()

    def _check(self) -> None:
        others = [watch._thread for watch in list(_live) if watch is not self and watch._depth]
        found = hanging_call(self._patience.env_timeout_s, others)
        if found is not None:
            self.reason = RunFailed(*found)
        elif self._expecting:
            self._check_progress()

    def _check_progress(self) -> None:
        now, mine = time.monotonic(), activity()
        if mine.running or mine.finished != self._finished:
            self._progress, self._finished = now, mine.finished
        self._progress = max(self._progress, worker_messages.last_heartbeat, mine.resumed)
        patience = self._patience.no_progress_s
        unconnected = self._remote and not worker_messages.connected
        if patience is None or now - self._progress <= patience or unconnected:
            return
        where = user_line(sys._current_frames().get(self._thread))
        at = f" (the main process is at {where})" if where else ""
        self.reason = RunFailed(
            f"no environment step and no update was made for {patience:g} s{at}",
            "log.txt has the workers' last messages; fault_tolerance.no_progress_timeout_s says how long "
            "to wait (null: forever)",
        )

    def _ray_lost(self) -> bool:
        lost = self._ray.lost()
        if lost:
            self.ray_is_lost = True
            hint = "rayfish doctor looks at the machine; --resume goes on from the last checkpoint"
            self.reason = self.reason or RunFailed(lost, hint)
            self._end_process()  # at once: Ray ends this process silently when it next needs its node
        return bool(lost)

    def _enforce(self) -> None:
        """Interrupt the watched thread; when it does not react, end the process."""
        now = time.monotonic()
        if self._acknowledged:
            if now - self._acknowledged > CLOSE_S:
                self._end_process()
        elif self._depth and not self._alarmed:
            self._alarmed = now
            self._interrupt()
        elif self._depth and now - self._alarmed > ANSWER_S:
            self._end_process()

    def _acknowledge(self) -> None:
        """The watched thread has seen the reason; when Ray is gone the other thread is ending the process."""
        if self.ray_is_lost:
            self._end_process()
        self._acknowledged = time.monotonic()

    def _end_process(self) -> None:
        if _last_words is not None and self.reason is not None:
            self._ending.acquire()  # never released: a second thread waits here for the end
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
    """Interrupts the main thread when its watch has found something."""
    me = threading.get_ident()
    if any(watch.reason is not None and watch._depth and watch._thread == me for watch in _live):
        raise Alarm


class RayHealth:
    """Whether the Ray that this process uses is still there."""

    def __init__(self) -> None:
        self._silent_since: float | None = None
        self._checked = 0.0
        self._handles: dict[int, int] = {}

    def wait(self, seconds: float) -> None:
        """Sleeps for so long, or until a process of the local Ray ends."""
        for process in ray_node.local_processes():
            if process.pid not in self._handles and hasattr(os, "pidfd_open"):
                with suppress(OSError):
                    self._handles[process.pid] = os.pidfd_open(process.pid)
        ends = select.poll()
        for handle in self._handles.values():
            ends.register(handle, select.POLLIN)
        ended = {handle for handle, _ in ends.poll(seconds * 1000)}
        for pid, handle in list(self._handles.items()):
            if handle in ended:
                os.close(self._handles.pop(pid))

    def close(self) -> None:
        """Close the handles of Ray's processes."""
        while self._handles:
            os.close(self._handles.popitem()[1])

    def lost(self) -> str:
        """What of Ray is gone, in one sentence; "" while it is there."""
        node = ray_node.node()
        if node is None:
            return ""
        for kind, what in ray_node.PROCESSES.items():
            for started in node.all_processes.get(kind, ()):
                status = started.process.poll()
                if status is not None and started.process.pid not in ray_node.ended_here:
                    return f"{what} ({kind}, process {started.process.pid}) {describe_exit(status)}"
        return "" if node.head else self._cluster_lost(str(node.gcs_address))

    @property
    def silent(self) -> bool:
        """Whether the cluster did not answer the last check."""
        return self._silent_since is not None

    def _cluster_lost(self, address: str) -> str:
        """A cluster's head may move or restart: it has some time before it counts as lost."""
        now = time.monotonic()
        if now - self._checked >= _CLUSTER_CHECK_EVERY_S:
            self._checked = now
            self._silent_since = None if _answers(address) else (self._silent_since or now)
        if self._silent_since is None or now - self._silent_since < _CLUSTER_SILENT_S:
            return ""
        return f"the Ray cluster at {address} has not answered for {_CLUSTER_SILENT_S:g} s"


class RayWatch:
    """Ends a sweep or jobs whose Ray is gone; a context manager, which `begin` starts when Ray is there.

    Without the cluster's head, calls of Ray do not return; a minute later Ray ends the process silently.
    """

    def __init__(self) -> None:
        self.hint = "rayfish doctor"
        self._ray = RayHealth()
        self._lost = ""
        self._over = threading.Event()

    def __enter__(self) -> RayWatch:
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def begin(self, hint: str) -> None:
        """Watches from now on."""
        self.hint = hint
        threading.Thread(target=self._run, name="rayfish-ray-watch", daemon=True).start()

    @property
    def silent(self) -> bool:
        """Whether Ray does not answer now, so that calls of it may not return."""
        return self._ray.silent or bool(self._lost)

    def require_ray(self) -> None:
        """Raises a `RayfishError` when Ray is gone."""
        if self._lost:
            raise RayfishError(f"{self._lost}; the work stopped with it", self.hint)

    def _run(self) -> None:
        while not self._over.wait(_RAY_CHECK_EVERY_S):
            self._lost = self._ray.lost()
            if self._lost and not self._over.wait(ANSWER_S):
                to_terminal(f"error: {self._lost}\n  next step: {self.hint}\n")
                os._exit(1)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=3.0).close()
    except (OSError, ValueError):
        return False
    return True
