"""One trial of a program: its process, its reports, its checkpoint, its end."""

from __future__ import annotations

import json
import os
import platform
import shlex
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError
from rayfish.files import atomic_write
from rayfish.sweep.program.command import filled, names_in, words_of
from rayfish.sweep.program.process import Process, ended, hint_for, shown
from rayfish.sweep.program.settings import REPORTS, ProgramSettings
from rayfish.sweep.program.sources import LOG, RECORD, Metrics, Places, newest
from rayfish.sweep.work import DONE, Resources, Task, Work

_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.02, 0.2


class ProgramWork(Work):
    """A program that runs beside this process, for one trial.

    :param settings: what is run, and where its metrics are
    :param task: the trial
    :param metric: the name of the metric that counts, "" where nobody has said
    :param resources: what the trial holds
    """

    def __init__(self, settings: ProgramSettings, task: Task, metric: str, resources: Resources) -> None:
        self._settings = settings
        self._folder = task.folder.absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._values = {**built_in(task), **task.params}
        start = Path(filled(settings.folder, self._values)) if settings.folder else Path.cwd()
        self._start = start.expanduser().absolute()
        before = _record(self._folder)
        checkpoint = self._checkpoint_to_go_on_from(task)
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
        self._count = int(before.get("reports", 0)) if checkpoint else 0
        self._step = 0.0
        self._news, self._waited = time.monotonic(), _SHORTEST_WAIT_S
        self._log_size = 0
        self._ended = False
        log = self._folder / LOG
        self._metrics = Metrics(
            settings.metrics,
            self._places(settings.metrics.path),
            (log, log.stat().st_size if log.exists() else 0),
            metric=metric,
            count=self._count,
            owned=lambda paths: self._process.owned(paths),  # noqa: PLW0108 (there is no process yet)
        )
        env = environment(settings, task, resources)
        self._process = Process(words, self._start, log, env, settings.stop_grace_s)
        self._note("running", "", checkpoint=checkpoint or None)

    def step(self) -> Mapping[str, Any] | None:
        """The next report as soon as there is one; None when the program has ended well."""
        self._waited = _SHORTEST_WAIT_S
        while not self._reports:
            code = self._process.poll()
            self._reports.extend(self._metrics.read(final=code is not None))
            if self._reports:
                break
            if code is not None:
                self._over(code)
                return None
            self._listen()
            self._process.wait(self._waited)
            self._waited = min(1.5 * self._waited, _LONGEST_WAIT_S)
        self._news = time.monotonic()
        self._count += 1
        report = self._reports.popleft()
        self._step = report["step"]
        return {**report, REPORTS: self._count}

    def save(self) -> str:
        """The newest of the program's own checkpoints that is not being written."""
        if self._settings.checkpoints is None:
            return ""
        running = self._process.poll() is None
        return newest(self._places(self._settings.checkpoints), self._process.open_files if running else set)

    def end(self, how: str, why: str) -> None:
        """Ends the program and everything it started."""
        if self._ended:
            return
        self._process.stop()
        self._ended = True
        self._note(how, why)

    def _over(self, code: int) -> None:
        """After the last report: nothing more to say when all went well.

        :raises RayfishError: when not
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
                f"the program gave neither output nor metrics for {_duration(silent)}, and was ended",
                f"if it needs that long, set program.silence_s above {self._settings.silence_s:g}",
            )

    def _failed(self, what: str, hint: str) -> RayfishError:
        self._ended = True
        self._note("failed", what)
        lines = shown(self._process.last_lines(), self._process.log)
        return RayfishError(f"{what}\n{shlex.join(self._process.command)}\n{lines}", hint)

    def _places(self, pattern: str | None) -> Places:
        """Where a pattern is looked for; it can mean one trial only when it names it."""
        text = filled(pattern, self._values) if pattern else None
        names_trial = bool(pattern and set(names_in([pattern])) & ({"trial", "folder", "name"}))
        if text and Path(text).is_relative_to(self._folder):
            names_trial = True
        return Places(self._folder, self._start, text, names_trial)

    def _checkpoint_to_go_on_from(self, task: Task) -> str:
        if self._settings.resume is None:
            return ""
        if task.donor:
            if not Path(task.donor).exists():
                raise RayfishError(
                    f"the checkpoint {task.donor} of another trial is gone",
                    "let the program keep more of its checkpoints",
                )
            return task.donor
        if not task.resume or self._settings.checkpoints is None:
            return ""
        return newest(self._places(self._settings.checkpoints))

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
            **more,
        }
        old = _record(self._folder) if state != "running" else {}
        text = json.dumps({**old, **record}, indent=2, ensure_ascii=False)
        try:
            atomic_write(self._folder / RECORD, text + "\n")
        except OSError as error:
            if state == "running":
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


def environment(settings: ProgramSettings, task: Task, resources: Resources) -> dict[str, str]:
    """The program's environment: that of this process, the trial's own, and what the settings say."""
    own = {
        "PYTHONUNBUFFERED": "1",
        "RAYFISH_TRIAL": str(task.number),
        "RAYFISH_TRIAL_NAME": task.name,
        "RAYFISH_TRIAL_DIR": str(task.folder.absolute()),
        "RAYFISH_SEED": str(built_in(task)["seed"]),
    }
    if resources.cpus >= 1:
        own["OMP_NUM_THREADS"] = str(int(resources.cpus))
    values = {**built_in(task), **task.params}
    return {**os.environ, **own, **{key: filled(text, values) for key, text in settings.env.items()}}


def _record(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
