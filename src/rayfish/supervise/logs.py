"""What environments and callbacks log or print, on any process, reaches the console and `log.txt`.

On a worker, `setup_worker` sends log messages as one-line records through the worker's stderr, which
Ray carries to the driver. In the driver, `capture` takes the place of Ray's own printer, puts the
worker's name and level back, and also takes in what the driver itself logs and prints.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, TextIO

from rayfish.compat.ray_internals import worker_output_dispatcher
from rayfish.streams import StreamProxy, steady
from rayfish.supervise import worker_messages as messages
from rayfish.supervise.worker_messages import Line, worker_messages
from rayfish.text import printable

Sink = Callable[[str, str, str], None]
"""Called with (level, who, text), from any thread."""

DRIVER = "driver"
_AUTOSCALER_EVENT = ":event_summary:"
_RAY_LOGGERS = ("ray", "ray.rllib", "ray.tune", "ray.train", "ray.data")
_QUIET_FOR_S, _DRAIN_AT_MOST_S = 0.3, 1.5
_terminal: list[int] = []
"""The terminal's stderr while `capture` stands in for it."""

_LINES_PER_S = 20
"""Lines of one process shown per second; an environment that prints with every step floods otherwise."""


def setup_worker(name: str, level: str = "WARN") -> None:
    """Called on a worker before its environment is made: its messages go to the driver as records.

    :param name: what the driver shows, such as "runner 2"; nothing is done for "driver"
    :param level: `debugging.log_level`; DEBUG lets the user's debug messages through
    """
    if name == DRIVER:
        return
    # Both streams: they travel separately, and a print must find its worker's name known.
    for stream in (1, 2):
        os.write(stream, messages.encode(messages.HELLO, name, str(os.getpid()), "").encode())
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, MessageHandler):
            root.removeHandler(handler)
    root.addHandler(MessageHandler(partial(send_record, 2, name)))
    root.setLevel(_user_level(level))
    logging.captureWarnings(True)
    _through_root()


@contextmanager
def capture(log_file: Path, sink: Sink, level: str = "WARN") -> Iterator[None]:
    """While entered, everything logged or printed anywhere goes to `log_file`, and what matters to `sink`.

    :param sink: shows (level, who, text) to the user
    :param level: `debugging.log_level`: from which level on Ray's own messages are shown. What user
        code logs is shown from INFO on, from DEBUG on if this is DEBUG
    """
    with ExitStack() as stack:
        log = stack.enter_context(_log_file(Path(log_file)))
        router = _Router(log, sink, level)
        stack.callback(router.flush)
        stack.enter_context(_driver_descriptor(log))
        stack.enter_context(_driver_logging(router, level))
        for redirect, stream in ((redirect_stdout, sys.stdout), (redirect_stderr, sys.stderr)):
            tee = _Tee(router, steady(stream))
            stack.enter_context(redirect(tee))
            stack.callback(tee.end)
        stack.enter_context(_worker_output(router))
        yield


@contextmanager
def worker_output_to(sink: Sink, level: str = "WARN") -> Iterator[None]:
    """For a notebook: workers' messages reach `sink`, the driver's own output is left alone.

    Does nothing inside `capture`, which has the workers' messages already.
    """
    if "emit" in vars(worker_output_dispatcher()):
        yield
        return
    with _log_file(Path(os.devnull)) as log, _worker_output(_Router(log, sink, level)):
        yield


class MessageHandler(logging.Handler):
    """Hands each log record and its text to a function."""

    def __init__(self, take: Callable[[logging.LogRecord, str], None]) -> None:
        super().__init__()
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        """Hand over one record."""
        try:
            self._take(record, self.format(record))
        except Exception:
            self.handleError(record)


def send_record(descriptor: int, worker: str, record: logging.LogRecord, text: str) -> None:
    """One record as a line to stdout or stderr itself, whatever `sys.stderr` was made into."""
    line = messages.encode(record.levelname, worker, record.name, text)
    os.write(descriptor, line.encode("utf-8", "replace"))


@contextmanager
def _log_file(path: Path) -> Iterator[FileIO]:
    file = path.open("ab", buffering=0)
    try:
        yield file
    finally:
        with suppress(OSError):
            file.close()


class _Router:
    """Decides for each message whether it is for the user or for the file only."""

    def __init__(self, log: FileIO, sink: Sink, level: str) -> None:
        self._log = log
        self._sink = sink
        self._ray_level = _level(level)
        self._user_level = _user_level(level)
        self._lock = threading.RLock()
        self._local = threading.local()
        self._names: dict[tuple[Any, Any], str] = {}
        self._hushed: set[tuple[Any, Any]] = set()
        self._talkers: dict[str, _Talker] = {}
        self.last_worker_message = 0.0

    @property
    def busy(self) -> bool:
        """True on a thread that is delivering: what the sink itself prints must not come round again."""
        return getattr(self._local, "busy", False)

    def deliver(self, who: str, line: Line) -> None:
        """Write one message to the file, and show it if it is meant for the user."""
        level, text = logging.getLevelName(line.level), printable(line.text)
        stamp, body = time.strftime("%Y-%m-%d %H:%M:%S"), text.replace("\n", "\n    ")
        with self._lock:
            if self._log.closed:
                return
            # A full disk ends a run where its metrics are written, not in the `print` of an environment.
            with suppress(OSError):
                self._log.write(f"{stamp} {level:<8} {who} | {body}\n".encode("utf-8", "replace"))
        shown_from = self._user_level if line.ours else self._ray_level
        if line.quiet or line.level < shown_from or self.busy:
            return
        with self._lock:
            shown = line.brief or text
            entries = self._talkers.setdefault(who, _Talker()).admit(level, shown, time.monotonic())
        for entry in entries:
            self._show(who, *entry)

    def flush(self) -> None:
        """Show what was held back at the end."""
        for who, talker in list(self._talkers.items()):
            for entry in talker.cuts():
                self._show(who, *entry)

    def _show(self, who: str, level: str, text: str) -> None:
        self._local.busy = True
        try:
            self._sink(level, who, text)
        finally:
            self._local.busy = False

    def logged(self, record: logging.LogRecord, text: str) -> None:
        """Take in a message that this process logged."""
        if messages.is_ray_logger(record.name):
            worker_messages.fault(DRIVER, text)
        self.deliver(DRIVER, messages.from_logger(record.levelno, record.name, text))

    def printed(self, text: str) -> None:
        """Take in a line that this process printed."""
        worker_messages.printed(text)
        self.deliver(DRIVER, messages.from_text(text))

    def worker_batch(self, data: Mapping[str, Any]) -> None:
        """Take in a batch of lines of one worker, as Ray's log monitor sends them."""
        self.last_worker_message = time.monotonic()
        source = (data.get("ip"), data.get("pid"))
        for text in data.get("lines") or ():
            if source[1] == "autoscaler":
                # A table of resources every few seconds; only its events say something.
                event = str(text).partition(_AUTOSCALER_EVENT)[2]
                if event:
                    self.deliver("autoscaler", Line(logging.INFO, event, ours=False))
                continue
            printed, mark, record = str(text).partition(messages.MARK)
            if printed.strip() or not mark:
                self._worker_printed(source, data, printed)
            if mark:
                self._record(source, mark + record)

    def close(self) -> None:
        """Wait for the last messages of workers while they are still coming in."""
        if not self._names:
            return
        until = time.monotonic() + _DRAIN_AT_MOST_S
        last = max(self.last_worker_message, time.monotonic())
        while time.monotonic() < min(until, last + _QUIET_FOR_S):
            time.sleep(0.05)
            last = max(last, self.last_worker_message)

    def _record(self, source: tuple[Any, Any], text: str) -> None:
        found = messages.decode(text)
        if found is None:
            return
        level, worker, logger, message = found
        self._names[source] = worker
        ours = worker_messages.record(worker, logger, message)
        if logger == messages.HEARTBEAT:
            return
        if level != messages.HELLO:
            number = logging.getLevelNamesMapping().get(level, logging.INFO)
            line = messages.from_logger(number, logger, message)
            self.deliver(worker, replace(line, quiet=True) if ours else line)

    def _worker_printed(self, source: tuple[Any, Any], data: Mapping[str, Any], text: str) -> None:
        worker_messages.printed(text)
        line = messages.from_text(text.rstrip().rpartition("\r")[2])  # the last state of a progress bar
        if data.get("pid") in ("raylet", "gcs_server"):
            line = replace(line, ours=False)
        # The indented line of code under a hushed warning belongs to it.
        if source in self._hushed and text.startswith("  "):
            line = replace(line, quiet=True)
        elif line.quiet:
            self._hushed.add(source)
        else:
            self._hushed.discard(source)
        if line.text:
            unnamed = f"{data.get('actor_name') or data.get('task_name') or 'worker'} {data.get('pid')}"
            self.deliver(self._names.get(source) or unnamed, line)


class _Talker:
    """One process on the console: repetitions are counted, floods are cut; the file has every line."""

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None
        self._repeated = 0
        self._second = 0.0
        self._shown = 0
        self._cut = 0

    def admit(self, level: str, text: str, now: float) -> list[tuple[str, str]]:
        """What to show for a message: itself, nothing, or first what was held back."""
        if (level, text) == self._last:
            self._repeated += 1
            return []
        repeated, self._repeated = self._repeated, 0
        held = [("INFO", f"(the same {repeated} times more)")] if repeated and not self._cut else []
        if now - self._second >= 1.0:
            held += self.cuts()
            self._second, self._shown = now, 0
        self._last = (level, text)
        if self._shown >= _LINES_PER_S and logging.getLevelNamesMapping().get(level, 0) < logging.ERROR:
            self._cut += 1
            return []
        self._shown += 1
        return [*held, (level, text)]

    def cuts(self) -> list[tuple[str, str]]:
        """The number of lines that were not shown, if any; repetitions are not counted at a run's end."""
        count, self._cut = self._cut, 0
        return [("INFO", f"({count} more lines are in log.txt)")] if count else []


class _Tee(StreamProxy):
    """Stands in for stdout or stderr: whole lines go to the router; an unfinished one waits for its end."""

    def __init__(self, router: _Router, wrapped: TextIO) -> None:
        super().__init__(wrapped)
        self._router: _Router | None = router
        self._part = ""
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Take in text; lines are delivered when they are complete."""
        router = self._router
        if router is None or router.busy:
            return self.wrapped.write(text)
        with self._lock:
            *whole, self._part = (self._part + text).split("\n")
        for raw in whole:
            # A progress bar redraws itself after "\r": its last state is the line.
            line = raw.rstrip("\r").rpartition("\r")[2]
            if line.strip():
                router.printed(line)
        return len(text)

    def end(self) -> None:
        """Deliver the unfinished line; later writes (handlers keep the stream) pass straight through."""
        if self._part:
            self.write("\n")
        self._router = None


@contextmanager
def _driver_logging(router: _Router, level: str) -> Iterator[None]:
    root = logging.getLogger()
    kept = [
        (logger, list(logger.handlers), logger.propagate) for logger in map(logging.getLogger, _RAY_LOGGERS)
    ]
    kept_root, kept_level = list(root.handlers), root.level
    # Handlers that write to the terminal would tear the live display; files and others stay.
    root.handlers = [h for h in kept_root if type(h) is not logging.StreamHandler]
    root.addHandler(MessageHandler(router.logged))
    root.setLevel(_user_level(level))
    _through_root()
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers, root.level = kept_root, kept_level
        for logger, handlers, propagate in kept:
            logger.handlers[:] = handlers or logger.handlers
            logger.propagate = propagate


def settle() -> None:
    """Inside `capture`: Ray's libraries put handlers to the terminal in place as they are imported.

    Ray also has crashes reported where stderr goes, which is log.txt here.
    """
    if _terminal:
        _through_root()
        _crashes_to_terminal()


def _through_root() -> None:
    for logger in map(logging.getLogger, _RAY_LOGGERS):
        logger.handlers.clear()
        logger.propagate = True


@contextmanager
def _driver_descriptor(log: FileIO) -> Iterator[None]:
    """What Ray's C++ core writes past Python would tear the live display and litter logs: into the file."""
    kept = os.dup(2)
    before = faulthandler.is_enabled()
    _terminal.append(kept)
    os.dup2(log.fileno(), 2)
    _crashes_to_terminal()
    try:
        yield
    finally:
        _terminal.remove(kept)
        os.dup2(kept, 2)
        if before:
            faulthandler.enable(2, all_threads=False)
        else:
            faulthandler.disable()
        os.close(kept)


def _crashes_to_terminal() -> None:
    """A crash in native code leaves its line of Python on the terminal; no other part of this process can."""
    faulthandler.enable(_terminal[-1], all_threads=False)


def to_terminal(text: str) -> None:
    """Writes to the terminal's stderr past everything that stands in for it, from any thread."""
    with suppress(OSError):  # it may be gone
        os.write(_terminal[-1] if _terminal else 2, printable(text).encode("utf-8", "replace"))


@contextmanager
def _worker_output(router: _Router) -> Iterator[None]:
    """Take the place of Ray's printer, before or after `ray.init`, and leave other listeners alone."""
    dispatcher = worker_output_dispatcher()

    def emit(data: Mapping[str, Any]) -> None:
        router.worker_batch(data)
        for name, handle in list(dispatcher.handlers):
            if name != "ray_print_logs":
                handle(data)

    dispatcher.emit = emit
    try:
        yield
        router.close()
    finally:
        del dispatcher.emit


def _level(name: str) -> int:
    return logging.getLevelNamesMapping().get(str(name).upper(), logging.WARNING)


def _user_level(name: str) -> int:
    return logging.DEBUG if _level(name) <= logging.DEBUG else logging.INFO
