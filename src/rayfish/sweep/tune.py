"""`rayfish.tune` and `rayfish tune`: a target becomes a plan, the plan a session, the session a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rayfish.algorithm import from_rllib
from rayfish.errors import ConfigError, Problem, RayfishError, did_you_mean
from rayfish.experiment import tree
from rayfish.experiment.overrides import parse
from rayfish.experiment.words import Override, as_words, word
from rayfish.experiment.yaml_reader import load
from rayfish.run.engine import RayOptions
from rayfish.run.trust import require_sweep
from rayfish.sweep import plan as plans
from rayfish.sweep.directory import SweepDirectory, find_sweep
from rayfish.sweep.outcome import Result
from rayfish.sweep.session import run
from rayfish.sweep.space import Parameter, from_words, is_parameter, mistyped, ordered, parameters_in

_SECTIONS = ("function", "program", "config", "tunables", "search", "runtime")
_YAML = (".yaml", ".yml")


def tune(
    target: Any = None,
    space: Mapping[str, Any] | None = None,
    *overrides: Override,
    config: Mapping[str, Any] | None = None,
    resume: str | Path | None = None,
    name: str | None = None,
    root: str | Path = "runs",
    env: Any = None,
    config_dir: str | Path | None = None,
    config_name: str = "config",
    closest: bool = False,
    plain: bool | None = None,
    ray_options: RayOptions | None = None,
    trust: bool = False,
    **search: Any,
) -> Result:
    """Tries many points of a search space and returns the best.

    :param target: an experiment (a preset, a file, or RLlib's config: `PPOConfig()`), a function of one
        configuration, the import path of one (`module:function`), a program
        (`{"command": "python train.py --lr {lr}", ...}`), or a file with a `function` or `program` section
    :param space: what varies, by dotted key: `{"training.lr": "loguniform(1e-5,1e-2)"}`; nested
        dictionaries, `{"type": ..., "values": [...]}` and Ray Tune's own objects do as well
    :param overrides: `key=value` words, as on the command line, or dictionaries of them
    :param config: values for a function that do not vary
    :param resume: a sweep to continue (path, name, id or `last`) in place of starting a new one
    :param name: the folder's name under `root`
    :param env: an environment class or creator, in place of `environment.env`
    :param closest: take the closest algorithm where RLlib has dropped one
    :param plain: plain lines in place of the live table; None decides by the terminal
    :param ray_options: how to start or find Ray
    :param trust: continue a sweep that another user made, which runs the code in it
    :param search: the settings of the `search` section: metric, mode, method, scheduler, num_samples,
        repeat, max_concurrent, resources, ...
    """
    options, words = ray_options or RayOptions(), as_words(overrides)
    if resume is not None:
        folder = SweepDirectory.open(find_sweep(resume))
        if folder.data.get("kind") != "jobs":
            folder.require_table()
        require_sweep(folder.path, folder.data, trust=trust)
        if folder.data.get("kind") == "jobs":
            hint = f"rayfish tune --resume {folder.path} runs those that are not done"
            raise RayfishError(f"{folder.path} is a list of jobs, which has no best point to return", hint)
        changes = {**_search_settings(words), **search}
        folder.lock()
        function = target if callable(target) else None
        plan = plans.of_resumed(folder, changes, function, env, config)
        return run(plan, options, folder=folder, plain=plain)
    sections = sections_of(target)
    how: dict[str, Any] = {"search": search, "name": name, "root": str(root)}
    if sections:
        plan = _of_sections(target, sections, words, space or {}, config or {}, **how)
    else:
        where = {"env": env, "config_dir": config_dir, "config_name": config_name, "closest": closest}
        plan = _of_experiment(target, space, words, where, **how)
    return run(plan, options, plain=plain)


def sections_of(target: Any) -> Mapping[str, Any]:
    """The sections that describe a function or program, or the tasks of a list of jobs; {} for an experiment.

    What is wrong with a file is left to the experiment's own reader to explain.
    """
    if from_rllib.is_config(target) or target is None:
        return {}
    if isinstance(target, Mapping):
        return target if {"function", "program"} & set(target) else {"program": target}
    if callable(target):
        return {"function": target}
    path, colon, _ = target.partition(":") if isinstance(target, str) else ("", "", "")
    if colon and not path.endswith(_YAML):
        return {"function": target}
    if not path.endswith(_YAML) or not Path(target).is_file():
        return {}
    try:
        found = load(Path(target).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    described = isinstance(found, dict) and {"function", "program", "tasks"} & set(found)
    return found if described else {}


def _of_experiment(
    target: Any,
    space: Mapping[str, Any] | None,
    words: Sequence[str],
    where: dict[str, Any],
    *,
    search: Mapping[str, Any],
    name: str | None,
    root: str,
) -> plans.Plan:
    notes: Sequence[str] = ()
    if from_rllib.is_config(target):
        read = from_rllib.read(target)
        target, words, notes = None, [*read.words, *words], read.notes
        where["env"] = read.env if where["env"] is None else where["env"]
    named = [word("runtime.name", name)] if name else []
    named += [word("runtime.local_dir", root)] if root != "runs" else []
    plan = plans.of_experiment(target, [*named, *words], space=space, search=search, **where)
    plan.notes.extend(notes)
    return plan


def _of_sections(
    target: Any,
    given: Mapping[str, Any],
    words: Sequence[str],
    space: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    search: Mapping[str, Any],
    name: str | None,
    root: str,
) -> plans.Plan:
    """A function or program: words override its sections, arguments from Python override both."""
    if words and target is not given and not isinstance(target, str):
        raise RayfishError(
            f"{words[0]!r} belongs to an experiment; a function or program has none",
            "settings of the search are keywords: metric=..., num_samples=...",
        )
    file = Path(target) if isinstance(target, str) and target.endswith(_YAML) else None
    where = str(file or "")
    unknown = [key for key in given if key not in _SECTIONS]
    if unknown:
        close = did_you_mean(unknown[0], _SECTIONS)
        hint = f"did you mean {close[0]}?" if close else f"a file of this kind has {', '.join(_SECTIONS)}"
        raise ConfigError([Problem(unknown[0], "there is no such section here", hint, where)])
    loose = [word for word in words if "=" not in word]
    if loose:
        raise RayfishError(f"{loose[0]!r} is no setting", "write key=value; quote commands with spaces")
    rest, from_command_line = from_words(words)
    program = given.get("program")
    sections = {key: dict(given.get(key) or {}) for key in ("search", "runtime", "config")}
    sections["program"] = dict(program) if isinstance(program, Mapping) else {"command": program}
    for key, value in _values(rest).items():
        section, _, inner = key.partition(".")
        if section in ("search", "runtime", "program") and inner:
            tree.put(sections[section], inner, value)
        else:
            sections["config"][key] = value
    found = [*parameters_in(given.get("tunables") or {}, where or "tunables")]
    common: dict[str, Any] = {
        "search": {**sections["search"], **search},
        "name": name or sections["runtime"].get("name") or (f"tune-{file.stem}" if file else None),
        "root": str(sections["runtime"].get("local_dir") or root),
        "where": where,
    }
    if program or "function" not in given:
        fixed = [Parameter(key, "choice", (value,)) for key, value in sections["config"].items()]
        found += [*parameters_in(space, "space"), *from_command_line, *fixed]
        return plans.of_program(sections["program"], ordered(found), **common)
    varying, constant = _split(space)
    problems = [Problem(key, *wrong) for key, value in constant.items() if (wrong := mistyped(value))]
    if problems:
        raise ConfigError(problems)
    found += [*parameters_in(varying, "space"), *from_command_line]
    fixed_values = {**constant, **sections["config"], **config}
    return plans.of_function(_function(given["function"], file), ordered(found), fixed_values, **common)


def _function(function: Any, file: Path | None) -> Any:
    """A function; its own file may be next to the file that describes the sweep."""
    head, colon, name = function.partition(":") if isinstance(function, str) else ("", "", "")
    if file is None or not head.endswith(".py") or Path(head).exists() or not (file.parent / head).exists():
        return function
    return f"{file.parent / head}{colon}{name}"


def _split(space: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """What varies, and what does not, of a Python dictionary, by dotted key."""
    varying: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    for key, value in space.items():
        if is_parameter(value):
            varying[f"{prefix}{key}"] = value
        elif isinstance(value, Mapping):
            inner = _split(value, f"{prefix}{key}.")
            varying |= inner[0]
            fixed |= inner[1]
        else:
            fixed[f"{prefix}{key}"] = value
    return varying, fixed


def _search_settings(words: Sequence[str]) -> dict[str, Any]:
    """What words change in the search of a resumed sweep."""
    values = _values(words)
    others = [key for key in values if not key.startswith("search.")]
    if others:
        raise RayfishError(
            f"a resumed sweep keeps its experiment: {others[0]} cannot change",
            "settings of the search may: search.num_samples=40; else begin a new sweep",
        )
    return {key.removeprefix("search."): value for key, value in values.items()}


def _values(words: Sequence[str]) -> dict[str, Any]:
    """`key=value` words as values by key."""
    return {override.key_or_group: override.value() for override in parse(list(words))}
