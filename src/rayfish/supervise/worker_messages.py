"""Messages of workers: what a line of their output is, and what they report to the driver.

Workers write what is logged as one-line records (`encode`); everything else in their output is recognised by
its shape. Ray's own messages are recognised because their level is the user's choice
(`debugging.log_level`), while what users log and print always reaches them.
"""

from __future__ import annotations

import json
import logging
import re
import time
from dataclasses import dataclass, field

from rayfish.files import parse_json
from rayfish.supervise import error_messages
from rayfish.text import printable

MARK = "\x02rayfish|"
"""Begins a record: a control character that ordinary text has not, and `splitlines` does not split at."""

HELLO = "HELLO"

HEARTBEAT = "rayfish.heartbeat"
"""The logger by which a worker reports that it makes progress; shown nowhere."""

FAULT = "rayfish.fault"
"""The logger by which a worker reports what ended it."""

_EXIT = re.compile(r"Worker PID: (\d+)|pid=(\d+)|PID[ =](\d+)")
_APPLY = "Worker exception caught during"
_STEP = "Environment step failed"
_RESET = "Resetting the env resulted in an error"
_DIED = re.compile(r"A worker died or was killed|worker\(s\)? (was|were) killed due to|low on memory|OOM")
_RAY_LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\s+(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\S+:\d+ -- .*)", re.DOTALL
)
_RAY_CORE_LINE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([DIWEFC]) \d+ \d+\] (.*)", re.DOTALL)
_CORE_LEVELS = {"D": logging.DEBUG, "I": logging.INFO, "W": logging.WARNING}
_WARNING_LINE = re.compile(r"(\S+\.py):(\d+): (\w*Warning): (.*)")
_QUIET_WARNINGS = re.compile("(Pending|Ray)?DeprecationWarning|FutureWarning")
_QUIET_RAY = re.compile(
    r"deprecat|new API stack|gputil|[Tt]oken authentication is enabled|authentication token|"
    r"RAY_ACCEL_ENV_VAR_OVERRIDE|Logger initialization failed|/dev/shm has only|"
    # Faults of workers: `run/worker_failures` reports each in one line.
    r"taking actor \d+ out of service|[Tt]he actor \S+ (is unavailable|died|is dead)|actor died unexpectedly|"
    r"now-healthy actor \d+ back into service|No samples returned from remote|No healthy remote workers left|"
    r"Worker exception caught during|Environment step failed|Resetting the env resulted|"
    r"killed due to the node running low on memory|remote eval EnvRunner|eval EnvRunners healthy|"
    # Gradients that are no numbers: the run ends with a message of its own.
    r"contain `nan/inf` values|`nan/inf` gradients"
)
_MADE_ANEW = "-agent-env-v0 already in registry"  # by RLlib, when it makes environments a second time
_QUIET_PRINTED = re.compile(
    r"A worker died or was killed|killed due to (the node running low on memory|memory pressure)|"
    r"^Setting up process group|^DeprecationWarning: `|Raylet is terminated|\[state-dump\]|"
    r"^NoneType: None$|^\(raylet\)"
)


@dataclass(frozen=True)
class Line:
    """One message; it may span lines.

    :param ours: from the user's code (or Rayfish), not from Ray
    :param quiet: for the log file only (deprecations and banners that no user can act on)
    :param brief: what the console shows in place of `text`
    """

    level: int
    text: str
    ours: bool = True
    quiet: bool = False
    brief: str = ""


def encode(level: str, worker: str, logger: str, text: str) -> str:
    """A record as a line of its own; JSON keeps a message of several lines together."""
    return f"{MARK}{level}|{worker}|{logger}|{json.dumps(text)}\n"


def decode(line: str) -> tuple[str, str, str, str] | None:
    """(level, worker, logger, text) of a record; None for any other line."""
    if not line.startswith(MARK):
        return None
    parts = line[len(MARK) :].split("|", 3)
    try:
        return parts[0], parts[1], parts[2], parse_json(parts[3])
    except (IndexError, ValueError):
        return None


def is_ray_logger(name: str) -> bool:
    """Whether a logger belongs to Ray."""
    return name == "ray" or name.startswith("ray.")


def from_logger(level: int, logger: str, text: str) -> Line:
    """What a logged message is, by the name of its logger."""
    if logger == "py.warnings":
        return _warning(text) or Line(level, text)
    if logger == error_messages.__name__:  # a traceback that a message already explains
        return Line(level, text, quiet=True)
    if is_ray_logger(logger):
        brief = ""
        if "Traceback (most recent call last)" in text:
            brief = f"{text.rstrip().splitlines()[-1].strip()} (traceback in log.txt)"
        return Line(level, text, ours=False, quiet=bool(_QUIET_RAY.search(text)), brief=brief)
    return Line(level, text if logger == "root" else f"{logger}: {text}")


def from_text(text: str) -> Line:
    """What a printed line is, by its shape."""
    found = _RAY_LINE.match(text)
    if found:
        level = logging.getLevelNamesMapping()[found[1]]
        return Line(level, found[2], ours=False, quiet=bool(_QUIET_RAY.search(text)))
    found = _RAY_CORE_LINE.match(text.strip())
    if found:
        return Line(_CORE_LEVELS.get(found[1], logging.ERROR), found[2], ours=False)
    if _QUIET_PRINTED.search(printable(text).strip()):
        return Line(logging.INFO, text, ours=False, quiet=True)
    return _warning(text) or Line(logging.INFO, text)


def _warning(text: str) -> Line | None:
    """A warning as its message and place; `warnings` prints the whole path and the line of code."""
    found = _WARNING_LINE.match(printable(text))
    if not found:
        return None
    path, number, kind, message = found.groups()
    from_ray = "/site-packages/ray/" in path
    quiet = (
        bool(_QUIET_WARNINGS.fullmatch(kind))
        or (from_ray and bool(_QUIET_RAY.search(text)))
        or _MADE_ANEW in text
    )
    shown = f"{kind}: {message} ({path.rpartition('/')[2]}:{number})"
    return Line(logging.WARNING, shown, ours=not from_ray, quiet=quiet)


@dataclass
class WorkerMessages:
    """Heartbeats of workers, and why they ended: the newest by worker name and by process.

    :param last_heartbeat: when a worker last reported progress, by the monotonic clock
    :param connected: whether any worker's output reaches this process (in a notebook it may not)
    """

    last_heartbeat: float = 0.0
    connected: bool = False
    by_name: dict[str, error_messages.Reason] = field(default_factory=dict)
    by_process: dict[int, error_messages.Reason] = field(default_factory=dict)
    env: str = ""

    def begin(self, env: str) -> None:
        """Forget everything before another run."""
        self.last_heartbeat, self.connected, self.env = 0.0, False, env
        self.by_name.clear()
        self.by_process.clear()

    def record(self, worker: str, logger: str, text: str) -> bool:
        """Process what a worker logged; True when it is not for the console."""
        self.connected = True
        if logger == HEARTBEAT:
            self.last_heartbeat = time.monotonic()
            return True
        if logger == FAULT:
            what, _, hint = text.partition("\n")
            self.by_name[worker] = error_messages.Reason(what, hint)
            return True
        return self.fault(worker, text)

    def fault(self, worker: str, text: str) -> bool:
        """Process a traceback that RLlib logged; True when it is a fault in user code."""
        if not (text.startswith((_APPLY, _RESET)) or _STEP in text[:80]):
            return False
        reason = error_messages.explain_text(text, self.env)
        if reason is not None:
            self.by_name[worker] = reason
        return True

    def printed(self, text: str) -> bool:
        """Process a line that Ray itself printed; True when it reports a worker's end."""
        if not _DIED.search(text):
            return False
        reason = error_messages.explain_exit(text)
        for match in _EXIT.finditer(text):
            pid = next(int(group) for group in match.groups() if group)
            self.by_process.setdefault(pid, reason)
        return True

    def why(self, worker: str, pid: int) -> error_messages.Reason | None:
        """Why a worker ended, if that is known; it is reported once."""
        by_name, by_process = self.by_name.pop(worker, None), self.by_process.pop(pid, None)
        return by_name or by_process


worker_messages = WorkerMessages()
"""Of this process; Ray's output is the process's, not one run's."""
