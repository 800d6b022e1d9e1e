"""One trial of a program: its process, its reports, its checkpoint, its end."""

from __future__ import annotations

import glob
import json
import platform
import shlex
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError
from rayfish.files import Unreadable, atomic_write, read_keys
from rayfish.sweep.program.command import filled, names_in, plain, words_of
from rayfish.sweep.program.process import Process, ended, environment, hint_for, shown
from rayfish.sweep.program.settings import REPORTS, MetricSettings, ProgramSettings
from rayfish.sweep.program.sources import LOG, RECORD, Metrics, Places, matches, newest
from rayfish.sweep.task import DONE, Resources, Task, Work

_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.02, 0.2
_SILENT_S = 1.0
"""After so long without a report, `step` returns so that the sweep can stop the trial."""
_NOTE_EVERY_S = 5.0


class ProgramWork(Work):
    """A program that runs next to this process, for one trial.

    :param metric: the name of the metric that counts, "" where it is not known
    :param start: where the sweep was started; a worker's own folder may be another
    """

    def __init__(
        self, settings: ProgramSettings, task: Task, metric: str, resources: Resources, start: Path
    ) -> None:
        self._settings = settings
        self._folder = task.folder.absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._values = {**built_in(task), **task.params}
        self._start = start / Path(filled(settings.folder or "", self._values)).expanduser()
        before = _record(self._folder)
        self._checkpoints = self._places(settings.checkpoints) if settings.checkpoints else None
        # What matches before the trial begins: files of an earlier sweep, with the same names.
        there = matches(self._checkpoints) if self._checkpoints and not before else {}
        self._there_before = before.get("there_before", {}) if before else there
        checkpoint = self._checkpoint_to_resume(task)
        self._resumed = bool(checkpoint)
        words = words_of(settings.command, settings.arguments, task.params, built_in(task))
        if checkpoint:
            words += [
                filled(word, {**self._values, "checkpoint": checkpoint}) for word in settings.resume or ()
            ]
        if not self._start.is_dir():
            raise RayfishError(
                f"the folder {self._start} does not exist", "set program.folder to one that does"
            )
        self._reports: deque[dict[str, float]] = deque()
        self._count = _reports_before(before, task) if checkpoint else 0
        self._step = float(before.get("step", 0.0)) if checkpoint else 0.0
        self._noted = 0.0
        self._news, self._waited = time.monotonic(), _SHORTEST_WAIT_S
        self._log_size = 0
        self._ended = False
        log = self._folder / LOG
        metrics = MetricSettings(settings.metrics)
        self._metrics = Metrics(
            metrics,
            self._places(metrics.path),
            (log, log.stat().st_size if log.exists() else 0),
            metric=metric,
            count=self._count,
            owned=lambda paths: self._process.owned(paths),  # noqa: PLW0108 (there is no process yet)
        )
        own = {
            "RAYFISH_TRIAL": str(task.number),
            "RAYFISH_TRIAL_NAME": task.name,
            "RAYFISH_TRIAL_DIR": str(self._folder),
            "RAYFISH_SEED": str(built_in(task)["seed"]),
        }
        own |= {key: filled(text, self._values) for key, text in settings.env.items()}
        env = environment(resources.cpus, own)
        self._process = Process(words, self._start, log, env, settings.stop_grace_s)
        self._note("running", "", checkpoint=checkpoint or None)

    def step(self) -> Mapping[str, Any] | None:
        """The next report as soon as there is one; None when the program has ended well."""
        self._waited, asked = _SHORTEST_WAIT_S, time.monotonic()
        while not self._reports:
            code = self._process.poll()
            self._reports.extend(self._metrics.read(final=code is not None))
            if self._reports:
                break
            if code is not None:
                self._over(code)
                return None
            self._listen()
            if time.monotonic() - asked > _SILENT_S:
                return {}
            self._process.wait(self._waited)
            self._waited = min(1.5 * self._waited, _LONGEST_WAIT_S)
        self._news = time.monotonic()
        self._count += 1
        report = self._reports.popleft()
        self._step = report["step"]
        if self._news - self._noted > _NOTE_EVERY_S:  # should this process be killed
            self._noted = self._news
            self._note("running", "")
        return {**report, REPORTS: self._count}

    def save(self) -> str:
        """The newest of the program's own checkpoints that is not being written."""
        if self._checkpoints is None:
            return ""
        writing = self._process.open_files if self._process.poll() is None else set
        return newest(self._checkpoints, writing, since=self._there_before)

    def end(self, how: str, why: str) -> None:
        """Ends the program and everything it started."""
        if self._ended:
            return
        self._process.stop()
        self._ended = True
        self._note(how, why)

    def _over(self, code: int) -> None:
        """After the last report.

        :raises RayfishError: where the program failed, or reported nothing
        """
        if code != 0:
            raise self._failed(
                f"the program {ended(code)} after {_duration(self._process.seconds)}", hint_for(code)
            )
        if self._count == 0 and not self._resumed:  # else there may have been nothing left to do
            raise self._failed(
                f"the program ended well, but reported nothing: {self._metrics.described()}",
                "let it write below {folder} (RAYFISH_TRIAL_DIR), or set program.metrics.path and .source",
            )
        self._ended = True
        self._note(DONE, "")

    def _listen(self) -> None:
        """Fails a program from which nothing has come for too long."""
        try:
            size = (self._folder / LOG).stat().st_size
        except OSError:
            size = 0
        if size != self._log_size:
            self._log_size, self._news = size, time.monotonic()
        silent = time.monotonic() - self._news
        if silent > self._settings.silence_s:
            self._process.stop()
            raise self._failed(
                f"the program wrote neither output nor metrics for {_duration(silent)}, and was ended",
                f"if it needs that long, set program.silence_s above {self._settings.silence_s:g}",
            )

    def _failed(self, what: str, hint: str) -> RayfishError:
        self._ended = True
        self._note("failed", what)
        lines = shown(self._process.last_lines(), self._process.log)
        return RayfishError(f"{what}\n{shlex.join(self._process.command)}\n{lines}", hint)

    def _places(self, pattern: str | None) -> Places:
        """Where a pattern is looked for; it is sure to mean this trial only where it names it."""
        if not pattern:
            return Places(self._folder, self._start, None, names_trial=False)
        names_trial = bool(set(names_in([pattern])) & {"trial", "folder", "name"})
        below = Path(filled(pattern, self._values)).is_relative_to(self._folder)
        literal = {key: glob.escape(plain(value)) for key, value in self._values.items()}
        return Places(self._folder, self._start, filled(pattern, literal), names_trial or below)

    def _checkpoint_to_resume(self, task: Task) -> str:
        if self._settings.resume is None:
            return ""
        if task.donor:
            if not Path(task.donor).exists():
                raise RayfishError(
                    f"the checkpoint {task.donor} of another trial is gone",
                    "let the program keep more of its checkpoints",
                )
            return task.donor
        if not task.resume or self._checkpoints is None:
            return ""
        return newest(self._checkpoints, since=self._there_before)

    def _note(self, state: str, why: str, **more: Any) -> None:
        """Keeps what happened in the trial's `program.json`."""
        process = self._process
        record = {
            "command": process.command,
            "folder": str(self._start),
            "host": platform.node(),
            "pid": process.pid,
            "state": state,
            "why": why,
            "exit_code": process.code,
            "seconds": round(process.seconds, 3),
            "reports": self._count,
            "step": self._step,
            "last_lines": process.last_lines() if state != "running" else [],
            "there_before": self._there_before,
            **more,
        }
        old = _record(self._folder) if "checkpoint" not in more else {}
        text = json.dumps({**old, **record}, indent=2, ensure_ascii=False)
        try:
            atomic_write(self._folder / RECORD, text + "\n")
        except OSError as error:
            if "checkpoint" in more:
                self._process.stop()
                raise RayfishError(f"{self._folder} cannot be written: {error.strerror}") from error


def built_in(task: Task) -> dict[str, Any]:
    """What a command may name besides parameters."""
    return {
        "trial": task.number,
        "name": task.name,
        "folder": str(task.folder.absolute()),
        "seed": 0 if task.seed is None else task.seed,
    }


def _reports_before(before: Mapping[str, Any], task: Task) -> int:
    """How many reports a program that resumes has made; the sweep's count decides."""
    counted, (name, known) = int(before.get("reports", 0)), task.known_until
    by_count = name == REPORTS or (counted and counted == before.get("step"))  # it has no steps of its own
    if not by_count:
        return counted
    return int(known) if task.donor else max(counted, int(known))


def _record(folder: Path) -> dict[str, Any]:
    try:
        return read_keys(folder / RECORD)
    except (FileNotFoundError, Unreadable):
        return {}


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
