"""The flags of `rllib train` that have no place among today's: taken off the line before it is parsed.

`rllib train --run PPO --env CartPole-v1 --stop '{"training_iteration": 5}' --config '{...}'` described an
experiment as old files do, so it becomes one and is translated like them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rayfish.cli.old_flags import parse_mapping
from rayfish.errors import RayfishError

if TYPE_CHECKING:
    from rayfish.experiment.old.form import OldExperiment

_TEXT = {
    "--run": "run",
    "--algo": "run",
    "--env": "env",
    "--experiment-name": "name",
    "--checkpoint-score-attr": "checkpoint_score_attr",
    "--upload-dir": "upload_dir",
    "--restore": "restore",
    "--scheduler": "scheduler",
    "--export-formats": "export_formats",
    "--framework": "framework",
}
_WHOLE = {
    "--num-samples": "num_samples",
    "--keep-checkpoints-num": "keep_checkpoints_num",
    "--max-failures": "max_failures",
}
_NESTED = {"--stop": "stop", "--config": "config", "--resources-per-trial": "resources_per_trial"}
_FRAMEWORKS = {"--torch": "torch", "--tf": "tf", "--eager": "tfe", "--tf2": "tf2"}
_SAID = {
    "-v": "", "-vv": "", "--verbose": "", "--trace": "", "--no-ray-ui": "", "--ray-ui": "",
    "--queue-trials": "", "--no-restore": "",
}  # fmt: skip
_VALUED = {
    "--ray-num-nodes": "this machine is one node; a cluster is given by --on ADDRESS",
    "--ray-num-local-schedulers": "Ray has none any more",
    "--ray-redis-max-memory": "Ray has no Redis any more",
    "--redis-max-memory": "Ray has no Redis any more",
    "--ray-memory": "Ray hands out memory by itself",
    "--scheduler-config": "`rayfish tune` comes with schedulers of its own",
    "--bind-all": "",
}
_ADDRESS = ("--ray-address", "--redis-address")


@dataclass
class OldLine:
    """What old flags on a line say.

    :param values: an experiment in the old form; empty where none of its flags were given
    :param notes: lines to tell the user
    """

    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def experiment(self) -> OldExperiment | None:
        """The experiment the flags describe, None where they describe none."""
        from rayfish.experiment.old.form import OldExperiment

        if not self.values:
            return None
        values = dict(self.values)
        name = str(values.pop("name", None) or values.get("run") or "default")
        if "run" not in values:
            raise RayfishError(f"{_flags(values)} is given without an algorithm", "add --run PPO, say")
        framework = values.pop("framework", None)
        if framework:
            values["config"] = {"framework": framework, **(values.get("config") or {})}
        return OldExperiment(name, values)

    def overrides(self, file: str) -> list[str]:
        """The flags beside a file, as settings; those that describe another experiment are refused."""
        simple = {"env": "environment.env", "name": "runtime.name"}
        harmless = {"run", "framework", "upload_dir", "max_failures", "resources_per_trial"}
        other = {key: value for key, value in self.values.items() if key not in simple.keys() | harmless}
        if other:
            raise RayfishError(
                f"{file} is an experiment, and {_flags(other)} describes another",
                "write changes as settings: stop_conditions.training_iteration=5, training.lr=0.001",
            )
        aside = {key: value for key, value in self.values.items() if key in harmless}
        self.notes += [f"{_flags(aside)} left aside: {file} says it itself"] if aside else []
        return [f"{today}={self.values[key]}" for key, today in simple.items() if key in self.values]


def take(words: Sequence[str]) -> tuple[list[str], OldLine]:
    """The words of `rayfish train` without old flags, and what those say."""
    left: list[str] = []
    line = OldLine()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in _FRAMEWORKS and not equals:
            line.values["framework"] = _FRAMEWORKS[name]
        elif word in _SAID:
            continue
        elif name in (*_TEXT, *_WHOLE, *_NESTED, *_VALUED, *_ADDRESS):
            if not equals:
                if not rest:
                    raise RayfishError(f"{name} needs a value", "`rayfish train --help` says which")
                value = rest.pop(0)
            left += _one(line, name, value)
        else:
            left.append(word)
    if left[:1] == ["file"] and len(left) > 1:  # `rllib train file x.yaml`, the way of Ray 2.2 to 2.9
        left = left[1:]
    return left, line


def _one(line: OldLine, name: str, value: str) -> list[str]:
    """Takes one flag with its value; gives the words it means today."""
    if name in _ADDRESS:
        return ["--on", value]
    if name in _VALUED:
        line.notes += [f"{name} {value}: {_VALUED[name]}"] if _VALUED[name] else []
    elif name in _WHOLE:
        if not value.isdigit():
            raise RayfishError(f"{name} is {value!r}, but takes a whole number", f"{name} 1")
        line.values[_WHOLE[name]] = int(value)
    elif name in _NESTED:
        line.values[_NESTED[name]] = parse_mapping(name, value)
    else:
        line.values[_TEXT[name]] = value
    return []


def _flags(values: Mapping[str, Any]) -> str:
    names = {key: flag for flags in (_TEXT, _WHOLE, _NESTED) for flag, key in flags.items()}
    return " ".join(names.get(key, key) for key in values)
