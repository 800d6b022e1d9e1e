"""The flags of `rllib train` that have no place among today's: taken off the line before it is parsed.

`rllib train --run PPO --env CartPole-v1 --stop '{"training_iteration": 5}' --config '{...}'` described an
experiment as old files do, so it becomes one and is translated like them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rayfish.errors import RayfishError
from rayfish.legacy.evaluate_flags import parse_mapping

if TYPE_CHECKING:
    from rayfish.legacy.file_format import OldExperiment

_TEXT = {
    "--run": "run",
    "--algo": "run",
    "--env": "env",
    "--experiment-name": "name",
    "--checkpoint-score-attr": "checkpoint_score_attr",
    "--upload-dir": "upload_dir",
    "--scheduler": "scheduler",
    "--export-formats": "export_formats",
    "--framework": "framework",
}
_SAMPLES = "--num-samples"
_WHOLE = {
    _SAMPLES: "num_samples",
    "--keep-checkpoints-num": "keep_checkpoints_num",
    "--max-failures": "max_failures",
}
_NESTED = {"--stop": "stop", "--config": "config", "--resources-per-trial": "resources_per_trial"}
_FRAMEWORKS = {"--torch": "torch", "--tf": "tf", "--eager": "tfe", "--tf2": "tf2"}
_WITHOUT_EFFECT = (
    *("-v", "-vv", "--verbose", "--trace", "--no-ray-ui", "--ray-ui", "--queue-trials", "--no-restore"),
    *("--sync-on-checkpoint", "--no-sync-on-checkpoint"),
)
_NO_WANDB = "nothing is sent to Weights & Biases; the curves are in the run's events/ and metrics.jsonl"
_VALUED = {
    "--ray-num-nodes": "this machine is one node; a cluster is given by --on ADDRESS",
    "--ray-num-local-schedulers": "Ray has none any more",
    "--ray-redis-max-memory": "Ray has no Redis any more",
    "--redis-max-memory": "Ray has no Redis any more",
    "--ray-memory": "Ray hands out memory by itself",
    "--scheduler-config": "`rayfish tune` comes with schedulers of its own",
    "--bind-all": "",
    **dict.fromkeys(("--wandb-project", "--wandb-run-name"), _NO_WANDB),
    "--wandb-key": "",
}
_AS_TODAY = {"--ray-address": "--on", "--redis-address": "--on", "--config-file": "-f"}
_TYPE = "--type"
_SETTINGS = {"env": "environment.env", "name": "runtime.name"}


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
        from rayfish.legacy.file_format import OldExperiment

        if not self.values:
            return None
        values = dict(self.values)
        if values.keys() <= _SETTINGS.keys():
            return None  # they are settings, of no old experiment
        name = str(values.pop("name", None) or "")
        if "run" not in values:
            raise RayfishError(f"{_flags(values)} is given without an algorithm", "add --run PPO")
        framework = values.pop("framework", None)
        if framework:
            values["config"] = {"framework": framework, **(values.get("config") or {})}
        return OldExperiment(name, values)

    @property
    def flags(self) -> str:
        """The flags that were given, in one line."""
        return _flags(self.values)

    def overrides(self, file: str) -> list[str]:
        """The flags beside a file, as settings; those that describe another experiment are refused."""
        harmless = {"run", "framework", "upload_dir", "max_failures", "resources_per_trial"}
        other = {key: value for key, value in self.values.items() if key not in _SETTINGS.keys() | harmless}
        if other:
            raise RayfishError(
                f"{file} is an experiment, and {_flags(other)} describes another",
                "write changes as settings: stop_conditions.training_iteration=5, training.lr=0.001",
            )
        aside = {key: value for key, value in self.values.items() if key in harmless}
        self.notes += [f"{_flags(aside)} left aside: {file} says it itself"] if aside else []
        return [f"{today}={self.values[key]}" for key, today in _SETTINGS.items() if key in self.values]

    def settings(self) -> list[str]:
        """The flags that are settings of any experiment, where they describe none of their own."""
        return [] if self.values.keys() - _SETTINGS.keys() else self.overrides("")


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
        elif word in _WITHOUT_EFFECT:
            continue
        elif word == "--resume" and (not rest or rest[0].startswith("-")):
            hint = "--resume last, or a run's path, name or id"
            raise RayfishError("--resume does not say which run", hint)
        elif name in (*_TEXT, *_WHOLE, *_NESTED, *_VALUED, *_AS_TODAY, _TYPE):
            if not equals:
                if not rest:
                    raise RayfishError(f"{name} needs a value", "`rayfish train --help` says which")
                value = rest.pop(0)
            left += _one(line, name, value)
        else:
            left.append(word)
    by_file = left[:1] == ["file"] and len(left) > 1  # `rllib train file x.yaml`, as in Ray 2.2 to 2.9
    return left[1:] if by_file else left, line


def _one(line: OldLine, name: str, value: str) -> list[str]:
    """Takes one flag with its value; gives the words it means today."""
    if name in _AS_TODAY:
        return [_AS_TODAY[name], value]
    if name == _TYPE and value.lower() != "yaml":
        hint = "write it as an experiment file, or train from Python: rayfish.Trainer(PPOConfig())"
        raise RayfishError(f"--type {value} runs a file of code, which `rayfish train` does not", hint)
    if name in _VALUED:
        line.notes += [f"{name} {value}: {_VALUED[name]}"] if _VALUED[name] else []
    elif name in _WHOLE:
        if not value.isdigit() or (name == _SAMPLES and int(value) < 1):
            least = ", 1 or more" if name == _SAMPLES else ""
            raise RayfishError(f"{name} is {value!r}, but takes a whole number{least}", f"{name} 1")
        count = int(value)
        if name != _SAMPLES:
            line.values[_WHOLE[name]] = count
        elif count > 1:  # every trial was repeated; so does --seeds, with a seed for each
            note = f"{_SAMPLES} {count}: {count} runs in turn, each with a seed of its own (--seeds {count})"
            line.notes.append(note)
            return ["--seeds", str(count)]
    elif name == _TYPE:
        pass
    elif name in _NESTED:
        line.values[_NESTED[name]] = parse_mapping(name, value)
    else:
        line.values[_TEXT[name]] = value
    return []


def _flags(values: Mapping[str, Any]) -> str:
    names: dict[str, str] = {}
    for flag, key in (*_TEXT.items(), *_WHOLE.items(), *_NESTED.items()):
        names.setdefault(key, flag)
    return " ".join(names.get(key, key) for key in values)
