"""Files, presets and overrides become one resolved `Experiment`.

The order: main config and groups (Hydra's defaults list), then the preset, then value overrides in the
order written, then old names in today's words, then interpolations. Unknown keys are kept: `config check`
reports them all at once, with the place each was written.

The door of `experiment/` to `legacy/` for old files and keys; `imports` is that for old import paths.
"""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rayfish.errors import ConfigError, Problem, did_you_mean
from rayfish.experiment import hydra_section, tree
from rayfish.experiment.experiment import Experiment
from rayfish.experiment.files import (
    CONF,
    SHIPPED,
    Composed,
    ConfigFolders,
    compose_files,
    config_folder,
    describe,
    offer_preset,
    show,
)
from rayfish.experiment.overrides import COMMAND_LINE, apply, expand, group_choices, parse, split_words
from rayfish.experiment.sections import ALGORITHMS, SECTIONS, spelled
from rayfish.experiment.words import Override, as_words
from rayfish.experiment.yaml_reader import MOST_VALUES
from rayfish.legacy import hydra_keys, simharness
from rayfish.legacy.file_format import OldExperiment, chosen, read_old, split_member
from rayfish.legacy.translate import Translation, translate

DEFAULT_EXPERIMENT = "cartpole"
"""The preset taken where nothing names an experiment or an environment."""

DEFAULT_ENV = "CartPole-v1"
"""The environment where neither is named, and the algorithm asked for has no preset of its own."""

_DEFAULT_FOR = {"DQN": "cartpole-dqn", "SAC": "pendulum", "TQC": "pendulum", "PPO": "cartpole"}
_MANY_ENVS = ("PPO", "APPO", "IMPALA")
LEFT_OPEN = " (auto)"
"""Ends the origin of a number that was written as `auto`."""

DEFAULT_STEPS = 100_000
"""stop_conditions.timesteps_total where an environment is named and no experiment says when to stop."""

_ENVS_KEY = "rollouts.num_envs_per_env_runner"
_STEPS_KEY = "stop_conditions.timesteps_total"
_MAIN_CONFIG = f"{SHIPPED}config.yaml"
_SMALL = 1000  # bytes; a larger file is not read to see whether it is empty


def compose(source: Source, config_name: str, env: Any) -> Experiment:
    """The experiment that a preset and overrides describe; see `Experiment.compose`."""
    overrides, translation = source.words, source.translation
    composed = _composed(source, config_name, env)
    notes: list[str] = translation.notes() if translation is not None else []
    hydra_section.insert(composed.values, config_name, overrides, composed.choices)
    fit = translation is not None or simharness.is_harness(tree.get(composed.values, "environment.env"))
    config = _finish(composed, notes)
    old = source.name if isinstance(source.name, OldExperiment) else None
    if source.name is None or (old and old.file == COMMAND_LINE):  # rllib train --run --env
        notes += _end_by_default(config, composed.origins, env)
    if source.name is None:
        notes += _default_note(composed, overrides)
    paths = _code_paths(source.user, source.file)
    variables = _variables(composed, config)
    return Experiment(config, composed.origins, tuple(overrides), paths, env, tuple(notes), fit, variables)


def as_written(
    name: str | OldExperiment | None = None,
    overrides: Sequence[str] = (),
    *,
    config_name: str = "config",
    config_dir: str | Path | None = None,
    closest: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `python app.py --cfg job` and `--cfg hydra` print: the composed values as their files name them,
    interpolations left as they are; and Hydra's own section.
    """
    source = source_of(name, overrides, config_dir, closest)
    composed = _composed(source, config_name, None)
    tree.expand(composed.values, composed.origins)
    with_hydra = copy.deepcopy(composed.values)
    hydra_section.insert(with_hydra, config_name, source.words, composed.choices)
    return {key: value for key, value in composed.values.items() if key != "hydra"}, with_hydra


def with_algorithm(experiment: Experiment, name: str, origin: str) -> Experiment:
    """A copy that is trained by another algorithm, with what is filled in for that one."""
    where = experiment.origin(_ENVS_KEY)
    if where.startswith(SHIPPED) or where.endswith(LEFT_OPEN):
        experiment = experiment.with_values({_ENVS_KEY: _num_envs(name)}, where)
    return experiment.with_values({"algo.name": name}, origin)


def _end_by_default(config: dict[str, Any], origins: dict[str, str], env: Any) -> list[str]:
    """An environment that is named without an experiment is trained for a while; the line that says so."""
    where = [origin for key, origin in origins.items() if key.startswith("stop_conditions.")]
    given = any(not origin.startswith(_MAIN_CONFIG) for origin in where)
    if given or (env is None and origins.get("environment.env") != COMMAND_LINE):
        return []
    tree.put(config, _STEPS_KEY, DEFAULT_STEPS)
    origins[_STEPS_KEY] = "default for an environment without an experiment"
    return [
        f"no stop condition is given, so the run ends after {DEFAULT_STEPS:,} steps; "
        f"longer: {_STEPS_KEY}={10 * DEFAULT_STEPS}, also with --resume last"
    ]


def _default_note(composed: Composed, overrides: Sequence[str]) -> list[str]:
    """The line for a command that names neither an experiment nor an environment."""
    preset = composed.choices.get("experiment")
    if not preset or any(word.lstrip("+").startswith("experiment") for word in overrides):
        return []
    env = tree.get(composed.values, "environment.env")
    return [f"nothing names an environment: this is the experiment {preset} ({env}); yours: my_env.py:MyEnv"]


def _composed(source: Source, config_name: str, env: Any) -> Composed:
    """Files and words laid upon each other."""
    name, words, user, file, translation = source
    parsed = _single(words)
    roots = [*([user] if user else []), *([_conf_root(file)] if file and not translation else [])]
    folders = ConfigFolders(roots)
    choices, values = group_choices(parsed, folders)
    with tempfile.TemporaryDirectory(prefix="rayfish-preset-") as scratch:
        preset = file if translation is None else translation.config
        if preset is not None:
            choices = [*choices, offer_preset(preset, Path(scratch))]
            folders.folders.insert(0, Path(scratch))
        elif isinstance(name, str):
            choices = [*choices, f"experiment={name}"]
        composed = _compose_with_base(config_name, choices, folders)
        if name is None and env is None and not _names_env(composed, choices, values):
            default = _default_experiment(values)
            if default:
                composed = _compose_with_base(config_name, [*choices, f"experiment={default}"], folders)
            else:
                tree.put(composed.values, "environment.env", DEFAULT_ENV)
                composed.origins["environment.env"] = "default"
    if translation is not None:
        composed.origins.update(translation.origins)
    apply(composed, values)
    return composed


class Source(NamedTuple):
    """What is composed.

    :param name: a preset, None for none
    :param words: the settings, those that bare words stand for first
    :param user: the folder of the user's own configs
    :param file: the preset's file
    :param translation: of an experiment of the old form
    """

    name: str | OldExperiment | None
    words: list[str]
    user: Path | None
    file: Path | None = None
    translation: Translation | None = None


def source_of(
    name: str | OldExperiment | None,
    overrides: Override | Sequence[Override],
    config_dir: str | Path | None,
    closest: bool,
) -> Source:
    """What `Experiment.compose` is given, with the files and the old experiment that it names."""
    user, words = config_folder(config_dir), as_words(overrides)
    if isinstance(name, OldExperiment):
        translation = translate(name, closest=closest).required()
        return Source(name, list(words), user, translation=translation)
    name, words = split_words(words, user, name)
    plain, member = split_member(name or "")
    file = _preset_file(plain or None, user)
    experiments = read_old(file) if file else None
    if file and experiments is not None:
        translation = translate(chosen(experiments, member, file), closest=closest).required()
        return Source(name, words, user, file, translation)
    if member:
        what = f"is an experiment of today, not a list of them, so there is no {member!r} in it"
        raise ConfigError([Problem(plain, what, f"leave it out: {plain}")])
    return Source(name, words, user, file)


def experiments_in(name: str | None, config_dir: str | Path | None = None) -> list[str]:
    """What `name` stands for, one by one: an old file may hold several experiments."""
    if name is None or split_member(name)[1]:
        return [name] if name is not None else []
    file = _preset_file(name, config_folder(config_dir))
    names = [old.name for old in (read_old(file) if file else None) or ()]
    return [f"{name}:{member}" for member in names] if len(names) > 1 else [name]


def changed(experiment: Experiment, overrides: Override | Sequence[Override]) -> Experiment:
    """An experiment that is resolved already, with more words laid upon it (a resumed run, say)."""
    overrides = as_words(overrides)
    composed = Composed(copy.deepcopy(experiment.written()), dict(experiment.origins))
    choices, values = group_choices(_single(overrides), ConfigFolders([]))
    if choices:
        what = f"{', '.join(choices)} chooses files, and this experiment is composed already"
        raise ConfigError(
            [Problem(choices[0].partition("=")[0], what, "set its keys one by one: section.key=value")]
        )
    apply(composed, values)
    notes: list[str] = []
    config = _finish(composed, notes)
    made = replace(experiment, config=config, origins=composed.origins, notes=tuple(notes))
    words = (*experiment.overrides, *overrides)
    return replace(made, overrides=words, variables=_variables(composed, config))


def _single(overrides: Sequence[str]) -> list[Any]:
    """The words parsed; those that ask for several runs are refused, all of them at once."""
    parsed = parse(overrides)
    several = [override.input_line for override in parsed if override.is_sweep_override()]
    if several:
        expand(several, multirun=False, seeds=None)
    return parsed


def catalogue(config_dir: str | Path | None = None) -> dict[str, list[tuple[str, str, str]]]:
    """What there is to train: title -> (name, what it is, file) of every preset and main config."""
    user = config_folder(config_dir)
    folders = ConfigFolders([user] if user else [])
    found = {}
    for title, group in (("Presets", "experiment/"), ("Main configs (-cn)", "")):
        paths = [(name, folders.find(f"{group}{name}")) for name in folders.options(group)]
        found[title] = [(name, describe(path), show(path)) for name, path in paths if path is not None]
    return found


def _compose_with_base(config_name: str, choices: list[str], folders: ConfigFolders) -> Composed:
    """The main config; one that does not build on ours still gets our values for what it leaves out."""
    composed = compose_files(config_name, choices, folders)
    if any(file.startswith("rayfish/conf/config.yaml") for file in composed.files):
        return composed
    base = compose_files("config", [], ConfigFolders([CONF]))
    # Without those of values that the user's files set, or whose section they replace.
    left = {key: where for key, where in base.origins.items() if tree.get(composed.values, key, {}) == {}}
    tree.merge(base.values, composed.values)
    files, chosen = [*base.files, *composed.files], {**base.choices, **composed.choices}
    return Composed(base.values, {**left, **composed.origins}, files, chosen)


def preset_file(name: str) -> Path:
    """The YAML file of that path.

    :raises ConfigError: there is none
    """
    file = _preset_file(name if name.endswith((".yaml", ".yml")) or "/" in name else f"./{name}", None)
    if file is None:
        raise ConfigError([Problem("experiment", f"there is no file {name}", "correct the path")])
    return file


def _preset_file(name: str | None, user: Path | None) -> Path | None:
    """The YAML file that `name` means, if it is a path rather than the name of a preset."""
    if name is None or not (name.endswith((".yaml", ".yml")) or "/" in name):
        return None
    places = [
        (folder / Path(name).expanduser()).resolve() for folder in (Path.cwd(), *([user] if user else []))
    ]
    for candidate in places:
        if candidate.is_file():
            _require_content(candidate)
            return candidate
    shown, folder = name.removeprefix("./"), next((place for place in places if place.is_dir()), None)
    if folder is not None:
        inside = [path.name for path in sorted(folder.glob("*.y*ml"))]
        hint = f"name a file in it: {', '.join(inside[:5])}" if inside else "name a YAML file"
        raise ConfigError([Problem("experiment", f"{shown} is a folder, not a file", hint)])
    if name.endswith((".yaml", ".yml")) or name.startswith(("/", "./", "../", "~")):
        near = [path.name for place in places for path in place.parent.glob("*.y*ml")]
        close = did_you_mean(places[0].name, near)
        hint = (
            f"did you mean {' or '.join(close)}?"
            if close
            else f"looked in {places[0].parent}; correct the path"
        )
        raise ConfigError([Problem("experiment", f"there is no file {shown}", hint)])
    return None


def _require_content(file: Path) -> None:
    """An experiment file that says nothing is a mistake, not the default experiment."""
    if file.stat().st_size < _SMALL and not file.read_bytes().strip():
        hint = "write at least `environment:` with `  env: CartPole-v1` below it, or leave the file out"
        raise ConfigError([Problem(show(file), "is empty", hint)])


def _conf_root(file: Path) -> Path:
    """The folder whose groups a preset file may use: its own, or the one that holds `experiment/`."""
    return file.parent.parent if file.parent.name == "experiment" else file.parent


def _names_env(composed: Composed, choices: Sequence[str], values: Sequence[Any]) -> bool:
    if any(choice.lstrip("+").startswith(("experiment=", "experiment@")) for choice in choices):
        return True
    keys = {value.key_or_group for value in values if not value.is_delete()}
    whole = [value.value() for value in values if value.key_or_group == "environment"]
    in_dict = any(isinstance(value, dict) and value.get("env") for value in whole)
    return "environment.env" in keys or in_dict or tree.get(composed.values, "environment.env") is not None


def _default_experiment(values: Sequence[Any]) -> str:
    """The preset for the algorithm asked for; "" where none is made for it."""
    names = [str(value.value()) for value in values if value.key_or_group == "algo.name"]
    return _DEFAULT_FOR.get(spelled(names[-1], ALGORITHMS) or "", "") if names else DEFAULT_EXPERIMENT


def _finish(composed: Composed, notes: list[str]) -> dict[str, Any]:
    """Old names translated, interpolations resolved, the few automatic values filled in."""
    raw, origins = composed.values, composed.origins
    tree.expand(raw, origins)
    _spell_out(raw, origins)
    old_keys = hydra_keys.copy_renamed(raw, origins, notes)
    composed.variables = tree.from_environment(raw)
    config = resolved(raw, origins)
    hydra_keys.remove(config, origins, old_keys)
    hydra_section.take(config, origins, notes)
    hydra_keys.adapt_values(config, origins, notes)
    hydra_keys.settle_stop_conditions(config, origins, notes)
    simharness.adapt(config, origins, notes)
    if tree.get(config, "cli.mode") == "???":  # which the verb decides
        tree.put(config, "cli.mode", "train")
    name = tree.get(config, "algo.name")
    known = spelled(name, ALGORITHMS)
    if known is not None:
        config["algo"]["name"] = known
    if tree.get(config, _ENVS_KEY) == "auto":
        tree.put(config, _ENVS_KEY, _num_envs(known))
        if not origins.get(_ENVS_KEY, SHIPPED).startswith(SHIPPED):
            origins[_ENVS_KEY] += LEFT_OPEN
    ordered = {name: config[name] for name in SECTIONS if name in config}
    return {**ordered, **{key: value for key, value in config.items() if key not in ordered}}


def resolved(raw: dict[str, Any], origins: dict[str, str], part: str = "") -> Any:
    """The values, or the part at a dotted key, with interpolations resolved.

    :raises ConfigError: one leads nowhere
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if tree.size(raw) > MOST_VALUES:
        what = f"lead to more than {MOST_VALUES:,} values: they refer to each other many times over"
        raise ConfigError([Problem("interpolations", what, "write some of the values in their place")])
    try:
        config: Any = OmegaConf.create(raw)
        found = OmegaConf.select(config, part) if part else config
        return OmegaConf.to_container(found, resolve=True) if OmegaConf.is_config(found) else found
    except OmegaConfBaseException as error:
        raise ConfigError([_unresolved(error, raw, origins)]) from error


def _variables(composed: Composed, config: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What was written and what it is now, of the values that hold an environment variable."""
    found = {key: (text, tree.get(config, key, tree.MISSING)) for key, text in composed.variables.items()}
    return {key: pair for key, pair in found.items() if pair[1] is not tree.MISSING}


def _unresolved(error: Any, raw: dict[str, Any], origins: dict[str, str]) -> Problem:
    """An interpolation that leads nowhere, or in a circle."""
    key = str(getattr(error, "full_key", "") or "interpolation")
    value, text = tree.get(raw, key), str(error).splitlines()[0]
    missing = re.search(r"Interpolation key '([^']+)' not found", text)
    if missing:
        known = [name for name, _ in tree.leaves(raw) if name != key and not name.startswith("search.")]
        words = did_you_mean(missing.group(1).rpartition(".")[2], [k.rpartition(".")[2] for k in known])
        close = [name for name in known if name.rpartition(".")[2] in words][:3]
        hint = f"did you mean {' or '.join(f'${{{name}}}' for name in close)}? " if close else ""
        hint += "`rayfish config show` lists the keys there are"
        what = f"is {value}, but there is no key {missing.group(1)}"
    elif needed := re.search(r"Missing mandatory value: ([\w.]+)", text):
        what, hint = f"is {value}, and {needed[1]} is not set (???)", f"add {needed[1]}=VALUE"
    elif unset := re.search(r"Environment variable '([^']+)' not found", text):
        what = f"is {value}, and the environment variable {unset[1]} is not set"
        hint = f"export {unset[1]}=VALUE, or write a default: ${{oc.env:{unset[1]},VALUE}}"
    elif "Recursive" in text or "to parent node" in text:
        what, hint = f"is {value}, which leads back to itself", f"give {key} a value of its own"
    else:
        what, hint = f"is {value}, which cannot be resolved: {text}", "write ${section.key}"
    return Problem(key, what, hint, origins.get(key, ""))


def _spell_out(raw: dict[str, Any], origins: dict[str, str]) -> None:
    """Short forms people write: `callbacks: path`, `framework: torch`; and empty sections."""
    for section, key in (("callbacks", "callbacks_class"), ("framework", "framework")):
        value = raw.get(section)
        if isinstance(value, str) or (section == "callbacks" and isinstance(value, list)):
            raw[section] = {key: value}
            origins[f"{section}.{key}"] = origins.pop(section, "")
    for section in SECTIONS:
        if raw.get(section) is None:
            raw[section] = {}
    for open_key in ("environment.env_config", "training.model", "evaluation.evaluation_config"):
        if tree.get(raw, open_key) is None and isinstance(raw[open_key.partition(".")[0]], dict):
            tree.put(raw, open_key, {})


def _num_envs(algorithm: str | None) -> int:
    """rollouts.num_envs_per_env_runner where it is `auto`."""
    return 8 if algorithm in _MANY_ENVS else 1


def _code_paths(user: Path | None, file: Path | None) -> tuple[str, ...]:
    """Where the user's code may lie: here, beside a preset file, and in and above a config folder."""
    folders = [Path.cwd(), *([file.parent] if file else [])]
    root = _conf_root(file) if file and file.parent.name == "experiment" else None
    for folder in (root, user):
        if folder is not None:
            folders += [folder, folder.parent]
    return tuple(dict.fromkeys(str(folder.resolve()) for folder in folders))
