"""The old experiment file (`<name>: {env, run, stop, config, ...}`): recognised and read, with its lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfish.experiment.files import read_lenient, show
from rayfish.experiment.sections import SECTIONS

ALGORITHM_KEYS = ("run", "run_or_experiment", "algo", "algorithm")
"""What people called the algorithm, the usual name first."""

_PARTS = {**dict.fromkeys(ALGORITHM_KEYS, str | dict), "env": str | dict, "config": dict, "stop": dict}
"""What an experiment consists of; two of them tell one, whatever else stands beside them."""


@dataclass(frozen=True)
class OldExperiment:
    """One experiment of an old file, as it stands there.

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
        """File and line of a key; of what it stands in where the key came by an anchor (`<<`)."""
        while dotted and dotted not in self.lines:
            dotted = dotted.rpartition(".")[0]
        return f"{self.file}:{self.lines[dotted]}" if dotted in self.lines else self.file


def is_old(values: Any) -> bool:
    """Whether a parsed YAML file is an old experiment file rather than one of today's."""
    if not isinstance(values, dict):
        return False
    others = [name for name, value in values.items() if not _is_experiment(value)]
    if _is_unnamed(values):
        return True
    return len(others) < len(values) and not any(name in SECTIONS for name in others)


def read_old(file: Path) -> list[OldExperiment] | None:
    """The experiments of an old file in their order; None when it is a file of today."""
    read = read_lenient(file)
    if read is None or not is_old(read.values):
        return None
    values, shown = read.values, show(file)
    if _is_unnamed(values):
        return [OldExperiment(file.stem, values, read.lines, shown, twice=tuple(read.twice))]
    beside = tuple(str(name) for name, inner in values.items() if not _is_experiment(inner))
    return [
        OldExperiment(
            str(name),
            inner,
            {**dict(_below(name, read.lines)), "": read.lines.get(str(name), 1)},
            shown,
            beside,
            tuple(key.removeprefix(f"{name}.") for key in read.twice if key.startswith(f"{name}.")),
        )
        for name, inner in values.items()
        if _is_experiment(inner)
    ]


def _below(name: Any, lines: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    prefix = f"{name}."
    return ((key.removeprefix(prefix), line) for key, line in lines.items() if key.startswith(prefix))


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
