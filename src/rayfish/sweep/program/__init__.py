"""Any training program as what is tuned: a command, where its metrics are, how it resumes.

settings     the `program` section, checked      process      a command under its guardian
command      a point becomes a command's words   guardian     ends all of it with its owner
sources      which files are read                tensorboard, tables   how they are read
work         one trial
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayfish.errors import ConfigError, Problem, RayfishError, did_you_mean, suggest
from rayfish.sweep.amounts import resources_of
from rayfish.sweep.program import settings as section
from rayfish.sweep.program.command import names_in, words_of
from rayfish.sweep.program.process import PYTHONS, executable
from rayfish.sweep.program.settings import BUILT_IN, MetricSettings
from rayfish.sweep.program.work import ProgramWork
from rayfish.sweep.task import Resources, Target, Task, Work


class Program(Target):
    """A command that is run once per trial.

    :param metric: what the sweep looks at; where known, the source of metrics that has it is the one read
    :param where: where the section was written, for messages
    :raises ConfigError: with everything that is wrong with the section
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        resources: Mapping[str, Any] | None = None,
        metric: str | None = None,
        where: str = "",
    ) -> None:
        problems: list[Problem] = []
        try:
            self.settings = section.read(values, where)
        except ConfigError as error:
            problems += error.problems
        try:
            self._resources = resources_of(resources or {}, where)
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise ConfigError(problems)
        self.metric = metric or ""
        self.where = where
        self.can_resume = self.settings.resume is not None
        self._start = Path.cwd()

    def begin(self, task: Task) -> Work:
        """Starts the program for a trial.

        :raises RayfishError: it cannot be started
        """
        return ProgramWork(self.settings, task, self.metric, self._resources, self._start)

    def resources(self, params: Mapping[str, Any]) -> Resources:
        """What a trial holds, the same at each point."""
        return self._resources

    @property
    def title(self) -> str:
        """What is tuned, in one line."""
        return " ".join(shlex.quote(w) if not w or " " in w else w for w in self.settings.command)

    def command_line(self, params: Mapping[str, Any]) -> str:
        """The command at a point, to run it by hand in a folder of its own, `best`."""
        by_hand = {"trial": 0, "name": "best", "folder": "best", "seed": 0}
        return shlex.join(words_of(self.settings.command, self.settings.arguments, params, by_hand))

    def problems(self, keys: list[str]) -> list[Problem]:
        """What is known to be wrong before anything is started.

        :param keys: the parameters that vary
        """
        settings = self.settings
        found = [*self._unknown_names(keys), *self._unused(keys)]
        folder = self._start / Path(settings.folder or "").expanduser()
        if not names_in([settings.folder or ""]):
            if not folder.is_dir():
                hint = "make it, or leave program.folder out"
                found.append(Problem("program.folder", f"{folder} does not exist", hint, self.where))
            found += self._not_found(folder)
        return found

    def _unknown_names(self, keys: list[str]) -> list[Problem]:
        settings = self.settings
        texts = {
            "program.command": list(settings.command),
            "program.resume": list(settings.resume or ()),
            "program.folder": [settings.folder or ""],
            "program.checkpoints": [settings.checkpoints or ""],
            "program.metrics.path": [MetricSettings(settings.metrics).path or ""],
            **{f"program.env.{key}": [text] for key, text in settings.env.items()},
        }
        found = []
        for place, words in texts.items():
            known = [*keys, *BUILT_IN, *(["checkpoint"] if place == "program.resume" else [])]
            for name in names_in(words):
                if name not in known:
                    every = f"there are {', '.join(known)}; a brace of its own is written {{{{ or }}}}"
                    close = did_you_mean(name, known, most=1)
                    hint = f"did you mean {{{close[0]}}}?" if close else every
                    what = f"names {{{name}}}, which does not vary"
                    found.append(Problem(place, what, hint, self.where))
        return found

    def _unused(self, keys: list[str]) -> list[Problem]:
        settings = self.settings
        if settings.arguments != "template":
            return []
        named = set(names_in([*settings.command, *settings.env.values()]))
        hint = "name it in program.command as {%s}, or set program.arguments to hydra or flags"
        return [
            Problem(f"tunables.{key}", "nothing uses this parameter", hint % key, self.where)
            for key in keys
            if key not in named
        ]

    def _not_found(self, folder: Path) -> list[Problem]:
        words = self.settings.command
        if names_in(words[:1]):
            return []
        try:
            executable(words[0], folder, {**os.environ, **self.settings.env})
        except RayfishError as error:
            return [Problem("program.command", error.what, error.hint, self.where)]
        script = words[1] if len(words) > 1 and words[0] in PYTHONS else ""
        if script.endswith(".py") and not names_in([script]) and not (folder / script).is_file():
            there = [path.name for path in folder.glob("*.py")] if folder.is_dir() else []
            hint = suggest(script, there, f"looked in {folder}; set program.folder")
            return [Problem("program.command", f"the script {script} does not exist", hint, self.where)]
        return []
