"""A worker process: one trial after the other, report by report."""

from __future__ import annotations

import os
import pickle
import platform
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rayfish import __version__
from rayfish.errors import RayfishError
from rayfish.experiment.imports import use_paths
from rayfish.run.trust import HandedOver, take_over
from rayfish.sweep.capacity import require_same
from rayfish.sweep.function import tune_reports_here
from rayfish.sweep.task import DONE, PAUSED, Target, Task, Work

_OURS = f"{os.sep}rayfish{os.sep}sweep{os.sep}"


@dataclass(frozen=True)
class Reply:
    """The answer to one request to a worker.

    :param over: the trial has ended by itself, or failed
    :param error: why it failed, in one line; `hint` has the next step, `details` the traceback
    :param unfit: no trial can run on the machine
    :param spoiled: a part of the trial still runs in the worker, which must not serve another
    :param missed: earlier reports that the sweep has not recorded
    """

    metrics: Mapping[str, Any] | None = None
    over: bool = False
    error: str = ""
    hint: str = ""
    details: str = ""
    saved: str = ""
    unfit: bool = False
    spoiled: bool = False
    missed: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 0.0


class Worker:
    """The actor's class; never raises for a fault of the trial, which is one failed trial.

    :param target: pickled, so that a fault in reading it is reported like any other
    :param paths: folders where the user's modules are
    :param handed_over: to sign and to trust as the sweep does
    """

    def __init__(
        self, target: bytes, paths: Sequence[str] = (), handed_over: HandedOver | None = None
    ) -> None:
        if handed_over is not None:
            take_over(handed_over)
        self._pickled = target
        self._paths = paths
        self._target: Target | None = None
        self._work: Work | None = None

    def begin(self, task: Task) -> Reply:
        """Starts a trial and returns its first report."""
        started = time.monotonic()
        sweep = task.folder.parent.parent
        try:  # the machine may have joined the cluster after the sweep began
            sees = (sweep / "sweep.json").is_file()
            require_same(platform.node(), __version__, task.rayfish, sweep, sees=sees)
        except RayfishError as error:
            return replace(_failed(error, started), unfit=True)
        try:
            if self._target is None:
                use_paths(self._paths)
                tune_reports_here()
                self._target = pickle.loads(self._pickled)
            self._work = self._target.begin(task)
            missed = tuple(self._work.missed(task.known_until)) if task.resume and not task.donor else ()
        except BaseException as error:
            return _failed(error, started)
        return replace(self._step(started), missed=missed)

    def step(self) -> Reply:
        """The next report."""
        return self._step(time.monotonic())

    def save(self) -> Reply:
        """A checkpoint of the state at the last report."""
        started = time.monotonic()
        try:
            assert self._work is not None
            return Reply(saved=self._work.save(), seconds=time.monotonic() - started)
        except BaseException as error:
            return self._ended_badly(error, started)

    def end(self, how: str, why: str) -> Reply:
        """Ends the trial early, for good or for a while."""
        started = time.monotonic()
        work, self._work = self._work, None
        try:
            assert work is not None
            saved = work.save() if how == PAUSED else ""
            work.end(how, why)
            return Reply(over=True, saved=saved, spoiled=not work.gone, seconds=time.monotonic() - started)
        except BaseException as error:
            return _failed(error, started)

    def _step(self, started: float) -> Reply:
        assert self._work is not None
        try:
            metrics = self._work.step()
            over = metrics is None or self._work.finished
            if over:
                work, self._work = self._work, None
                work.end(DONE, "")
            return Reply(metrics or None, over, seconds=time.monotonic() - started)
        except BaseException as error:
            return self._ended_badly(error, started)

    def _ended_badly(self, error: BaseException, started: float) -> Reply:
        work, self._work = self._work, None
        if work is not None:
            try:
                work.failed(error)
            except BaseException as second:
                error.add_note(f"and while it was ended: {type(second).__name__}: {second}")
        return _failed(error, started)


def _failed(error: BaseException, started: float) -> Reply:
    if isinstance(error, RayfishError):
        what, hint = error.what, error.hint
    else:  # the exception, and the line of the user's code it came from
        frames = [f for f in traceback.extract_tb(error.__traceback__) if _OURS not in f.filename]
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        text = " ".join(str(error).split())
        what, hint = f"{type(error).__name__}: {text}".rstrip(": ") + where, ""
    details = "".join(traceback.format_exception(error))
    return Reply(over=True, error=what, hint=hint, details=details, seconds=time.monotonic() - started)
