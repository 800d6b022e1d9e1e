"""Exceptions of user code and of Ray as one message each, instead of a traceback."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rayfish.errors import CheckpointError, RayfishError, RunFailed
from rayfish.files import is_full, why_unwritable

if TYPE_CHECKING:
    from rayfish.experiment import Experiment
    from rayfish.supervise.watchdog import Watch

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_RAYFISH = str(Path(__file__).resolve().parent.parent)
_LIBRARY = ("site-packages", "dist-packages", "/lib/python3", "<frozen", "<string>")
_TRACEBACK = "Traceback (most recent call last):"
_OWN_ERROR = re.compile(r"^rayfish\.errors\.\w+: ")
_NEXT_STEP = "next step: "
_OUT_OF_MEMORY = re.compile(r"\bMemoryError\b|OutOfMemory|out of memory|low on memory|Cannot allocate memory")
LESS_MEMORY = (
    "lower rollouts.num_env_runners, rollouts.num_envs_per_env_runner or "
    "training.train_batch_size_per_learner, or use a machine with more memory"
)
NOTE = "in step "
"""Begins the note that an exception out of an environment carries: where in the episode it was."""

RESTART_OPTION = "fault_tolerance.restart_failed_sub_environments"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reason:
    """Why something ended: what happened, in one line, and the next step."""

    what: str
    hint: str = ""


@contextmanager
def explained(experiment: Experiment, watch: Watch | None = None) -> Iterator[None]:
    """Turns what the engine raises inside the block into a `RunFailed` that names the cause.

    The full traceback goes to the log (and to the screen with `--debug`).

    :param watch: also ends the block when a call hangs, or when Ray is gone
    """
    try:
        with watch.section() if watch is not None else nullcontext():
            yield
    except (RayfishError, KeyboardInterrupt):
        raise
    except Exception as error:
        keep_traceback(error)
        reason = explain(error, str(experiment.environment.env), RESTART_OPTION if watch is not None else "")
        raise RunFailed(reason.what, reason.hint) from error


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns what goes wrong with the run's own files inside the block into a `RunFailed`."""
    try:
        yield
    except (OSError, CheckpointError) as error:
        failure = of_files(error, folder)
        if failure is error:
            raise
        keep_traceback(error)
        raise failure from error


def keep_traceback(error: BaseException) -> None:
    """Into log.txt alone: the console shows no line of this module's logger."""
    _logger.error("what stopped the run", exc_info=error)


def of_files(error: BaseException, folder: Path) -> BaseException:
    """The message for a run whose files cannot be written; any other exception as it is."""
    if not isinstance(error, OSError | CheckpointError):
        return error
    if not (folder / "run.json").is_file():
        what = f"the run folder {folder} was removed while the run was training"
        return RunFailed(what, "start the run again; what was removed cannot be resumed")
    then = f", then rayfish train --resume {folder}"
    if isinstance(error, CheckpointError):
        cause = error.__cause__
        if not is_full(cause) and "No space left" not in str(cause):  # safetensors says it in its own way
            return error
        full = cause if isinstance(cause, OSError) else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return CheckpointError(error.what, why_unwritable(full, folder)[1] + then)
    reason, remedy = why_unwritable(error, folder)
    prefix = "the disk is full: " if is_full(error) else ""
    return RunFailed(f"{prefix}{folder} cannot be written ({reason})", remedy + then)


def ending(error: BaseException) -> tuple[str, str]:
    """Status and reason of a run that an exception ended."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped", "stopped at once"
    if isinstance(error, SystemExit) and error.code == signal.SIGTERM:  # while Ray starts it has its way
        return "stopped", "SIGTERM, before it began"
    return "failed", error.what if isinstance(error, RayfishError) else f"{type(error).__name__}: {error}"


def explain(error: BaseException, env: str, option: str = "") -> Reason:
    """What happened and the next step, for an exception out of the engine.

    :param option: the key that would have an environment remade in place of this error, where there is one
    """
    ours = next((cause for cause in reversed(chain(error)) if isinstance(cause, RayfishError)), None)
    if ours is not None:
        return Reason(ours.what, ours.hint)
    notes = [note for cause in chain(error) for note in getattr(cause, "__notes__", ())]
    return _reason(root_message(error), user_frame(error), notes, env, option)


def explain_text(text: str, env: str) -> Reason | None:
    """The same for a traceback that a worker logged; None when `text` holds none."""
    if _TRACEBACK not in text:
        return None
    # Of chained exceptions the one that began it is printed first.
    section = text.partition(_TRACEBACK)[2].lstrip("\n").splitlines()
    after = next((i for i, line in enumerate(section) if line and not line.startswith(" ")), len(section))
    frames = _frames_in("\n".join(section[:after]))
    message = list(takewhile(bool, (line.strip() for line in section[after:])))
    if not message:
        return None
    if _OWN_ERROR.match(message[0]):
        hint = next((line.removeprefix(_NEXT_STEP) for line in message if line.startswith(_NEXT_STEP)), "")
        return Reason(_OWN_ERROR.sub("", message[0]), hint)
    notes = [line for line in message if line.startswith(NOTE)]
    text = " ".join(line for line in message if line not in notes)
    return _reason(text, _last_of_user(frames), notes, env, RESTART_OPTION)


def explain_exit(text: str) -> Reason:
    """Why a process ended, from what Ray says of it."""
    if _OUT_OF_MEMORY.search(text.partition("Some common causes")[0]):
        return Reason("the machine ran out of memory, and Ray ended it", LESS_MEMORY)
    code = re.search(r"exits? with an exit code (\d+)", text)
    if code:
        return Reason(f"its process ended by itself with exit code {code[1]}")
    # All that Ray has seen is a closed connection.
    return Reason(
        "its process was killed or crashed (by hand, by the system when memory runs out, or in native code)",
        f"if memory is short: {LESS_MEMORY}",
    )


def _reason(text: str, frame: tuple[str, int, str] | None, notes: list[str], env: str, option: str) -> Reason:
    places, hints = [], []
    if frame is not None:
        file, line, name = frame
        places.append(f"{Path(file).name}:{line} in {name}")
        hints.append(f"fix {file}:{line}")
        if notes or name in ("step", "reset", "__init__", "render"):
            hints.append(f"rayfish env check {env} tries the environment by itself")
            if option and notes and not _OUT_OF_MEMORY.search(text):
                hints.append(f"if it fails only now and then, {option}=true remakes it and trains on")
    places += notes[:1]
    if _OUT_OF_MEMORY.search(text):
        text = text if text.strip() != "MemoryError" else "MemoryError: no memory left"
        hints.insert(0, LESS_MEMORY)
    if not places:
        return Reason(
            f"training stopped: {text}",
            "; ".join(hints) or "the traceback is in the run's log.txt, or on screen with --debug",
        )
    return Reason(f"{text} ({', '.join(places)})", "; ".join(hints))


def user_frame(error: BaseException) -> tuple[str, int, str] | None:
    """The innermost frame in the user's own code, also when it ran on a remote worker."""
    for cause in reversed(chain(error)):
        frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(cause.__traceback__)]
        frames += _frames_in(str(cause))  # Ray carries a remote worker's traceback as text
        found = _last_of_user(frames)
        if found is not None:
            return found
    return None


def _frames_in(text: str) -> list[tuple[str, int, str]]:
    return [(m["file"], int(m["line"]), m["name"]) for m in _FRAME.finditer(text)]


def _last_of_user(frames: list[tuple[str, int, str]]) -> tuple[str, int, str] | None:
    for file, line, name in reversed(frames):
        if file.endswith(".py") and name != "<module>" and not is_library(file):
            return file, line, name
    return None


def chain(error: BaseException) -> list[BaseException]:
    """The exception, what caused it, what caused that, ... (RLlib re-raises with empty messages)."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        cause = getattr(current, "cause", None)
        current = cause if isinstance(cause, BaseException) else current.__cause__
    return found


def root_message(error: BaseException) -> str:
    """`TypeName: message` of the exception that began it, in one line."""
    for cause in reversed(chain(error)):
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        if lines:
            named = re.match(r"^[\w.]+(Error|Exception|Fault)\b", lines[-1])
            return lines[-1] if named else f"{type(cause).__name__}: {lines[-1]}"
    return type(chain(error)[-1]).__name__


def first_line(error: Exception) -> str:
    """`TypeName: message`, the first line of it."""
    return f"{type(error).__name__}: {error}".strip(": ").splitlines()[0]


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
    """The line of the user's own code in a stack: `file:line in function`, "" when there is none."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_library(file):
            return f"{file}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def is_library(file: str) -> bool:
    """Whether a source file is Python's, an installed package's or ours, and not the user's."""
    return file.startswith((_RAYFISH, "<")) or any(part in file for part in _LIBRARY)


def describe_exit(code: int) -> str:
    """How a child process ended, by its exit code as `subprocess` and `multiprocessing` report it."""
    if code >= 0:
        return f"ended by itself with exit code {code}"
    why = ": by hand, or by the system when memory runs out" if code == -signal.SIGKILL else ""
    return f"was killed ({signal.Signals(-code).name}){why}"
