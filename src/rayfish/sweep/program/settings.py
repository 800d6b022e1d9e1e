"""The `program` section, checked: which command is tuned, and how it tells how it is doing."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayfish.errors import ConfigError, Problem, did_you_mean
from rayfish.experiment.sections import Field

FIELDS: dict[str, Field] = {
    "command": Field(
        "str | list",
        None,
        "What is run: one text, split into words as a shell would, or a list of words. {key} is a parameter, "
        "{trial} the trial's number, {folder} its own folder, {seed} its seed; {{ and }} are braces. "
        "`python` is the Python that Rayfish runs with. No shell reads it: for pipes write bash -c '...'.",
    ),
    "arguments": Field(
        "str | null",
        None,
        "What becomes of parameters that the command does not name. hydra: key=value is appended; flags: "
        "--key value is (true: --key alone; false and null: nothing); template: they are refused. "
        "null: template where the command names a parameter, else hydra.",
        choices=("template", "hydra", "flags"),
    ),
    "folder": Field(
        "str | null",
        None,
        "Where it is started. null: where Rayfish was started; '{folder}': in the trial's own folder, which "
        "it also finds in RAYFISH_TRIAL_DIR.",
    ),
    "env": Field("dict", {}, "Environment variables of its own, on top of those of Rayfish."),
    "metrics": Field("dict", {}, "Where its metrics are found: source, path, step, rename."),
    "checkpoints": Field(
        "str | null",
        None,
        "A pattern of files or folders, relative to the trial's folder; the newest is the trial's "
        "checkpoint. Outside that folder the pattern has to name the trial: 'models/{trial}/*.zip'.",
    ),
    "resume": Field(
        "str | list | null",
        None,
        "Appended to the command when a trial goes on from a checkpoint: '--load {checkpoint}'. "
        "null: it cannot go on.",
    ),
    "silence_s": Field("float", 600.0, "Without output and metrics for so long, the trial fails.", "s"),
    "stop_grace_s": Field(
        "float", 5.0, "Between SIGTERM and SIGKILL when a trial is ended, for its whole process group.", "s"
    ),
}
METRIC_FIELDS: dict[str, Field] = {
    "source": Field(
        "str",
        "auto",
        "json: lines on its output, each an object with numbers, or of files named by path; tensorboard: "
        "event files; csv: files with a header. auto: the first of them in which the metric appears.",
        choices=("auto", "tensorboard", "json", "csv"),
    ),
    "path": Field(
        "str | null",
        None,
        "A pattern of files or folders ('logs/**'), looked for in the trial's folder, then where the program "
        "was started. null: everything in the trial's folder.",
    ),
    "step": Field(
        "str | null",
        None,
        "The column or key that says how far it is. null: step. Where there is none, reports are counted.",
    ),
    "rename": Field("dict", {}, "Other names for metrics: {rollout/ep_rew_mean: score}."),
}
REPORTS = "reports"
"""How many reports there were so far, beside the program's own `step`."""

BUILT_IN = ("trial", "folder", "seed", "name")
"""What a command may name besides parameters."""

_KINDS: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "list": (list, tuple),
    "dict": Mapping,
    "bool": bool,
    "float": (int, float),
    "null": type(None),
}


@dataclass(frozen=True)
class MetricSettings:
    """Where metrics are found; each field is documented in `METRIC_FIELDS`, once."""

    source: str = "auto"
    path: str | None = None
    step: str | None = None
    rename: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramSettings:
    """What is run and how; each field is documented in `FIELDS`, once."""

    command: tuple[str, ...]
    arguments: str
    folder: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    metrics: MetricSettings = field(default_factory=MetricSettings)
    checkpoints: str | None = None
    resume: tuple[str, ...] | None = None
    silence_s: float = 600.0
    stop_grace_s: float = 5.0


def read(values: Mapping[str, Any], where: str = "") -> ProgramSettings:
    """The settings in a `program` section.

    :raises ConfigError: with everything that is wrong
    """
    from rayfish.sweep.program.command import names_in

    problems: list[Problem] = checked(values, FIELDS, "program", where)
    metrics = values.get("metrics") or {}
    if isinstance(metrics, Mapping):
        problems += checked(metrics, METRIC_FIELDS, "program.metrics", where)
    command = _words(values.get("command"), "program.command", problems, where)
    resume = _words(values.get("resume"), "program.resume", problems, where)
    if not command and not any(problem.key == "program.command" for problem in problems):
        hint = "write it as you would in a shell: python train.py --lr {training.lr}"
        problems.append(Problem("program.command", "there is no command", hint, where))
    problems += _contradictions(values, command, resume, where)
    if problems:
        raise ConfigError(problems)
    named = set(names_in(command)) - set(BUILT_IN)
    given = {key: value for key, value in values.items() if value is not None}
    return ProgramSettings(
        command=tuple(command),
        arguments=str(given.get("arguments") or ("template" if named else "hydra")).lower(),
        folder=given.get("folder"),
        env={str(key): _environment_text(value) for key, value in given.get("env", {}).items()},
        metrics=MetricSettings(**{key: value for key, value in metrics.items() if value is not None}),
        checkpoints=given.get("checkpoints"),
        resume=tuple(resume) if resume else None,
        silence_s=float(given.get("silence_s", FIELDS["silence_s"].default)),
        stop_grace_s=float(given.get("stop_grace_s", FIELDS["stop_grace_s"].default)),
    )


def checked(
    values: Mapping[str, Any], known: Mapping[str, Field], section: str, where: str = ""
) -> list[Problem]:
    """What is wrong with a section's keys and with the kinds of their values."""
    problems = []
    for key, value in values.items():
        name = f"{section}.{key}" if section else str(key)
        if key not in known:
            close = did_you_mean(str(key), known)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            problems.append(Problem(name, "there is no such key", hint, where))
            continue
        rule = known[key]
        allowed: tuple[type, ...] = ()
        for kind in rule.type.split(" | "):
            found = _KINDS.get(kind, object)
            allowed += found if isinstance(found, tuple) else (found,)
        wrong_bool = isinstance(value, bool) and "bool" not in rule.type
        if value is not None and (wrong_bool or not isinstance(value, allowed)):
            problems.append(Problem(name, f"takes {rule.type}, not {value!r}", "", where))
        elif value is not None and rule.choices and str(value).lower() not in rule.choices:
            close = did_you_mean(str(value).lower(), rule.choices)
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(rule.choices)}"
            problems.append(Problem(name, f"cannot be {value!r}", hint, where))
        elif rule.type == "float" and isinstance(value, int | float) and not 0 < value < math.inf:
            problems.append(Problem(name, f"is {value}", "give a number above 0", where))
    return problems


def _words(value: Any, key: str, problems: list[Problem], where: str) -> list[str]:
    """A command's words, from a text or a list."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(word) for word in value]
    if not isinstance(value, str):
        return []
    try:
        return shlex.split(value)
    except ValueError as error:
        problems.append(Problem(key, f"cannot be split into words: {error}", "close the quotation", where))
        return []


_SHELL_WORDS = ("|", "||", "&&", "&", ";", ">", ">>", "2>&1", "<")


def _contradictions(
    values: Mapping[str, Any], command: Sequence[str], resume: Sequence[str], where: str
) -> list[Problem]:
    found = []
    shell = [word for word in command if word in _SHELL_WORDS]
    if shell:
        what = f"has the word {shell[0]}, which only a shell understands"
        hint = f"give the whole command to one: bash -c {shlex.quote(' '.join(command))}"
        found.append(Problem("program.command", what, hint, where))
    if command and "=" in command[0] and "/" not in command[0].partition("=")[0]:
        name = command[0].partition("=")[0]
        found.append(
            Problem("program.command", f"begins with {command[0]}", f"put {name} into program.env", where)
        )
    if any("{checkpoint}" in word for word in command):
        hint = "name it in program.resume, which is appended when a trial goes on from one"
        found.append(
            Problem("program.command", "names {checkpoint}, which a new trial does not have", hint, where)
        )
    if resume and not any("{checkpoint}" in word for word in resume):
        found.append(
            Problem("program.resume", "does not name {checkpoint}", "e.g. '--load {checkpoint}'", where)
        )
    if resume and not values.get("checkpoints"):
        hint = "set program.checkpoints to a pattern of its files, such as models/*.zip"
        found.append(Problem("program.resume", "has no checkpoints to go on from", hint, where))
    return found


def _environment_text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)
