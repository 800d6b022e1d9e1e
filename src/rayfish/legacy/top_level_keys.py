"""The keys beside `config` in an old experiment: algorithm, stop conditions, checkpoints, Tune's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rayfish.errors import did_you_mean
from rayfish.experiment import result_names
from rayfish.experiment.algorithm_names import CLOSEST, spelled
from rayfish.experiment.sections import ALGORITHMS, OFFLINE
from rayfish.legacy import nested_keys, rules
from rayfish.legacy.file_format import ALGORITHM_KEYS
from rayfish.legacy.key_tables import EXPERIMENT_IGNORED
from rayfish.legacy.outcome import Context, Outcome, became, ignored, refused
from rayfish.legacy.training_keys import whole


def _algorithm(run: str, context: Context) -> Outcome:
    known = spelled(run, ALGORITHMS)
    if known is not None:
        return became("algo.name", known)
    gone = spelled(run, CLOSEST)
    if gone is None:
        close = did_you_mean(run, [*ALGORITHMS, *CLOSEST])
        meant = f"did you mean {close[0]}?" if close else f"there are: {', '.join(ALGORITHMS)}"
        return refused(f"there is no algorithm {run!r}: {meant}")
    today = CLOSEST[gone]
    if context.closest:
        return became("algo.name", today, f"--closest: {gone} is no longer in RLlib", changed=True)
    return refused(
        f"{gone} is no longer in RLlib: the closest today is {today} ({ALGORITHMS[today]}); "
        f"add --closest to use it"
    )


def outcomes(key: str, value: Any, context: Context, run: str, values: Mapping[str, Any]) -> list[Outcome]:
    """What becomes of a key beside `config`."""
    try:
        return _beside_config(key, value, context, run, values)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        return [refused(f"{key} cannot be {value!r}: write it as Ray's manual of that time has it")]


def _beside_config(
    key: str, value: Any, context: Context, run: str, values: Mapping[str, Any]
) -> list[Outcome]:
    if key in ALGORITHM_KEYS:
        return [_algorithm(run, context)]
    if key == "env":
        return rules.outcomes("env", value, context)
    if key == "stop":
        return _stop(value, context)
    if key == "pass_criteria":
        why = "it told a test when to pass; `stop` ends the run"
        return [ignored(why)] if values.get("stop") else _stop(value, context)
    if key in ("checkpoint_config", "failure_config") and isinstance(value, Mapping | None):
        value = value or {}
        inner = [
            (k, o)
            for k, v in value.items()
            for o in _checkpoint(k, v) or [nested_keys.unknown(k, key, _CHECKPOINT)]
        ]
        return [replace(outcome, inner=k) for k, outcome in inner] or [ignored("empty")]
    if key in ("local_dir", "storage_path"):
        return [became("runtime.local_dir", str(value)) if value else ignored("none given")]
    if key == "name":
        return [became("runtime.name", str(value)) if value else ignored("none given")]
    if key in ("num_samples", "repeat"):
        more = int(value or 1) > 1
        why = f"`rayfish tune` runs them all; `rayfish train` runs one, or {value} with --seeds {value}"
        return [became("search.num_samples", value, why, changed=True) if more else ignored("one run")]
    if key == "time_budget_s":
        return [became("stop_conditions.time_total_s", value) if value else ignored("none given")]
    if key == "restore":
        why = "a file does not name where a run begins: rayfish train -f FILE --restore RUN"
        return [refused(why) if value else ignored("none given")]
    if key in _SEARCH:
        return [_search(key, value)]
    if key in ("metric", "mode"):
        return [became(f"search.{key}", value, "`rayfish tune` reads it") if value else ignored("none given")]
    if key in EXPERIMENT_IGNORED:
        return [ignored(EXPERIMENT_IGNORED[key])]
    if key in ("framework", "frameworks"):
        named = value if isinstance(value, list) else [value]
        return rules.outcomes("framework", "torch" if "torch" in named else named[0], context)
    checkpoint = _checkpoint(key, value)
    if checkpoint:
        return checkpoint
    home = "config" if key in rules.known_keys() else ""
    hint = f"it belongs into {home}" if home else "remove it"
    return [refused(f"an experiment has no key {key!r}: {hint}")]


_SEARCH: dict[str, tuple[str, dict[str, str]]] = {
    "scheduler": (
        "scheduler",
        {
            "fifo": "none",
            **dict.fromkeys(("asha", "asynchyperband", "async_hyperband"), "asha"),
            **dict.fromkeys(("hyperband", "hb_bohb", "hyperbandforbohb"), "hyperband"),
            **dict.fromkeys(("medianstopping", "medianstoppingrule", "median_stopping_rule"), "median"),
            **dict.fromkeys(("populationbasedtraining", "pbt"), "pbt"),
            "pb2": "pb2",
        },
    ),
    "search_alg": (
        "method",
        {
            **{
                name: name for name in ("random", "optuna", "hyperopt", "bayesopt", "nevergrad", "ax", "hebo")
            },
            **dict.fromkeys(("variant_generator", "basicvariantgenerator"), "random"),
            **dict.fromkeys(("bohb", "tunebohb"), "bohb"),
        },
    ),
}
"""Tune's schedulers and search algorithms, by the names and classes of the time -> today's."""


def _search(key: str, value: Any) -> Outcome:
    """Tune's scheduler or search algorithm, which a single run has no use for."""
    if not value:
        return ignored("none given")
    today, names = _SEARCH[key]
    bare = str(value).rpartition(".")[2].lower().removesuffix("scheduler").removesuffix("search")
    if bare not in names:
        return refused(f"there is no {key} {value!r}: choose one of {', '.join(sorted(set(names.values())))}")
    why = "`rayfish tune` reads it, `rayfish train` does not"
    return became(f"search.{today}", names[bare], why, changed=True)


_CHECKPOINT = {
    "checkpoint_freq": "checkpoint_frequency",
    "checkpoint_frequency": "checkpoint_frequency",
    "checkpoint_at_end": "checkpoint_at_end",
    "keep_checkpoints_num": "num_to_keep",
    "num_to_keep": "num_to_keep",
    "checkpoint_score_order": "checkpoint_score_order",
}


def _checkpoint(key: str, value: Any) -> list[Outcome]:
    """When checkpoints are written and which are kept."""
    if _CHECKPOINT.get(key) == "num_to_keep" and value == 0:
        return [ignored("all are kept")]
    if key in _CHECKPOINT:
        return [
            ignored("none given")
            if value is None
            else became(f"checkpoint.{_CHECKPOINT[key]}", whole(value, _CHECKPOINT[key]))
        ]
    if key in ("checkpoint_score_attr", "checkpoint_score_attribute"):
        return [_score(value)]
    known = ("max_failures", "fail_fast", "checkpoint_keep_all_ranks")
    return [ignored("without meaning for a run")] if key in known or key.startswith("_checkpoint") else []


def _score(value: Any) -> Outcome:
    if not value:
        return ignored("none given")
    name = str(value).removeprefix("min-")
    metric = result_names.todays_metric(name)
    if metric is None:
        return refused(f"no metric is called {name!r}: write rollout/return_mean, say")
    values = {"checkpoint.checkpoint_score_attribute": metric}
    if str(value).startswith("min-"):
        values["checkpoint.checkpoint_score_order"] = "min"
    return Outcome("translated", values)


def _stop(value: Any, context: Context) -> list[Outcome]:
    if not isinstance(value, Mapping):
        empty = ignored("none given")
        return [refused("stop holds keys and values: stop: {training_iteration: 100}") if value else empty]
    return [_stop_condition(key, limit, context) for key, limit in _flat(value)] or [ignored("empty")]


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested conditions (`evaluation: {episode_reward_mean: 150}`) as one name each."""
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping) and not set(inner) & {"above", "below"}:
            yield from _flat(inner, f"{name}/")
        else:
            yield name, inner


def _stop_condition(key: str, limit: Any, context: Context) -> Outcome:
    metric = result_names.todays_metric(key)
    if metric is None and key.startswith(_OURS):
        metric = key
    if metric is None:
        why = result_names.why_gone(key)
        because = why or "write episode_reward_mean, timesteps_total, ..."
        return refused(f"no result is called {key!r} any more: {because}", key)
    if metric == "run/env_steps" and context.algo in OFFLINE:
        why = f"{context.algo} takes no steps of its own; the steps it learnt from were counted"
        return became("stop_conditions.run/trained_steps", whole(limit, "timesteps_total"), why, inner=key)
    if result_names.is_counted_otherwise(key):
        why = f"{metric} counts the environment's steps; {key} counted agents' ones"
        return became(f"stop_conditions.{metric}", limit, why, changed=True, inner=key)
    name = _PLAIN.get(metric, metric)
    return became(f"stop_conditions.{name}", whole(limit, name), inner=key)


_OURS = ("run/", "rollout/", "eval/", "time/", "learn/", "env/", "system/")
_PLAIN = {
    "run/iteration": "training_iteration",
    "run/env_steps": "timesteps_total",
    "run/episodes": "episodes_total",
    "time/total_s": "time_total_s",
    "rollout/return_mean": "episode_reward_mean",
}
"""Metrics for which the main config has a line of its own."""
