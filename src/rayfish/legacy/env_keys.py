"""Old keys around the algorithm whose fate depends on their value: environment, data, callbacks, logs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayfish.algorithm.callback_hooks import OldHook, require_adaptable
from rayfish.errors import CodeError
from rayfish.experiment.sections import OFFLINE
from rayfish.legacy import nested_keys
from rayfish.legacy.env_names import closest_env, todays_env
from rayfish.legacy.outcome import Context, Outcome, Rule, became, ignored, refused
from rayfish.legacy.training_keys import whole


def _filter(value: Any, _: Context) -> list[Outcome]:
    if value in (None, "NoFilter"):
        return [became("rollouts.observation_filter", "NoFilter")]
    if str(value).endswith("MeanStdFilter"):
        return [became("rollouts.observation_filter", "MeanStdFilter")]
    return [refused(f"{value!r} is no filter: MeanStdFilter or NoFilter")]


def _rewards(value: Any, context: Context) -> list[Outcome]:
    if value is None and nested_keys.is_atari(context.env):
        return [
            became("environment.clip_rewards", True, "Atari's rewards were clipped unless told otherwise")
        ]
    if value in (None, False):
        return [became("environment.clip_rewards", value)]
    return [
        became("environment.clip_rewards", value, "an environment wrapper; returns are reported unclipped")
    ]


def _horizon(value: Any, _: Context) -> list[Outcome]:
    if value is None or (isinstance(value, float) and value == float("inf")):
        return [ignored("the environment decides")]
    return [became("rollouts.horizon", whole(value, "horizon"))]


def _remote_envs(value: Any, _: Context) -> list[Outcome]:
    if not value:
        return [ignored("off")]
    return [became("rollouts.gym_env_vectorize_mode", "async", "each environment in a process of its own")]


def _framework(value: Any, _: Context) -> list[Outcome]:
    if value in (None, "torch"):
        return [became("framework.framework", "torch")]
    why = f"{value} ran on TensorFlow; RLlib's new stack runs on torch"
    return [became("framework.framework", "torch", why, changed=True)]


def _callback_class(named: str | list[Any]) -> Outcome:
    """A class whose text is here may have hooks that mean nothing today; any other is checked later."""
    for path in [named] if isinstance(named, str) else named:
        try:
            require_adaptable(str(path), (Path.cwd(),))
        except OldHook as error:
            return refused(f"{error.what}: {error.hint}")
        except CodeError:
            continue
    return became("callbacks.callbacks_class", named)


def _callbacks(value: Any, _: Context) -> list[Outcome]:
    if not value:
        return [ignored("none given")]
    if isinstance(value, str) and "DefaultCallbacks" in value:
        return [ignored("RLlib's own callbacks do nothing")]
    if isinstance(value, str | list):
        return [_callback_class(value)]
    return [
        refused("callbacks are a class today: name one that inherits from RLlibCallback (my_file.py:Name)")
    ]


def _log_level(value: Any, _: Context) -> list[Outcome]:
    level = str(value).upper()
    known = level in ("DEBUG", "INFO", "WARN", "WARNING", "ERROR")
    return [became("debugging.log_level", level) if known else ignored("not a level")]


def _preprocessor(value: Any, context: Context) -> list[Outcome]:
    if not nested_keys.is_atari(context.env):
        return [ignored("only Atari's images were preprocessed")]
    if value == "deepmind":
        return [became("environment.atari", True)]
    if value != "rllib":
        return [became("environment.atari", None, "images as the game gives them")]
    model = context.config.get("model") or {}
    plain = {"dim": model.get("dim", 84), "framestack": 1, "noop_max": 0, "frame_skip": 1}
    colours = {"grayscale": model.get("grayscale", False), "zero_mean": model.get("zero_mean", True)}
    return [Outcome("translated", {f"environment.atari.{k}": v for k, v in {**plain, **colours}.items()})]


def _env(value: Any, context: Context) -> list[Outcome]:
    if not value:
        return [ignored("none given")]
    today = todays_env(str(value))
    found = [became("environment.env", str(value))]
    other = closest_env(str(value))
    if other is not None and not context.closest:
        return [refused(f"{other.remark}: write env: {other.env}, or add --closest")]
    today = other or today
    if today is not None:
        config = {f"environment.env_config.{key}": val for key, val in (today.env_config or {}).items()}
        found = [Outcome("translated", {"environment.env": today.env, **config}, today.remark, changed=True)]
    if nested_keys.is_atari(str(value)):
        found += _atari(context)
    return found


def _atari(context: Context) -> list[Outcome]:
    """What old RLlib did with Atari games by itself."""
    if context.algo == "DreamerV3":
        small: dict[str, Any] = {"dim": 64, "framestack": 1, "grayscale": False, "zero_mean": True}
        values = {f"environment.atari.{key}": value for key, value in small.items()}
    else:
        defaults = {"preprocessor_pref": "environment.atari", "clip_rewards": "environment.clip_rewards"}
        values = {new: True for old, new in defaults.items() if context.config.get(old) is None}
    why = "as old RLlib did with Atari games by itself; an episode is a whole game, not one life"
    return [Outcome("translated", values, why, changed=True)] if values else []


def _is_atari(value: Any, context: Context) -> list[Outcome]:
    if value is None or bool(value) == nested_keys.is_atari(context.env):
        return [ignored("told from the environment's name")]
    return [became("environment.atari", True if value else None)]


def _learner_class(value: Any, _: Context) -> list[Outcome]:
    return [became("learners.learner_class", value) if value else ignored("none given")]


def _env_config(value: Any, _: Context) -> list[Outcome]:
    return [became("environment.env_config", dict(value)) if value else ignored("empty")]


def _task_fn(value: Any, _: Context) -> list[Outcome]:
    return [became("environment.env_task_fn", value) if value else ignored("none given")]


def _input(value: Any, context: Context) -> list[Outcome]:
    if value in (None, "sampler"):
        return [ignored("the environment is sampled, as always without recorded data")]
    if isinstance(value, Mapping):
        return [refused("a mix of sources cannot be read today: name one path or a list of them")]
    paths = value
    if value == "dataset":
        given = context.config.get("input_config") or {}
        paths = given.get("paths") or given.get("path")
        if not paths:
            return [refused("input: dataset needs input_config: {paths: ...}")]
    if isinstance(paths, str) and paths.startswith("d4rl"):
        return [refused(f"{paths} needs the d4rl package, which is no longer kept: convert it to Parquet")]
    if isinstance(paths, str) and not any(sign in paths for sign in "/.*~"):
        return [refused(f"{paths!r} is an input reader of the old stack: name the recorded files")]
    if context.algo not in OFFLINE:
        return [refused(f"{context.algo} learns by acting today: use BC, MARWIL, CQL or IQL, or remove it")]
    return [became("offline_data.input_", paths)]


def _input_config(value: Any, context: Context) -> list[Outcome]:
    return [
        ignored("its paths are offline_data.input_" if context.config.get("input") else "no input is set")
    ]


def _output(value: Any, _: Context) -> list[Outcome]:
    if not value:
        return [ignored("none given")]
    if value == "logdir":
        return [refused("write the folder's name: recorded episodes are kept apart from the run")]
    return [became("offline_data.output", value)]


RULES: dict[str, Rule] = {
    "env": _env,
    "env_config": _env_config,
    "is_atari": _is_atari,
    "learner_class": _learner_class,
    "_learner_class": _learner_class,
    "env_task_fn": _task_fn,
    "observation_filter": _filter,
    "clip_rewards": _rewards,
    "horizon": _horizon,
    "remote_worker_envs": _remote_envs,
    "gym_env_vectorize_mode": lambda value, _: [
        became("rollouts.gym_env_vectorize_mode", str(value).lower()) if value else ignored("none given")
    ],
    "framework": _framework,
    "framework_str": _framework,
    "callbacks": _callbacks,
    "callbacks_class": _callbacks,
    "log_level": _log_level,
    "preprocessor_pref": _preprocessor,
    "input": _input,
    "input_": _input,
    "input_config": _input_config,
    "output": _output,
}
"""Key -> the function that decides its fate."""
