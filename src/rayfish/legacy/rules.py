"""Old keys whose fate depends on their value, or on other keys beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rayfish.algorithm.unused_keys import EVALUATION_SECTIONS
from rayfish.errors import did_you_mean
from rayfish.legacy import env_keys, nested_keys, training_keys
from rayfish.legacy.hydra_keys import OLD_KEYS
from rayfish.legacy.key_tables import IGNORED, OFF_ONLY, REFUSED, SAME, TRAINING
from rayfish.legacy.outcome import Context, Outcome, Rule, became, ignored, refused, unless_off
from rayfish.legacy.training_keys import placed

_UNSET = -1  # how Ray 1.x and 2.x wrote DEPRECATED_VALUE


def outcomes(key: str, value: Any, context: Context) -> list[Outcome]:
    """What becomes of one key of an old `config`."""
    if type(value) is int and value == _UNSET and key not in _MAY_BE_MINUS_ONE:
        return [ignored("Ray's own mark for a setting that is not in use")]
    try:
        return _outcomes(key, value, context)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        return [refused(f"{key} cannot be {value!r}: write it as RLlib's manual of that time has it")]


_MAY_BE_MINUS_ONE = ("v_min", "v_max", "target_entropy", "clip_rewards", "horizon_H")


def _outcomes(key: str, value: Any, context: Context) -> list[Outcome]:
    rule = RULES.get(key)
    if rule is not None:
        return rule(value, context)
    if key in IGNORED:
        return [ignored(IGNORED[key])]
    if key in OFF_ONLY:
        outcome = unless_off(key, value, OFF_ONLY[key])
        if outcome.fate == "refused" and context.closest:
            return [Outcome("translated", {}, f"--closest: left out, {context.algo} has no such thing", True)]
        return [outcome]
    if key in REFUSED:
        return [refused(REFUSED[key]) if value is not None else ignored("none given")]
    today = _renamed(key)
    if today is not None:
        return [placed(today, value, context)]
    if key.startswith("_"):
        return [ignored("a private switch of the old stacks")]
    if value is None:
        return [ignored("none given")]
    close = did_you_mean(key, known_keys())
    meant = f"did you mean {' or '.join(close)}?" if close else "remove it, or move it into env_config"
    return [refused(f"no Ray from 1.9 to 2.9 has a key {key!r}: {meant}")]


def known_keys() -> list[str]:
    """Every key of an old `config` that has a rule."""
    return [*RULES, *IGNORED, *OFF_ONLY, *REFUSED, *OLD_KEYS, *TRAINING, *SAME]


def _renamed(key: str) -> str | None:
    """Today's dotted key of one that only moved or was renamed."""
    if key in TRAINING:
        return f"training.{key}"
    return f"{SAME[key]}.{key}" if key in SAME else OLD_KEYS.get(key)


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
            bare = {dotted.partition(".")[2]: today for dotted, today in outcome.values.items()}
            values = {f"evaluation.evaluation_config.{name}": today for name, today in bare.items()}
            inner_key = f"{key}.{outcome.inner}" if outcome.inner else key
            found.append(Outcome(outcome.fate, values, outcome.why, outcome.changed, inner_key))
    return found or [ignored("empty")]


_SAME_IN_EVALUATION = (
    "input",
    "exploration_config",
    "model",
    "num_workers",
    "num_rollout_workers",
    "evaluation_interval",
)
"""Keys of `evaluation_config` that an evaluation has no use for."""


def _evaluation_interval(value: Any, _: Context) -> list[Outcome]:
    return [became("evaluation.evaluation_interval", value or None)]


def _evaluation_parallel(value: Any, context: Context) -> list[Outcome]:
    runners = context.config.get("evaluation_num_workers") or context.config.get("evaluation_num_env_runners")
    if value and not runners:
        return [ignored("without evaluation workers there is nothing to run beside the training")]
    return [became("evaluation.evaluation_parallel_to_training", bool(value))]


def _evaluation_function(value: Any, _: Context) -> list[Outcome]:
    return [became("evaluation.custom_evaluation_function", value) if value else ignored("none given")]


def _flat_multiagent(key: str) -> Rule:
    def rule(value: Any, context: Context) -> list[Outcome]:
        found = nested_keys.multiagent({key: value}, context)
        return [replace(outcome, inner=outcome.inner.removeprefix(key).lstrip(".")) for outcome in found]

    return rule


RULES: dict[str, Rule] = {
    **training_keys.RULES,
    **env_keys.RULES,
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
    **{key: _flat_multiagent(key) for key in ("policies", "policy_mapping_fn", "policies_to_train")},
    "count_steps_by": _flat_multiagent("count_steps_by"),
    "replay_mode": _flat_multiagent("replay_mode"),
    "algorithm_config_overrides_per_module": _flat_multiagent("algorithm_config_overrides_per_module"),
    "exploration_config": nested_keys.exploration,
    "replay_buffer_config": nested_keys.replay_buffer,
    "evaluation_config": _evaluation_config,
    "evaluation_interval": _evaluation_interval,
    "evaluation_parallel_to_training": _evaluation_parallel,
    "custom_eval_function": _evaluation_function,
    "custom_evaluation_function": _evaluation_function,
}
"""Key -> the function that decides its fate."""
