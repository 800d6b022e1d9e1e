"""Faults of user code and of Ray, told in one message instead of a wall of traceback."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rayfish.errors import RayfishError, RunFailed

if TYPE_CHECKING:
    from rayfish.experiment import Experiment
    from rayfish.run.trainer import Trainer

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_LIBRARY = ("site-packages", "dist-packages", "/lib/python3", "<frozen", "<string>")
IDLE_ITERATIONS = 10
_logger = logging.getLogger(__name__)


@contextmanager
def explained(experiment: Experiment) -> Iterator[None]:
    """Turns whatever the engine raises inside the block into a `RunFailed` that names the culprit.

    The full traceback goes to the log (and to the screen with `--debug`).
    """
    try:
        yield
    except (RayfishError, KeyboardInterrupt):
        raise
    except Exception as error:
        _logger.error("what stopped the run", exc_info=error)
        raise RunFailed(*explain(error, str(experiment.get("environment.env")))) from error


def ending(error: BaseException) -> tuple[str, str]:
    """Status and reason of a run that an exception ended."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped", "stopped at once"
    return "failed", error.what if isinstance(error, RayfishError) else f"{type(error).__name__}: {error}"


def require_progress(trainer: Trainer, *, last: bool) -> None:
    """Ends a run whose env runners do nothing but die; RLlib would restart them for ever.

    :param last: the run is over anyway: then it must have made at least one step
    """
    metrics = trainer.metrics
    steps = metrics.get("run/env_steps", 0)
    lost = metrics.get("run/workers_lost", 0) + metrics.get("run/worker_restarts", 0)
    trainer.idle = trainer.idle + 1 if steps == trainer.steps_before else 0
    trainer.steps_before = steps
    if lost and (trainer.idle >= IDLE_ITERATIONS or (last and not steps)):
        raise RunFailed(
            f"no environment step was made in the last {trainer.idle} iterations: env runners keep dying",
            "what they died of is in log.txt; rayfish env check "
            f"{trainer.experiment.get('environment.env')} tries the environment by itself",
        )


def explain(error: BaseException, env: str) -> tuple[str, str]:
    """What happened and the next step, for an exception out of the engine."""
    culprit = user_frame(error)
    text = root_message(error)
    if culprit is None:
        return f"training stopped: {text}", "the traceback is in the run's log.txt, or on screen with --debug"
    file, line, name = culprit
    where = f"{Path(file).name}:{line} in {name}"
    hint = f"mend {file}:{line}"
    if name in ("step", "reset", "__init__", "render"):
        hint += f"; rayfish env check {env} tries the environment by itself"
    return f"{text} ({where})", hint


def user_frame(error: BaseException) -> tuple[str, int, str] | None:
    """The innermost frame in the user's own code, also when it ran on a remote worker."""
    package = str(Path(__file__).resolve().parent.parent)
    for cause in reversed(chain(error)):
        frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(cause.__traceback__)]
        # Ray carries a remote worker's traceback as text.
        frames += [(m["file"], int(m["line"]), m["name"]) for m in _FRAME.finditer(str(cause))]
        for file, line, name in reversed(frames):
            foreign = file.startswith(package) or any(part in file for part in _LIBRARY)
            if file.endswith(".py") and name != "<module>" and not foreign:
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
    return type(error).__name__
