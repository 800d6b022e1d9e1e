"""The keys beside `config` in an old experiment: algorithm, stop conditions, checkpoints, Tune's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rayfish.errors import did_you_mean
from rayfish.experiment import result_names
from rayfish.experiment.sections import ALGORITHMS, CLOSEST, OFFLINE, spelled
from rayfish.legacy import rules
from rayfish.legacy.file_format import ALGORITHM_KEYS
from rayfish.legacy.hydra_keys import best_by
from rayfish.legacy.key_tables import CHECKPOINT, EXPERIMENT_IGNORED, SEARCH
from rayfish.legacy.outcome import Context, Outcome, became, decided, ignored, refused, unknown
from rayfish.legacy.training_keys import whole


def outcomes(key: str, value: Any, context: Context, run: str, values: Mapping[str, Any]) -> list[Outcome]:
    """What becomes of a key beside `config`.

    :param run: the algorithm's name in the file
    :param values: all that the experiment holds
    """
    return decided(lambda: _one(key, value, context, run, values), key, value, "Ray's")


def _one(
    key: str, value: Any, context: Context, run: str, values: Mapping[str, Any]
) -> Outcome | list[Outcome]:
    if key in ALGORITHM_KEYS:
        return _algorithm(run, context)
    if key == "env":
        return rules.outcomes("env", value, context)
    if key == "stop" or (key == "pass_criteria" and not values.get("stop")):
        return _stop(value, context)
    if key == "pass_criteria":
        return ignored("it told a test when to pass; `stop` ends the run")
    if key in ("checkpoint_config", "failure_config") and isinstance(value, Mapping | None):
        found = {inner: _checkpoint(inner, val) for inner, val in (value or {}).items()}
        return [
            replace(outcome or unknown(inner, key, CHECKPOINT), inner=inner)
            for inner, outcome in found.items()
        ] or ignored("empty")
    if key in _SAME:
        today, why = _SAME[key]
        text = today.startswith("runtime.")
        return became(today, str(value) if text else value, why) if value else ignored()
    if key in ("num_samples", "repeat"):
        why = f"`rayfish tune` runs them all; `rayfish train` runs one, or {value} with --seeds {value}"
        more = int(value or 1) > 1
        return became("search.num_samples", value, why, changed=True) if more else ignored("one run")
    if key == "restore":
        why = "a file does not name where a run begins: rayfish train -f FILE --restore RUN"
        return refused(why) if value else ignored()
    if key in SEARCH:
        return _search(key, value)
    if key in EXPERIMENT_IGNORED:
        return ignored(EXPERIMENT_IGNORED[key])
    if key in ("framework", "frameworks"):
        named = value if isinstance(value, list) else [value]
        return rules.outcomes("framework", "torch" if "torch" in named else named[0], context)
    hint = "it belongs into config" if key in rules.known_keys() else "remove it"
    return _checkpoint(key, value) or refused(f"an experiment has no key {key!r}: {hint}")


_SAME = {
    "local_dir": ("runtime.local_dir", ""),
    "storage_path": ("runtime.local_dir", ""),
    "name": ("runtime.name", ""),
    "time_budget_s": ("stop_conditions.time_total_s", ""),
    "metric": ("search.metric", "`rayfish tune` reads it"),
    "mode": ("search.mode", "`rayfish tune` reads it"),
}
"""Keys whose value stays as it is -> today's key, and a word about it."""


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


def _search(key: str, value: Any) -> Outcome:
    """Tune's scheduler or search algorithm, which a single run has no use for."""
    if not value:
        return ignored()
    today, names = SEARCH[key]
    bare = str(value).rpartition(".")[2].lower().removesuffix("scheduler").removesuffix("search")
    if bare not in names:
        return refused(f"there is no {key} {value!r}: choose one of {', '.join(sorted(set(names.values())))}")
    why = "`rayfish tune` reads it, `rayfish train` does not"
    return became(f"search.{today}", names[bare], why, changed=True)


def _checkpoint(key: str, value: Any) -> Outcome | None:
    """When checkpoints are written and which are kept; None for a key that is about something else."""
    today = CHECKPOINT.get(key)
    if today == "num_to_keep" and value == 0:
        return ignored("all are kept")
    if today is not None:
        return ignored() if value is None else became(f"checkpoint.{today}", whole(value, today))
    if key in ("checkpoint_score_attr", "checkpoint_score_attribute"):
        return score(value)
    known = ("max_failures", "fail_fast", "checkpoint_keep_all_ranks")
    return ignored("without meaning for a run") if key in known or key.startswith("_checkpoint") else None


def score(value: Any) -> Outcome:
    """The metric by which a checkpoint is the best, with `min-` before one that should fall."""
    if not value:
        return ignored()
    name = str(value).removeprefix("min-")
    if result_names.todays_metric(name) is None:
        return refused(f"no metric is called {name!r}: write rollout/return_mean, say")
    return Outcome("translated", best_by(value))


def _stop(value: Any, context: Context) -> Outcome | list[Outcome]:
    if isinstance(value, Mapping):
        return [_stop_condition(key, limit, context) for key, limit in _flat(value)] or ignored("empty")
    return refused("stop holds keys and values: stop: {training_iteration: 100}") if value else ignored()


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested conditions (`evaluation: {episode_reward_mean: 150}`) as one name each."""
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping) and not set(inner) & {"above", "below"}:
            yield from _flat(inner, f"{name}/")
        else:
            yield name, inner


def _stop_condition(key: str, limit: Any, context: Context) -> Outcome:
    metric = result_names.todays_metric(key) or (key if key.startswith(_OURS) else None)
    if metric is None:
        because = result_names.why_gone(key) or "write episode_reward_mean, timesteps_total, ..."
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
