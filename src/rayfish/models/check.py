"""What is wrong with a model section, or with spaces for an algorithm, before any compute.

Torch-free: `rayfish config check` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rayfish.errors import ModelError, Problem, RayfishError, did_you_mean
from rayfish.experiment.imports import require_place
from rayfish.experiment.sections import OFFLINE
from rayfish.experiment.source import require_class
from rayfish.models.options import (
    ELSEWHERE,
    FOR_BOX_ACTIONS,
    FOR_IMAGES,
    GONE,
    MODEL_RENAMED,
    ONLY_FOR,
    OPTIONS,
    Option,
    resolve,
)
from rayfish.models.spaces import MASK_KEY, action_outputs, leaves, split_mask

if TYPE_CHECKING:
    from rayfish.envs.env_kind import EnvInfo

ACTION_KINDS: dict[str, tuple[type[gym.Space], ...]] = {
    **dict.fromkeys(
        ("PPO", "APPO", "IMPALA", "BC", "MARWIL"), (spaces.Discrete, spaces.MultiDiscrete, spaces.Box)
    ),
    "DQN": (spaces.Discrete,),
    "SAC": (spaces.Discrete, spaces.Box),
    **dict.fromkeys(("TQC", "CQL", "IQL"), (spaces.Box,)),
    "DreamerV3": (spaces.Discrete, spaces.Box),
}
"""Algorithm -> the kinds of action space it can learn."""

CLASS_NAME = "CustomModel"
FOLDERS = ("model", "models")
"""A bare `custom_model: name` is this class in `<name>.py` in one of these folders."""

NO_MEMORY = ("SAC", "TQC", "CQL", "IQL", "DreamerV3")
"""Algorithms that take no LSTM (DreamerV3 has a memory of its own)."""


def problems(
    model_section: Mapping[str, Any] | None,
    obs_space: gym.Space,
    action_space: gym.Space,
    algo_name: str,
    paths: Sequence[str] = (),
) -> list[Problem]:
    """Everything wrong with the model section and the spaces, for this algorithm."""
    section = model_section or {}
    found = section_problems(section, algo_name, paths)
    if isinstance(section, Mapping):
        found += space_problems(obs_space, action_space, algo_name, section)
    return found


def section_problems(section: Any, algo_name: str, paths: Sequence[str] = ()) -> list[Problem]:
    """Unknown and dead keys, wrong values, contradictions: what needs no environment."""
    if not isinstance(section, Mapping):
        return [
            Problem("training.model", f"is {section!r}, not a group of keys", "write model: {key: value}")
        ]
    found = [problem for key, value in section.items() if (problem := _key_problem(str(key), value))]
    wrong = {problem.key.removeprefix("training.model.") for problem in found}
    section = {key: value for key, value in section.items() if str(key) not in wrong}
    model = resolve(section)
    if model["use_lstm"] and algo_name in NO_MEMORY:
        found.append(
            Problem(
                "training.model.use_lstm",
                f"{algo_name} learns no recurrent model",
                "set use_lstm: false, or use PPO, APPO, IMPALA or DQN",
            )
        )
    found += [problem for problem in _unread(section, algo_name) if problem.key not in {p.key for p in found}]
    name = model["custom_model"]
    if name and algo_name != "DreamerV3":
        found += _custom_problems(name, paths)
    return found


def unread_for_spaces(section: Mapping[str, Any], info: EnvInfo) -> dict[str, str]:
    """Model keys that are set but have no effect with an environment's spaces, each with the reason."""
    model = resolve(section)
    if model["custom_model"]:
        return {}  # which may read any key
    unread: dict[str, str] = {}
    convolve = bool(model["conv_filters"])
    seen = [leaves(split_mask(space)[0], convolve=convolve) for space in info.observation_spaces.values()]
    if all(leaf.kind != "image" for found in seen for leaf in found):
        unread |= dict.fromkeys(FOR_IMAGES, "no observation is an image")
    if not info.has_box_actions:
        unread |= dict.fromkeys(FOR_BOX_ACTIONS, "no action is a Box")
    return {key: why for key, why in unread.items() if model[key] != OPTIONS[key].default}


def _custom_problems(name: str, paths: Sequence[str]) -> list[Problem]:
    try:
        name = locate(name, paths)
        require_place(name, paths)
        require_class(name, paths, "torch.nn.Module")
    except RayfishError as error:
        return [Problem("training.model.custom_model", error.what, error.hint)]
    return []


def locate(name: str, paths: Sequence[str]) -> str:
    """`custom_model` as an import path or `file.py:Class`, which a bare name is turned into.

    :param paths: folders beside which model/ and models/ are looked up, best first
    :raises ModelError: a bare name has no file; names the nearest
    """
    if any(sign in name for sign in ".:/\\"):
        return name
    roots = dict.fromkeys([*(Path(path) for path in paths), Path.cwd()])
    folders = [root / folder for root in roots for folder in FOLDERS]
    for folder in folders:
        if (folder / f"{name}.py").is_file():
            return f"{folder / name}.py:{CLASS_NAME}"
    known = [file.stem for folder in folders if folder.is_dir() for file in folder.glob("*.py")]
    meant = did_you_mean(name, known)
    raise ModelError(
        f"custom_model {name!r}: there is no {name}.py in {', '.join(map(str, folders))}",
        f"did you mean {meant[0]!r}?"
        if meant
        else f"put {name}.py with a class {CLASS_NAME} there, or write package.module:Class",
    )


def _key_problem(key: str, value: Any) -> Problem | None:
    where = f"training.model.{key}"
    if key in GONE:
        return Problem(where, f"has no effect: {GONE[key]}", "remove it")
    option = OPTIONS.get(MODEL_RENAMED.get(key, key))
    if option is None:
        return Problem(where, "there is no such model key", _meant(key))
    wrong = _wrong(option, value)
    return Problem(where, f"is {value!r}, but {wrong}", _example(where, option)) if wrong else None


def _meant(key: str) -> str:
    """The key that was probably meant, by a habit from elsewhere or by its spelling."""
    habit = ELSEWHERE.get(key.lower())
    close = did_you_mean(key, OPTIONS)
    if habit is None and not close:
        others = {**ELSEWHERE, **{old: f"training.model.{new}" for old, new in MODEL_RENAMED.items()}}
        spelled = did_you_mean(key, others, most=1)
        habit = others[spelled[0]] if spelled else None
    if habit is None and not close:
        return "`rayfish config keys training.model` lists them"
    return f"did you mean {habit or f'training.model.{close[0]}'}?"


def _unread(section: Mapping[str, Any], algo_name: str) -> list[Problem]:
    """Keys that the algorithm's networks do not read; harmless at their default."""
    model, found = resolve(section), []
    written = {MODEL_RENAMED.get(key, key) for key in section}
    for key in sorted(written & set(OPTIONS)):
        readers, why = ONLY_FOR.get(key, ((algo_name,), ""))
        if algo_name == "DreamerV3":
            readers, why = (), "it keeps its own world model, of the size training.model_size"
        if algo_name not in readers and model[key] != OPTIONS[key].default:
            what = f"has no effect: {algo_name} does not read it, {why}"
            found.append(Problem(f"training.model.{key}", what, f"remove it (~training.model.{key})"))
    return found


def _example(where: str, option: Option) -> str:
    """A value that would do: the default, or one of the kind."""
    examples = {"list[int]": "[256, 256]", "filters": "[[32, 8, 4], [64, 4, 2]]", "int": "64", "float": "0.1"}
    default = str(option.default).lower() if isinstance(option.default, bool) else option.default
    shown = default if default not in (None, "", {}, []) else examples.get(option.type)
    shown = option.choices[0] if shown is None and option.choices else shown
    return f"for example {where}={shown}" if shown is not None else option.doc


def _wrong(option: Option, value: Any) -> str:
    """What the value should have been; "" when it is right."""
    what, fits = _TYPES[option.type]
    if value is None:
        return "" if option.nullable else f"should be {what}"
    if not fits(value):
        return f"should be {what}"
    if option.choices and str(value).lower().rstrip("_") not in {c.rstrip("_") for c in option.choices}:
        meant = did_you_mean(str(value).lower(), option.choices)
        best = f"; did you mean {meant[0]}?" if meant else ""
        return f"should be one of {', '.join(option.choices)}{best}"
    return ""


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_filter(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 3:
        return False
    return _is_size(value[0]) and all(_is_size(side) or _is_sizes(side, 2) for side in value[1:])


def _is_sizes(value: Any, count: int | None = None) -> bool:
    right = isinstance(value, list | tuple) and all(map(_is_size, value))
    return right and count in (None, len(value))


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number of 1 or more", _is_size),
    "float": ("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "str": ("a word", lambda value: isinstance(value, str)),
    "list[int]": ("a list of whole numbers of 1 or more", _is_sizes),
    "filters": (
        "a list of [channels, kernel, stride]",
        lambda value: isinstance(value, list | tuple) and all(map(_is_filter, value)),
    ),
    "dict": ("a group of keys", lambda value: isinstance(value, Mapping)),
}
"""`Option.type` -> what it is called, and whether a value is of it."""


def space_problems(
    obs_space: gym.Space,
    action_space: gym.Space,
    algo_name: str,
    model_section: Mapping[str, Any] | None = None,
) -> list[Problem]:
    """Observations no encoder takes, actions the algorithm cannot learn, masks that do not fit."""
    found = _action_problems(action_space, algo_name)
    try:
        seen, mask = split_mask(obs_space)
        kinds = leaves(seen, convolve=bool((model_section or {}).get("conv_filters")))
    except ModelError as error:
        return [*found, Problem("environment.env", error.what, error.hint)]
    for leaf in kinds:
        if isinstance(leaf.space, spaces.Box) and 0 in leaf.space.shape:
            what = f"the observation {leaf.name or 'Box'} has shape {leaf.space.shape}: nothing in it"
            found.append(Problem("environment.env", what, "leave it out of the observation space"))
    nested = isinstance(seen, spaces.Dict | spaces.Tuple)
    if nested and algo_name in ("CQL", "DreamerV3"):
        what = f"{algo_name} cannot take {type(obs_space).__name__} observations"
        hint = "flatten them with gymnasium.wrappers.FlattenObservation, or use another algorithm"
        found.append(Problem("environment.env", what, hint))
    elif algo_name == "DreamerV3" and not isinstance(obs_space, spaces.Box):
        what = f"DreamerV3 takes Box observations, this environment has {obs_space}"
        found.append(Problem("environment.env", what, "use gymnasium.wrappers.FlattenObservation"))
    if mask is not None and not found:
        found += _mask_problems(mask, action_space, algo_name)
    return found


def _action_problems(space: gym.Space, algo_name: str) -> list[Problem]:
    allowed = ACTION_KINDS.get(algo_name)
    what = hint = ""
    if allowed is None:
        pass  # no such algorithm, which the key check names
    elif not isinstance(space, allowed):
        kinds = " or ".join(kind.__name__ for kind in allowed)
        what = f"{algo_name} learns {kinds} actions, this environment has {space}"
        hint = "give the environment Discrete, MultiDiscrete or Box actions, with a wrapper"
        able = [n for n, kinds in ACTION_KINDS.items() if isinstance(space, kinds) and n not in OFFLINE]
        if able:
            hint = f"use algo.name={able[0]}" + (f" (or {', '.join(able[1:])})" if able[1:] else "")
    elif isinstance(space, spaces.Box) and not np.issubdtype(space.dtype, np.floating):
        what = f"Box actions of type {space.dtype} cannot be learnt"
        hint = "use Discrete or MultiDiscrete for whole numbers"
    elif not isinstance(space, spaces.Box) and np.any(np.asarray(space.start) != 0):
        what = f"{space}: RLlib sends categories from 0, not from {space.start}"
        hint = "let them start at 0 and add the offset inside the environment"
    elif not isinstance(space, spaces.Discrete) and (len(space.shape) != 1 or 0 in space.shape):
        what = f"{type(space).__name__} actions of shape {space.shape} cannot be learnt"
        hint = "give them one axis, and reshape inside the environment"
    return [Problem("environment.env", what, hint)] if what else []


def _mask_problems(mask: gym.Space, action_space: gym.Space, algo_name: str) -> list[Problem]:
    where = "environment.env"
    if algo_name == "DreamerV3":
        return [Problem(where, "DreamerV3 knows no action masks", "use PPO, DQN or SAC")]
    if isinstance(action_space, spaces.Box):
        what = f"the observation has an {MASK_KEY}, but Box actions cannot be masked"
        return [Problem(where, what, f"leave {MASK_KEY!r} out, or clip the action inside the environment")]
    needed = action_outputs(action_space)
    if tuple(mask.shape or ()) != (needed,):
        what = f"{MASK_KEY} has shape {mask.shape}, the actions {action_space} need ({needed},)"
        return [Problem(where, what, "one entry per choice: 1 allowed, 0 forbidden")]
    return []
