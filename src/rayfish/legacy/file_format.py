"""The old experiment file (`<name>: {env, run, stop, config, ...}`): recognised and read, with its lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfish.errors import ConfigError, Problem, did_you_mean
from rayfish.experiment import tree
from rayfish.experiment.files import read_lenient, show
from rayfish.experiment.sections import SECTIONS

ALGORITHM_KEYS = ("run", "run_or_experiment", "algo", "algorithm")
"""What people called the algorithm, the usual name first."""

_PARTS = {**dict.fromkeys(ALGORITHM_KEYS, str | dict), "env": str | dict, "config": dict, "stop": dict}
"""What an experiment consists of; two of these keys make one, whatever else is there."""


@dataclass(frozen=True)
class OldExperiment:
    """One experiment of an old file, as it is written there.

    :param name: its name in the file; "" for one of the command line that is given none
    :param values: `env`, `run`, `stop`, `config`, ...
    :param lines: dotted key inside the experiment -> its line in the file
    :param file: how the file is shown to people; "command line" where there is none
    :param beside: what the file holds besides experiments: anchors, a version, ...
    :param twice: keys of this experiment that are written twice
    """

    name: str
    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    file: str = "command line"
    beside: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()

    def where(self, dotted: str) -> str:
        """File and line of a key; those of the section around it where the key came by an anchor (`<<`)."""
        line = tree.nearest(self.lines, dotted)
        return self.file if line is None else f"{self.file}:{line}"


def read_old(file: Path) -> list[OldExperiment] | None:
    """The experiments of an old file in their order; None when it is a file of today."""
    read = read_lenient(file)
    if read is None or not isinstance(read[0], dict):
        return None
    (values, all_lines, all_twice), shown = read, show(file)
    if _is_unnamed(values):
        return [OldExperiment(file.stem, values, all_lines, shown, twice=tuple(all_twice))]
    beside = tuple(str(name) for name, inner in values.items() if not _is_experiment(inner))
    if len(beside) == len(values) or any(name in SECTIONS for name in beside):
        return None

    def old(name: str, inner: Mapping[str, Any]) -> OldExperiment:
        prefix = f"{name}."
        lines = {key.removeprefix(prefix): n for key, n in all_lines.items() if key.startswith(prefix)}
        twice = tuple(key.removeprefix(prefix) for key in all_twice if key.startswith(prefix))
        return OldExperiment(name, inner, {**lines, "": all_lines.get(name, 1)}, shown, beside, twice)

    return [old(str(name), inner) for name, inner in values.items() if _is_experiment(inner)]


def split_member(name: str) -> tuple[str, str]:
    """`old.yaml:cartpole-ppo` as file and experiment; the experiment is "" where none is named."""
    found = re.fullmatch(r"(?P<file>.+\.ya?ml):(?P<member>.+)", name)
    return (found["file"], found["member"]) if found else (name, "")


def chosen(experiments: list[OldExperiment], member: str, file: Path) -> OldExperiment:
    """The experiment of that name; with "" the only one.

    :raises ConfigError: there is none of that name, or there are several and none is named
    """
    names = [old.name for old in experiments]
    if member:
        if member not in names:
            close = did_you_mean(member, names)
            hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"
            raise ConfigError([Problem(show(file), f"there is no experiment {member!r} in it", hint)])
        return experiments[names.index(member)]
    if len(experiments) > 1:
        what = f"holds {len(experiments)} experiments: {', '.join(names)}"
        raise ConfigError([Problem(show(file), what, f"name one: {show(file)}:{names[0]}")])
    return experiments[0]


def _is_unnamed(values: Mapping[str, Any]) -> bool:
    """People also wrote one experiment straight into the file, without a name above it."""
    return isinstance(values.get("run"), str) and (
        isinstance(values.get("env"), str) or isinstance(values.get("config"), dict)
    )


def _is_experiment(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    parts = sum(isinstance(value.get(part), kind) for part, kind in _PARTS.items())
    return parts > 1 or (parts == 1 and "run" in value)
