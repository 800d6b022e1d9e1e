"""The old experiment file (`<name>: {env, run, stop, config, ...}`): recognised and read, with its lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfish.experiment.files import read_marked, show
from rayfish.experiment.sections import SECTIONS

_PARTS = {"run": str | dict, "env": str | dict, "config": dict, "stop": dict}
"""What an experiment consists of; two of them tell one, whatever else stands beside them."""


@dataclass(frozen=True)
class OldExperiment:
    """One experiment of an old file, as it stands there.

    :param name: its name in the file
    :param values: `env`, `run`, `stop`, `config`, ...
    :param lines: dotted key inside the experiment -> its line in the file
    :param file: how the file is shown to people; "command line" where there is none
    """

    name: str
    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    file: str = "command line"

    def where(self, dotted: str) -> str:
        """File and line of a key; of what it stands in where the key came by an anchor (`<<`)."""
        while dotted and dotted not in self.lines:
            dotted = dotted.rpartition(".")[0]
        return f"{self.file}:{self.lines[dotted]}" if dotted else self.file


def is_old(values: Any) -> bool:
    """Whether a parsed YAML file is an old experiment file rather than one of today's."""
    if not isinstance(values, dict):
        return False
    others = [name for name, value in values.items() if not _is_experiment(value)]
    if any(name in SECTIONS for name in others):
        return False
    return _is_unnamed(values) or len(others) < len(values)


def read_old(file: Path) -> list[OldExperiment] | None:
    """The experiments of an old file in their order; None when it is a file of today."""
    values, lines = read_marked(file)
    if not is_old(values):
        return None
    shown = show(file)
    if _is_unnamed(values):
        return [OldExperiment(file.stem, values, lines, shown)]
    found = []
    for name, inner in values.items():
        if _is_experiment(inner):
            below = {
                key.removeprefix(f"{name}."): line
                for key, line in lines.items()
                if key.startswith(f"{name}.")
            }
            found.append(OldExperiment(str(name), inner, {**below, "": lines.get(name, 1)}, shown))
    return found


def _is_unnamed(values: Mapping[str, Any]) -> bool:
    """People also wrote one experiment straight into the file, without a name above it."""
    return isinstance(values.get("run"), str) and not isinstance(values.get("env"), Mapping | None)


def _is_experiment(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    parts = sum(isinstance(value.get(part), kind) for part, kind in _PARTS.items())
    return parts > 1 or (parts == 1 and "run" in value)
