"""Words of the command line that do not fit its verbs and options, in the form of all other errors."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from rayfish.errors import RayfishError, did_you_mean

# Typer brings a parser of its own or uses Click, by version; its exceptions lead to the right class.
ClickException: type[Any] = next(c for c in typer.BadParameter.mro() if c.__name__ == "ClickException")

_OTHER_VERBS = {
    **dict.fromkeys(("run", "learn", "fit", "start"), ("train",)),
    **dict.fromkeys(("eval", "test", "score", "benchmark"), ("evaluate",)),
    **dict.fromkeys(("enjoy", "play", "render", "watch", "video"), ("view",)),
    **dict.fromkeys(("sweep", "search", "optimize", "optimise", "hpo", "hyperopt"), ("tune",)),
    **dict.fromkeys(("record", "collect", "sample"), ("rollout",)),
    **dict.fromkeys(("resume", "continue", "restore"), ("train --resume",)),
    **dict.fromkeys(("ls", "list"), ("runs list", "config list", "env list")),
    **dict.fromkeys(("envs", "environments"), ("env list",)),
    **dict.fromkeys(("presets", "experiments", "configs"), ("config list",)),
    **dict.fromkeys(("show", "info", "describe"), ("runs show", "config show")),
    **dict.fromkeys(("check", "validate", "lint"), ("config check", "env check")),
    **dict.fromkeys(("keys", "settings", "options"), ("config keys",)),
    **dict.fromkeys(("logs", "log", "status"), ("runs list", "runs show")),
    "migrate": ("config migrate",),
    "version": ("--version",),
    "help": ("--help",),
    "tensorboard": ("runs show",),
}
"""Verbs of other tools -> those that do that here."""

_OF_RUNS = ("evaluate", "view", "rollout", "train --resume", "runs show")

_OTHER_SETTINGS = {
    "learning_rate": "training.lr",
    "batch_size": "training.train_batch_size_per_learner",
    **dict.fromkeys(
        ("n", "timesteps", "total_timesteps", "n_timesteps", "steps", "num_steps"),
        "stop_conditions.timesteps_total",
    ),
    **dict.fromkeys(("iterations", "num_iterations", "iters"), "stop_conditions.training_iteration"),
    **dict.fromkeys(("reward", "stop_reward", "target_reward"), "stop_conditions.episode_reward_mean"),
    **dict.fromkeys(("num_workers", "workers", "n_workers"), "rollouts.num_env_runners"),
    **dict.fromkeys(("n_envs", "num_envs"), "rollouts.num_envs_per_env_runner"),
    **dict.fromkeys(("num_gpus", "gpus", "gpu"), "learners.num_gpus_per_learner"),
    **dict.fromkeys(("out", "output", "output_dir", "log_dir", "logdir", "save_dir"), "runtime.local_dir"),
    **dict.fromkeys(("name", "exp_name", "run_name"), "runtime.name"),
    **dict.fromkeys(("env", "env_id", "env_name", "environment"), "environment.env"),
    **dict.fromkeys(("algo", "algorithm", "run"), "algo.name"),
    **dict.fromkeys(("n_trials", "num_trials", "trials", "num_samples"), "search.num_samples"),
    **dict.fromkeys(("n_jobs", "max_concurrent_trials"), "search.max_concurrent"),
    "env_config": "environment.env_config.KEY",
}
"""Options of other tools -> the setting that does that here."""

_REST = ("--", "--sub-jobs", "--sub_jobs")
"""What follows these on a line are not options of ours."""

_ARGUMENTS = {
    **dict.fromkeys(("rayfish evaluate", "rayfish view", "rayfish rollout", "rayfish runs show"), "last"),
    "rayfish env check": "my_env.py:MyEnv",
    "rayfish config migrate": "old.yaml",
}
_VALUES = {
    **dict.fromkeys(("--resume", "--restore"), "last"),
    **dict.fromkeys(("-f", "--file"), "my_experiment.yaml"),
    **dict.fromkeys(("--config-dir", "-cd"), "conf"),
    **dict.fromkeys(("--config-name", "-cn"), "ppo"),
    **dict.fromkeys(("--seeds", "--episodes"), "5"),
    "--program": "'python train.py {lr}'",
    "--function": "train.py:objective",
    "--on": "127.0.0.1:6379",
    "--env": "CartPole-v1",
    "--out": "FILE",
}
"""Examples of what verbs and options take."""


def as_error(error: Any, words: Sequence[str]) -> RayfishError:
    """What the parser of the command line refused, as what happened and the next step.

    :param words: what was typed after `rayfish`
    """
    context: Any = getattr(error, "ctx", None)
    verb = f"rayfish {words[0]}" if words and words[0].isalpha() else "rayfish"
    page = f"`{context.command_path if context is not None else verb} --help`"
    text = error.format_message().rstrip(".")
    kind = type(error).__name__
    unknown = re.match("No such command '(.*?)'", text)
    if unknown:
        commands = getattr(getattr(context, "command", None), "commands", {})
        return _unknown_verb(unknown.group(1), commands, page, words)
    if kind == "NoSuchOption":
        return _unknown_options(error, context, page, words)
    if kind == "MissingParameter":
        what = text.replace("Missing argument", "the argument").replace("Missing option", "the option")
        path = context.command_path if context is not None else verb
        example = f"for example `{path} {_ARGUMENTS[path]}`; " if path in _ARGUMENTS else ""
        return RayfishError(f"{what} is missing", f"{example}{page} explains it")
    refused = re.fullmatch(r"Invalid value for '?([^':]+?)'?: (.*)", text, re.DOTALL)
    if refused:
        option = refused.group(1).rpartition(" / ")[2].strip("' ")
        given = _given(words, option)
        given = given if given.lstrip("-").isdigit() else repr(given)
        what = f"{option} is {given}, but {_wanted(refused.group(2))}"
        return RayfishError(what, f"{page} says what it takes")
    bare = re.fullmatch(r"Option '([^']+)' requires an argument", text)
    if bare:
        option = bare.group(1)
        example = f"for example {option} {_VALUES[option]}; " if option in _VALUES else ""
        return RayfishError(f"{option} needs a value", f"{example}{page} says which")
    extra = re.fullmatch(r"Got unexpected extra arguments? ?\(?s?\)? ?\((.*)\)", text)
    if extra:
        return RayfishError(f"{extra.group(1)!r} is one word too many", f"{page} says what it takes")
    return RayfishError(_lower(text), f"{page} explains it")


def _unknown_verb(word: str, commands: Mapping[str, Any], page: str, words: Sequence[str]) -> RayfishError:
    """A verb that there is not: the one that does what other tools' verb does, or the nearest."""
    known = sorted(name for name, command in commands.items() if not getattr(command, "hidden", False))
    at_top = "train" in commands
    rest = shlex.join(words[words.index(word) + 1 :]) if word in words else ""
    if at_top and word.lower() in _OTHER_VERBS:
        verbs = _OTHER_VERBS[word.lower()]
        meant = [
            f"`rayfish {verb} {rest or ('last' if verb in _OF_RUNS else '')}".rstrip() + "`" for verb in verbs
        ]
        return RayfishError(f"there is no verb {word!r}", f"{' or '.join(meant)}; {page} explains all verbs")
    close = did_you_mean(word, known)
    if at_top and not close and _names_experiment(word):
        line = shlex.join(["rayfish", *_verb_first(words, commands)])
        return RayfishError(
            f"{word!r} is no verb, but can be trained", f"`{line}`; {page} explains all verbs"
        )
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(known)};"
    return RayfishError(f"there is no verb {word!r}", f"{hint} {page} explains them")


def _unknown_options(error: Any, context: Any, page: str, words: Sequence[str]) -> RayfishError:
    """All options of the line that there are not, those of other tools as the settings they are here."""
    params = getattr(getattr(context, "command", None), "params", ())
    known = {name for param in params for name in (*param.opts, *param.secondary_opts)} | {"-h", "--help"}
    own = itertools.takewhile(lambda word: word not in _REST, words)
    flags = [word.partition("=")[0] for word in own if re.match("--[A-Za-z]|-[A-Za-z](=|$)", word)]
    unknown = list(dict.fromkeys([error.option_name, *(flag for flag in flags if flag not in known)]))
    settings = {flag: setting for flag in unknown if (setting := _as_setting(flag, words))}
    nearest = {flag: did_you_mean(flag, known, most=1) for flag in unknown if flag not in settings}
    nearest |= {error.option_name: list(getattr(error, "possibilities", None) or ())}
    close = [name for flag in unknown if flag not in settings for name in nearest[flag]]
    hint = f"settings have no dashes: {' '.join(settings.values())}; " if settings else ""
    hint += f"did you mean {' or '.join(close)}? " if close else ""
    what = "there is no option" if len(unknown) == 1 else "there are no options"
    return RayfishError(f"{what} {', '.join(unknown)}", f"{hint}{page} lists all options")


def _verb_first(words: Sequence[str], commands: Mapping[str, Any]) -> list[str]:
    """The words with the verb among them (`config show` is two) at the front; `train` where there is none."""
    at = next((index for index, word in enumerate(words) if word in commands), None)
    if at is None:
        return ["train", *words]
    inner = getattr(commands[words[at]], "commands", {})
    end = at + 2 if any(word in inner for word in words[at + 1 : at + 2]) else at + 1
    return [*words[at:end], *words[:at], *words[end:]]


def _names_experiment(word: str) -> bool:
    from rayfish.experiment.bare_words import settings_of

    try:
        settings_of([word])
    except RayfishError:
        return False
    return True


def _as_setting(option: str, words: Sequence[str]) -> str:
    """An option that is the name of a setting, as `key=value`; "" where it is none."""
    if not words or words[0] not in ("train", "tune", "config"):
        return ""
    from rayfish.algorithm import reference
    from rayfish.algorithm.keys import ELSEWHERE

    name = option.lstrip("-").replace("-", "_")
    key = {**ELSEWHERE, **_OTHER_SETTINGS}.get(name, name)
    sections = reference.section_names()
    known = [f"{section}.{row.key}" for section in sections for row in reference.all_rows(section)]
    found = [full for full in known if full == key] or [full for full in known if full.endswith(f".{key}")]
    if not found and ("." not in key or key.partition(".")[0] not in sections):
        return ""
    value = _given(words, option)
    return f"{(found or [key])[0]}={value if value and not value.startswith('-') else 'VALUE'}"


def _given(words: Sequence[str], option: str) -> str:
    """The value that an option was given on the line; "" where it has none."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _wanted(text: str) -> str:
    """What the parser would have taken, from its reason, whose words differ between versions."""
    least = re.search(r"(?:x>=|greater than or equal to )(\S+)", text)
    if least:
        return f"must be {least.group(1)} or more"
    if "integer" in text:
        return "takes a whole number"
    if "float" in text or "number" in text:
        return "takes a number"
    return _lower(text)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
