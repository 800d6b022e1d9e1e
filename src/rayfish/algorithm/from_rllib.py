"""An RLlib `AlgorithmConfig` (`PPOConfig().environment("CartPole-v1").training(lr=3e-4)`) as overrides.

What differs from RLlib's defaults is taken over under the section that feeds the same method; what an
experiment has no place for is refused by name. Reads attributes only: RLlib is not imported for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rayfish.algorithm.signatures import default_of, entries
from rayfish.errors import ConfigError, Problem, RayfishError
from rayfish.experiment.compose import DEFAULT_ENV
from rayfish.experiment.sections import ALGORITHMS, METHODS, defaults
from rayfish.experiment.words import plain, word

_RENAMED = {
    "_train_batch_size_per_learner": "training.train_batch_size_per_learner",
    "_learner_class": "learners.learner_class",
    "_learner_connector": "learners.learner_connector",
    "_env_to_module_connector": "rollouts.env_to_module_connector",
    "_module_to_env_connector": "rollouts.module_to_env_connector",
    "dataset_num_iters_per_eval_runner": "evaluation.dataset_num_iters_per_offline_eval_runner",
    "framework_str": "framework.framework",
    "optimization": "training.optimization_config",
}
"""Attributes that are not called like the keyword that sets them."""

_INSTEAD = {
    "algorithm_config_overrides_per_module": "write multi_agent.policies={policy: {lr: 1e-4}}",
    "enable_rl_module_and_learner": "RLlib's old API stack is not supported: leave out .api_stack(...)",
    "enable_env_runner_and_connector_v2": "RLlib's old API stack is not supported: leave out .api_stack(...)",
    "exploration_config": "DQN's exploration is .training(epsilon=[[0, 1.0], [10000, 0.05]])",
    "_torch_lr_scheduler_classes": "write a schedule: .training(lr=[[0, 1e-3], [100000, 1e-4]])",
}
_SPACES = ("observation_space", "action_space")
"""The environment's own spaces are used."""

_INTERNAL = ("algo_class", "_is_frozen", "_is_atari", "in_evaluation", "_prior_exploration_config", "env")


@dataclasses.dataclass(frozen=True)
class FromConfig:
    """A config as `key=value` words; `env` is an environment class or creator, None where it is named."""

    words: tuple[str, ...]
    env: Any
    notes: tuple[str, ...]


def is_config(value: Any) -> bool:
    """Whether something is one of RLlib's config objects."""
    return not isinstance(value, type) and _rllib_class(value) is not None


def read(config: Any) -> FromConfig:
    """The overrides that a config stands for.

    :raises ConfigError: with every setting that an experiment has no place for
    """
    own: Any = _rllib_class(config)
    algo = own.__name__.removesuffix("Config")
    if algo not in ALGORITHMS:
        raise RayfishError(
            f"{type(config).__name__} is of no algorithm that Rayfish trains",
            f"use the config of one of them: {', '.join(f'{name}Config' for name in ALGORITHMS)}",
        )
    words, problems, notes = [f"algo.name={algo}"], [], []
    default = vars(own())
    for attribute, value in vars(config).items():
        before = default.get(attribute)
        if attribute in _INTERNAL or value is before or _equal(value, before):
            continue
        try:
            words += _words(attribute, value, algo)
        except RayfishError as error:
            problems.append(Problem(f"{type(config).__name__}: {attribute}", error.what, error.hint))
        if attribute in _SPACES:
            notes.append(f"{attribute} is left out: the environment's own is used")
    if problems:
        raise ConfigError(problems)
    env = config.env if not isinstance(config.env, str | None) else None
    if env is None:
        words.append(f"environment.env={config.env or DEFAULT_ENV}")
    if config.env is None:
        notes.append(f"{type(config).__name__} names no environment: {DEFAULT_ENV} is taken")
    return FromConfig(tuple(words), env, (*notes, *_differing_defaults(config, algo)))


def _rllib_class(value: Any) -> type | None:
    """The class of RLlib's that a config (or the user's class of it) is made from."""
    if not hasattr(value, "algo_class"):
        return None
    own = (c for c in type(value).__mro__ if c.__module__.startswith("ray.rllib.algorithms."))
    return next(own, None)


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # arrays
        return False


def _words(attribute: str, value: Any, algo: str) -> list[str]:
    """The settings of one attribute."""
    if attribute in _SPACES:
        return []
    if attribute == "_model_config":
        return _model(value)
    if attribute == "model":  # RLlib's new stack ignores it; people mean it
        from ray.rllib.models.catalog import MODEL_DEFAULTS

        return _model({key: v for key, v in value.items() if not _equal(v, MODEL_DEFAULTS.get(key))})
    if attribute == "_rl_module_spec":
        return _module(value)
    if attribute == "policies":
        return [word("multi_agent.policies", _policies(value))]
    if attribute in _RENAMED:
        return [word(_RENAMED[attribute], value)]
    if attribute.startswith("callbacks_on_"):
        return [word(f"callbacks.{attribute.removeprefix('callbacks_')}", value)]
    for name in METHODS:
        if attribute in entries(name, algo):
            return [word(f"{name}.{attribute}", value)]
    hint = _INSTEAD.get(attribute, "leave it out, or say what it does in an issue")
    raise RayfishError(f"is {value!r:.80}, for which an experiment has no place", hint)


def _model(value: Any) -> list[str]:
    """`model_config`: a dictionary, or RLlib's dataclass, whose `vf_share_layers` counts as written."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        default = type(value)()
        written = dataclasses.asdict(value)
        value = {k: v for k, v in written.items() if v != getattr(default, k) or k == "vf_share_layers"}
    return [word(f"training.model.{key}", inner) for key, inner in value.items()]


def _module(spec: Any) -> list[str]:
    if getattr(spec, "rl_module_specs", None) is not None:
        raise RayfishError(
            "holds a module for each policy",
            "write multi_agent.policies={policy: {model: {custom_model: ...}}}",
        )
    words = [word("training.model.custom_model", spec.module_class)] if spec.module_class else []
    inner: Any = spec.model_config
    if not spec.module_class or not inner:
        return [*words, *_model(inner or {})]
    values = inner if isinstance(inner, Mapping) else dataclasses.asdict(inner)
    return [*words, word("training.model.custom_model_config", values)]


def _policies(value: Any) -> Any:
    """Policies by name; settings of their own have another form here."""
    if not isinstance(value, Mapping):
        return plain(value, "multi_agent.policies")
    for name, spec in value.items():
        if getattr(spec, "policy_class", None) is not None or getattr(spec, "config", None):
            raise RayfishError(
                f"{name} has a class or settings of its own in its PolicySpec, which RLlib ignores",
                f"write multi_agent.policies={{{name}: {{lr: 1e-4}}}}",
            )
    return list(value)


def _differing_defaults(config: Any, algo: str) -> list[str]:
    """Where an untouched setting of RLlib's means another number here."""
    key = "num_env_runners"
    theirs, ours = default_of("rollouts", key, algo), defaults()[f"rollouts.{key}"]
    if getattr(config, key) != theirs or theirs == ours:
        return []
    return [
        f"{key} is at RLlib's default ({theirs}), which counts as not given: the main process samples "
        f"(rollouts.{key}={ours})"
    ]
