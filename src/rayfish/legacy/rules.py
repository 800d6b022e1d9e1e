"""What becomes of a key of an old `config`: by its rule, else by the tables.

The rules here are about environment, data, callbacks and evaluation; those of the algorithm's settings are in
`training_keys`, those of sections with keys of their own in `nested_keys`, and the tables in `key_tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rayfish.algorithm.callback_hooks import OldHook, require_adaptable
from rayfish.algorithm.unused_keys import EVALUATION_SECTIONS
from rayfish.errors import CodeError, did_you_mean
from rayfish.experiment.sections import OFFLINE
from rayfish.legacy import nested_keys, training_keys
from rayfish.legacy.env_names import closest_env, todays_env
from rayfish.legacy.hydra_keys import OLD_KEYS
from rayfish.legacy.key_tables import IGNORED, OFF_ONLY, REFUSED, SAME, TRAINING
from rayfish.legacy.nested_keys import is_atari
from rayfish.legacy.outcome import (
    Context,
    Outcome,
    Rule,
    became,
    decided,
    if_given,
    ignored,
    refused,
    unless_off,
)
from rayfish.legacy.training_keys import placed, whole

_UNSET = -1  # how Ray 1.x and 2.x wrote DEPRECATED_VALUE
_MAY_BE_MINUS_ONE = ("v_min", "v_max", "target_entropy", "clip_rewards", "horizon_H")


def outcomes(key: str, value: Any, context: Context) -> list[Outcome]:
    """What becomes of one key of an old `config`."""
    if type(value) is int and value == _UNSET and key not in _MAY_BE_MINUS_ONE:
        return [ignored("Ray's own mark for a setting that is not in use")]
    rule = RULES.get(key, lambda value, context: _by_table(key, value, context))
    return decided(lambda: rule(value, context), key, value, "RLlib's")


def _by_table(key: str, value: Any, context: Context) -> Outcome:
    if key in IGNORED:
        return ignored(IGNORED[key])
    if key in OFF_ONLY:
        outcome = unless_off(key, value, OFF_ONLY[key])
        if outcome.fate == "refused" and context.closest:
            return Outcome("translated", {}, f"--closest: left out, {context.algo} has no such thing", True)
        return outcome
    if key in REFUSED:
        return refused(REFUSED[key]) if value is not None else ignored()
    today = (
        f"training.{key}" if key in TRAINING else f"{SAME[key]}.{key}" if key in SAME else OLD_KEYS.get(key)
    )
    if today is not None:
        return placed(today, value, context)
    if key.startswith("_"):
        return ignored("a private switch of the old stacks")
    if value is None:
        return ignored()
    close = did_you_mean(key, known_keys())
    meant = f"did you mean {' or '.join(close)}?" if close else "remove it, or move it into env_config"
    return refused(f"no Ray from 1.9 to 2.9 has a key {key!r}: {meant}")


def known_keys() -> list[str]:
    """Every key of an old `config` that has a rule."""
    return [*RULES, *IGNORED, *OFF_ONLY, *REFUSED, *OLD_KEYS, *TRAINING, *SAME]


def _evaluation_config(value: Any, context: Context) -> list[Outcome]:
    """Its keys are those of `config`, and their names changed alike."""
    found = []
    for key, inner in (value or {}).items():
        if key in _SAME_IN_EVALUATION:
            found.append(ignored("an evaluation plays in the environment, by the policy's best actions", key))
            continue
        for outcome in outcomes(key, inner, context):
            sections = {dotted.partition(".")[0] for dotted in outcome.values}
            if key not in ("epsilon", "seed") and sections - {*EVALUATION_SECTIONS}:
                found.append(ignored("an evaluation does not learn", key))
                continue
            values = {
                f"evaluation.evaluation_config.{dotted.partition('.')[2]}": today
                for dotted, today in outcome.values.items()
            }
            inner_key = f"{key}.{outcome.inner}" if outcome.inner else key
            found.append(replace(outcome, values=values, inner=inner_key))
    return found or [ignored("empty")]


_SAME_IN_EVALUATION = (
    *("input", "exploration_config", "model", "num_workers", "num_rollout_workers", "evaluation_interval"),
)
"""Keys of `evaluation_config` that an evaluation has no use for."""


def _evaluation_parallel(value: Any, context: Context) -> Outcome:
    runners = context.config.get("evaluation_num_workers") or context.config.get("evaluation_num_env_runners")
    if value and not runners:
        return ignored("without evaluation workers there is nothing to run beside the training")
    return became("evaluation.evaluation_parallel_to_training", bool(value))


def _filter(value: Any, _: Context) -> Outcome:
    if value in (None, "NoFilter"):
        return became("rollouts.observation_filter", "NoFilter")
    if str(value).endswith("MeanStdFilter"):
        return became("rollouts.observation_filter", "MeanStdFilter")
    return refused(f"{value!r} is no filter: MeanStdFilter or NoFilter")


def _rewards(value: Any, context: Context) -> Outcome:
    if value is None and is_atari(context.env):
        return became("environment.clip_rewards", True, "Atari's rewards were clipped unless told otherwise")
    why = "" if value in (None, False) else "an environment wrapper; returns are reported unclipped"
    return became("environment.clip_rewards", value, why)


def _horizon(value: Any, _: Context) -> Outcome:
    if value in (None, float("inf")):
        return ignored("the environment decides")
    return became("rollouts.horizon", whole(value, "horizon"))


def _remote_envs(value: Any, _: Context) -> Outcome:
    if not value:
        return ignored("off")
    return became("rollouts.gym_env_vectorize_mode", "async", "each environment in a process of its own")


def _framework(value: Any, _: Context) -> Outcome:
    if value in (None, "torch"):
        return became("framework.framework", "torch")
    why = f"{value} ran on TensorFlow; RLlib's new stack runs on torch"
    return became("framework.framework", "torch", why, changed=True)


def _callbacks(value: Any, _: Context) -> Outcome:
    """A class whose text is here may have hooks that mean nothing today; any other is checked later."""
    if not value:
        return ignored()
    if isinstance(value, str) and "DefaultCallbacks" in value:
        return ignored("RLlib's own callbacks do nothing")
    if not isinstance(value, str | list):
        return refused(
            "callbacks are a class today: name one that inherits from RLlibCallback (my_file.py:Name)"
        )
    for path in [value] if isinstance(value, str) else value:
        try:
            require_adaptable(str(path), (Path.cwd(),))
        except OldHook as error:
            return refused(f"{error.what}: {error.hint}")
        except CodeError:
            continue
    return became("callbacks.callbacks_class", value)


def _log_level(value: Any, _: Context) -> Outcome:
    level = str(value).upper()
    known = level in ("DEBUG", "INFO", "WARN", "WARNING", "ERROR")
    return became("debugging.log_level", level) if known else ignored("not a level")


def _preprocessor(value: Any, context: Context) -> Outcome:
    if not is_atari(context.env):
        return ignored("only Atari's images were preprocessed")
    if value == "deepmind":
        return became("environment.atari", True)
    if value != "rllib":
        return became("environment.atari", None, "images as the game gives them")
    model = context.config.get("model") or {}
    return _atari_values(
        {
            "dim": model.get("dim", 84),
            "framestack": 1,
            "noop_max": 0,
            "frame_skip": 1,
            "grayscale": model.get("grayscale", False),
            "zero_mean": model.get("zero_mean", True),
        }
    )


def _atari_values(values: Mapping[str, Any], why: str = "", changed: bool = False) -> Outcome:
    return Outcome("translated", {f"environment.atari.{key}": v for key, v in values.items()}, why, changed)


def _env(value: Any, context: Context) -> Outcome | list[Outcome]:
    if not value:
        return ignored()
    name = str(value)
    today, other = todays_env(name), closest_env(name)
    found = [became("environment.env", name)]
    if other is not None and not context.closest:
        return refused(f"{other.remark}: write env: {other.env}, or add --closest")
    today = other or today
    if today is not None:
        config = {f"environment.env_config.{key}": val for key, val in (today.env_config or {}).items()}
        found = [Outcome("translated", {"environment.env": today.env, **config}, today.remark, changed=True)]
    return found + _atari(context) if is_atari(name) else found


def _atari(context: Context) -> list[Outcome]:
    """What old RLlib did with Atari games by itself."""
    why = "as old RLlib did with Atari games by itself; an episode is a whole game, not one life"
    if context.algo == "DreamerV3":
        small = {"dim": 64, "framestack": 1, "grayscale": False, "zero_mean": True}
        return [_atari_values(small, why, changed=True)]
    defaults = {"preprocessor_pref": "environment.atari", "clip_rewards": "environment.clip_rewards"}
    values = {new: True for old, new in defaults.items() if context.config.get(old) is None}
    return [Outcome("translated", values, why, changed=True)] if values else []


def _is_atari(value: Any, context: Context) -> Outcome:
    if value is None or bool(value) == is_atari(context.env):
        return ignored("told from the environment's name")
    return became("environment.atari", True if value else None)


def _input(value: Any, context: Context) -> Outcome:
    if value in (None, "sampler"):
        return ignored("the environment is sampled, as always without recorded data")
    if isinstance(value, Mapping):
        return refused("a mix of sources cannot be read today: name one path or a list of them")
    paths = value
    if value == "dataset":
        given = context.config.get("input_config") or {}
        paths = given.get("paths") or given.get("path")
        if not paths:
            return refused("input: dataset needs input_config: {paths: ...}")
    if isinstance(paths, str) and paths.startswith("d4rl"):
        return refused(f"{paths} needs the d4rl package, which is no longer kept: convert it to Parquet")
    if isinstance(paths, str) and not any(sign in paths for sign in "/.*~"):
        return refused(f"{paths!r} is an input reader of the old stack: name the recorded files")
    if context.algo not in OFFLINE:
        return refused(f"{context.algo} learns by acting today: use BC, MARWIL, CQL or IQL, or remove it")
    return became("offline_data.input_", paths)


def _input_config(_: Any, context: Context) -> Outcome:
    return ignored("its paths are offline_data.input_" if context.config.get("input") else "no input is set")


def _output(value: Any, _: Context) -> Outcome:
    if value == "logdir":
        return refused("write the folder's name: recorded episodes are kept apart from the run")
    return became("offline_data.output", value) if value else ignored()


def _flat_multiagent(key: str) -> Rule:
    def rule(value: Any, context: Context) -> list[Outcome]:
        found = nested_keys.multiagent({key: value}, context)
        return [replace(outcome, inner=outcome.inner.removeprefix(key).lstrip(".")) for outcome in found]

    return rule


_FLAT_MULTIAGENT = (
    *("policies", "policy_mapping_fn", "policies_to_train", "count_steps_by", "replay_mode"),
    "algorithm_config_overrides_per_module",
)

RULES: dict[str, Rule] = {
    **training_keys.RULES,
    "env": _env,
    "env_config": lambda value, _: (
        became("environment.env_config", dict(value)) if value else ignored("empty")
    ),
    "is_atari": _is_atari,
    "learner_class": if_given("learners.learner_class"),
    "_learner_class": if_given("learners.learner_class"),
    "env_task_fn": if_given("environment.env_task_fn"),
    "observation_filter": _filter,
    "clip_rewards": _rewards,
    "horizon": _horizon,
    "remote_worker_envs": _remote_envs,
    "gym_env_vectorize_mode": lambda value, _: (
        became("rollouts.gym_env_vectorize_mode", str(value).lower()) if value else ignored()
    ),
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
    "model": nested_keys.model,
    "model_config": nested_keys.model,
    "Q_model": nested_keys.two_models,
    "q_model_config": nested_keys.two_models,
    "policy_model": nested_keys.model,
    "policy_model_config": nested_keys.model,
    "optimization": nested_keys.optimization,
    "optimization_config": nested_keys.optimization,
    "multiagent": nested_keys.multiagent,
    "multi_agent": nested_keys.multiagent,
    **{key: _flat_multiagent(key) for key in _FLAT_MULTIAGENT},
    "exploration_config": nested_keys.exploration,
    "replay_buffer_config": nested_keys.replay_buffer,
    "evaluation_config": _evaluation_config,
    "evaluation_interval": lambda value, _: became("evaluation.evaluation_interval", value or None),
    "evaluation_parallel_to_training": _evaluation_parallel,
    "custom_eval_function": if_given("evaluation.custom_evaluation_function"),
    "custom_evaluation_function": if_given("evaluation.custom_evaluation_function"),
}
"""Key -> the function that decides its fate."""
