"""The `program` section, checked: which command is tuned, and how it tells how it is doing."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rayfish.errors import ConfigError, Problem
from rayfish.experiment.sections import Keys, Section, key
from rayfish.sweep.settings import checked


class MetricSettings(Keys):
    """Where a program's metrics are found."""

    source: Literal["auto", "tensorboard", "json", "csv"] = key(
        "auto",
        "json: lines on its output, each an object with numbers, or of files named by path; tensorboard: "
        "event files; csv: files with a header. auto: the first of them in which the metric appears.",
    )
    path: str | None = key(
        None,
        "A pattern of files or folders ('logs/**'), looked for in the trial's folder, then where the program "
        "was started. null: everything in the trial's folder.",
    )
    step: str | None = key(
        None,
        "The column or key that says how far it is. null: step. Where there is none, reports are counted.",
    )
    rename: dict[str, str] = key({}, "Other names for metrics: {rollout/ep_rew_mean: score}.")


class ProgramSettings(Keys):
    """What is run and how."""

    command: str | list[str] = key(
        [],
        "What is run: one text, split into words as a shell would, or a list of words. {key} is a parameter, "
        "{trial} the trial's number, {folder} its own folder, {seed} its seed; {{ and }} are braces. "
        "`python` is the Python that Rayfish runs with. No shell reads it: for pipes write bash -c '...'.",
    )
    arguments: Literal["template", "hydra", "flags"] | None = key(
        None,
        "What becomes of parameters that the command does not name. hydra: key=value is appended; flags: "
        "--key value is (true: --key alone; false and null: nothing); template: they are refused. "
        "null: template where the command names a parameter, else hydra.",
    )
    folder: str | None = key(
        None,
        "Where it is started. null: where Rayfish was started; '{folder}': in the trial's own folder, which "
        "it also finds in RAYFISH_TRIAL_DIR.",
    )
    env: dict[str, str] = key({}, "Environment variables of its own, on top of those of Rayfish.")
    metrics: dict[str, Any] = key({}, "Where its metrics are found: source, path, step, rename.")
    checkpoints: str | None = key(
        None,
        "A pattern of files or folders, relative to the trial's folder; the newest is the trial's "
        "checkpoint. Outside that folder the pattern has to name the trial: 'models/{trial}/*.zip'.",
    )
    resume: str | list[str] | None = key(
        None,
        "Appended to the command when a trial goes on from a checkpoint: '--load {checkpoint}'. "
        "null: it cannot go on.",
    )
    silence_s: float = key(600.0, "Without output and metrics for so long, the trial fails.", "s")
    stop_grace_s: float = key(
        5.0, "Between SIGTERM and SIGKILL when a trial is ended, for its whole process group.", "s"
    )


FIELDS, METRIC_FIELDS = Section(ProgramSettings).own, Section(MetricSettings).own
REPORTS = "reports"
"""How many reports there were so far, besides the program's own `step`."""

BUILT_IN = ("trial", "folder", "seed", "name")
"""What a command may name besides parameters."""


def read(values: Mapping[str, Any], where: str = "") -> ProgramSettings:
    """The settings in a `program` section.

    :raises ConfigError: with everything that is wrong
    """
    from rayfish.sweep.program.command import names_in

    problems = checked(values, FIELDS, "program", where)
    metrics = values.get("metrics") or {}
    if isinstance(metrics, Mapping):
        problems += checked(metrics, METRIC_FIELDS, "program.metrics", where)
    command = words_in(values.get("command"), "program.command", problems, where)
    resume = words_in(values.get("resume"), "program.resume", problems, where)
    if not command and not any(problem.key == "program.command" for problem in problems):
        hint = "write it as you would in a shell: python train.py --lr {training.lr}"
        problems.append(Problem("program.command", "there is no command", hint, where))
    problems += _contradictions(values, command, resume, where)
    if problems:
        raise ConfigError(problems)
    named = set(names_in(command)) - set(BUILT_IN)
    given = {name: value for name, value in values.items() if value is not None}
    return ProgramSettings(
        given
        | {
            "command": tuple(command),
            "arguments": str(given.get("arguments") or ("template" if named else "hydra")).lower(),
            "env": {str(name): _environment_text(value) for name, value in given.get("env", {}).items()},
            "metrics": {name: value for name, value in metrics.items() if value is not None},
            "resume": tuple(resume) or None,
        }
    )


def words_in(value: Any, place: str, problems: list[Problem], where: str) -> list[str]:
    """A command's words, from a text or a list."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(word) for word in value]
    if not isinstance(value, str):
        return []
    try:
        return shlex.split(value)
    except ValueError as error:
        problems.append(Problem(place, f"cannot be split into words: {error}", "close the quotation", where))
        return []


_SHELL_WORDS = ("|", "||", "&&", "&", ";", ">", ">>", "2>&1", "<")


def _contradictions(
    values: Mapping[str, Any], command: Sequence[str], resume: Sequence[str], where: str
) -> list[Problem]:
    found: list[Problem] = []

    def wrong(key: str, what: str, hint: str) -> None:
        found.append(Problem(f"program.{key}", what, hint, where))

    shell = [word for word in command if word in _SHELL_WORDS]
    if shell:
        hint = f"give the whole command to one: bash -c {shlex.quote(' '.join(command))}"
        wrong("command", f"has the word {shell[0]}, which only a shell understands", hint)
    name, equals, _ = command[0].partition("=") if command else ("", "", "")
    if equals and "/" not in name:
        wrong("command", f"begins with {command[0]}", f"put {name} into program.env")
    if any("{checkpoint}" in word for word in command):
        hint = "name it in program.resume, which is appended when a trial goes on from one"
        wrong("command", "names {checkpoint}, which a new trial does not have", hint)
    if resume and not any("{checkpoint}" in word for word in resume):
        wrong("resume", "does not name {checkpoint}", "e.g. '--load {checkpoint}'")
    if resume and not values.get("checkpoints"):
        hint = "set program.checkpoints to a pattern of its files, such as models/*.zip"
        wrong("resume", "has no checkpoints to go on from", hint)
    return found


def _environment_text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)
