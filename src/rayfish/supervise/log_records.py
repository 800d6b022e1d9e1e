"""What a line of worker output is: a Rayfish record, Ray's own chatter, or something printed.

Workers write what is logged as one-line records (`encode`); everything else in their output is
recognised by its shape. Ray's chatter is told apart because its level is the user's choice
(`debugging.log_level`), while what users log and print always reaches them.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass

from rayfish.files import parse_json

MARK = "\x02rayfish|"
"""Begins a record: a control character that ordinary text has not, and `splitlines` does not split at."""

HELLO = "HELLO"

TRACEBACKS = "rayfish.supervise.error_messages"
"""The logger of tracebacks that a message already explains: for the file only."""

_RAY_LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\s+(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\S+:\d+ -- .*)", re.DOTALL
)
_RAY_CORE_LINE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([DIWEFC]) \d+ \d+\] (.*)", re.DOTALL)
_CORE_LEVELS = {"D": logging.DEBUG, "I": logging.INFO, "W": logging.WARNING}
_WARNING_LINE = re.compile(r"(\S+\.py):(\d+): (\w*Warning): (.*)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_QUIET_WARNINGS = (
    "DeprecationWarning",
    "PendingDeprecationWarning",
    "FutureWarning",
    "RayDeprecationWarning",
)
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
    """One thing that was said.

    :param level: a level of the `logging` module
    :param text: what was said; may span lines
    :param ours: said by the user's code (or Rayfish), not by Ray
    :param quiet: for the log file only (deprecations and banners nobody can act on)
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
    if logger == TRACEBACKS:
        return Line(level, text, quiet=True)
    if is_ray_logger(logger):
        return Line(level, text, ours=False, quiet=bool(_QUIET_RAY.search(text)), brief=_brief(text))
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
    if _QUIET_PRINTED.search(plain(text).strip()):
        return Line(logging.INFO, text, ours=False, quiet=True)
    return _warning(text) or Line(logging.INFO, text)


def _brief(text: str) -> str:
    """Ray logs whole tracebacks; the console shows what they end in."""
    if "Traceback (most recent call last)" not in text:
        return ""
    return f"{text.rstrip().splitlines()[-1].strip()} (traceback in log.txt)"


def plain(text: str) -> str:
    """`text` without the colour codes that some libraries put into messages."""
    return _COLOUR.sub("", text)


def _warning(text: str) -> Line | None:
    """A warning as its message and place; `warnings` prints the whole path and the line of code."""
    found = _WARNING_LINE.match(plain(text))
    if not found:
        return None
    path, number, kind, message = found.groups()
    from_ray = "/site-packages/ray/" in path
    quiet = kind in _QUIET_WARNINGS or (from_ray and bool(_QUIET_RAY.search(text))) or _MADE_ANEW in text
    shown = f"{kind}: {message} ({path.rpartition('/')[2]}:{number})"
    return Line(logging.WARNING, shown, ours=not from_ray, quiet=quiet)
