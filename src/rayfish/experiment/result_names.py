"""Names of old results (`episode_reward_mean`) in today's words, or why they are gone.

Stop conditions, `checkpoint_score_attr` and the reference page read this. An old name is no error in
RLlib itself: the condition just never fires, and the run never ends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

STOP_KEYS: dict[str, str] = {
    "training_iteration": "run/iteration",
    "iterations_since_restore": "run/iteration",
    "timesteps_total": "run/env_steps",
    "timesteps_since_restore": "run/env_steps",
    "num_env_steps_sampled": "run/env_steps",
    "num_env_steps_sampled_lifetime": "run/env_steps",
    "env_runners/num_env_steps_sampled_lifetime": "run/env_steps",
    "episodes_total": "run/episodes",
    "env_runners/num_episodes_lifetime": "run/episodes",
    "num_episodes_lifetime": "run/episodes",
    "time_total_s": "time/total_s",
    "time_since_restore": "time/total_s",
    "time_this_iter_s": "time/iteration_s",
    **{
        f"{returns}_{what}": f"rollout/return_{what}"
        for returns in (
            ["episode_reward", "episode_return", "env_runners/episode_return", "env_runners/episode_reward"]
        )
        for what in ("mean", "min", "max")
    },
    "episode_len_mean": "rollout/length_mean",
    "env_runners/episode_len_mean": "rollout/length_mean",
    "num_remote_worker_restarts": "run/worker_restarts",
    "num_env_runner_restarts": "run/worker_restarts",
    "evaluation/episode_reward_mean": "eval/return_mean",
    "evaluation/episode_return_mean": "eval/return_mean",
    "evaluation/env_runners/episode_return_mean": "eval/return_mean",
    "evaluation/env_runners/episode_reward_mean": "eval/return_mean",
    "evaluation/episode_len_mean": "eval/length_mean",
    "evaluation/env_runners/episode_len_mean": "eval/length_mean",
    "evaluation/episodes_this_iter": "eval/episodes",
    "perf/cpu_util_percent": "system/cpu",
    "perf/ram_util_percent": "system/ram",
    "perf/gpu_util_percent0": "system/gpu",
    "perf/vram_util_percent0": "system/gpu_memory",
}
"""Result names of RLlib, old and new -> ours."""

_AGENTS_STEPS = (
    "num_agent_steps_sampled",
    "num_agent_steps_trained",
    "num_agent_steps_sampled_lifetime",
    "agent_timesteps_total",
)
"""Counters that equal those of the environment's steps with one agent."""

_TRAINED = re.compile(r"(?:learners/[^/]+/)?num_(?:env_|agent_|module_)?steps_trained(?:_lifetime)?")

_COUNTER_PREFIXES = ("info/", "counters/")
_SAMPLER_PREFIXES = ("sampler_results/", "env_runners/sampler_results/")

_PATTERNS: tuple[tuple[str, str], ...] = (
    (r"evaluation/sampler_results/(.+)", r"evaluation/\1"),
    (r"info/learner/([^/]+)/learner_stats/(?:cur_)?kl", r"learn/\1/mean_kl_loss"),
    (r"info/learner/([^/]+)/learner_stats/cur_lr", r"learn/\1/default_optimizer_learning_rate"),
    (r"info/learner/([^/]+)/(?:learner_stats/)?([^/]+)", r"learn/\1/\2"),
    (r"learners/([^/]+)/([^/]+)", r"learn/\1/\2"),
    (r"policy_reward_mean/(.+)", r"rollout/\1/return_mean"),
    (r"evaluation/policy_reward_mean/(.+)", r"eval/\1/return_mean"),
    (r"custom_metrics/(.+?)_mean", r"env/\1"),
    (r"evaluation/custom_metrics/(.+?)_mean", r"eval/env/\1"),
)

_THIS_ITERATION = "it counts one iteration; use the counter of the whole run ({})"
_GONE: tuple[tuple[str, str], ...] = (
    (r"config/.*", "it is a setting, not a result"),
    (r"episodes_this_iter|num_episodes", _THIS_ITERATION.format("run/episodes")),
    (
        r"timesteps_this_iter|num_(env_|agent_)?steps_sampled_this_iter",
        _THIS_ITERATION.format("run/env_steps"),
    ),
    (r"num_(env_|agent_)?steps_trained_this_iter", _THIS_ITERATION.format("run/trained_steps")),
    (r"num_faulty_episodes", "a faulty episode ends the run or restarts its worker (run/worker_restarts)"),
    (r"num_healthy_workers", "use run/workers_lost, which counts those that are down"),
    (r"num_in_flight_async_reqs", "it was about RLlib's own queues"),
    (r"hist_stats/.*", "it is a list of episodes; use rollout/return_mean, _min or _max"),
    (
        r"(sampler_perf|connector_metrics|timers)/.*",
        "use the shares of the time: time/env_share and the like",
    ),
    (r"policy_reward_(min|max)/.+", "use the policy's mean: rollout/<policy>/return_mean"),
    (r"warmup_time", "use time/total_s"),
    (r"done", "it says that another condition held"),
    (
        r"trial_id|experiment_id|date|timestamp|pid|hostname|node_ip|experiment_tag",
        "it names the run and never grows; run.json and provenance.json hold such things",
    ),
)


_LEARNER_NAMES = {"mean_kl_loss": "kl", "default_optimizer_learning_rate": "cur_lr"}
_ALWAYS = ("episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean")
_SAMPLED = (*_ALWAYS, "episodes_total")


def old_results(metrics: Mapping[str, float]) -> dict[str, Any]:
    """A line of metrics as old code indexes results: `["info"]["learner"]["p"]["learner_stats"]["kl"]`.

    Returns and lengths are NaN while no episode has ended, as they were.
    """
    found: dict[str, Any] = dict.fromkeys(_ALWAYS, math.nan)
    for old, today in STOP_KEYS.items():
        if today in metrics:
            _put(found, old, metrics[today])
    evaluation: dict[str, Any] = found.pop("evaluation", {})
    found["info"] = {"num_env_steps_sampled": metrics.get("run/env_steps", 0), "learner": {}}
    found |= {"policy_reward_mean": {}, "custom_metrics": {}}
    for name, value in metrics.items():
        part, _, rest = name.partition("/")
        policy, _, what = rest.partition("/")
        if part == "learn":
            learnt = found["info"]["learner"].setdefault(policy, {"learner_stats": {}})
            learnt["learner_stats"][_LEARNER_NAMES.get(what, what)] = value
        elif part == "env":
            found["custom_metrics"][f"{rest}_mean"] = value
        elif part == "rollout" and what == "return_mean":
            found["policy_reward_mean"][policy] = value
        elif name.startswith("eval/env/"):
            evaluation.setdefault("custom_metrics", {})[f"{what}_mean"] = value
        elif part == "eval" and what == "return_mean":
            evaluation.setdefault("policy_reward_mean", {})[policy] = value
    if evaluation:
        found["evaluation"] = evaluation
    found["sampler_results"] = {key: found[key] for key in _SAMPLED if key in found}
    return found


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    """Lays a value at a slashed path."""
    *above, last = path.split("/")
    for part in above:
        tree = tree.setdefault(part, {})
    tree[last] = value


def todays_metric(key: str) -> str | None:
    """Today's name of an old (or new) RLlib result, None where there is none.

    >>> todays_metric("sampler_results/episode_reward_mean")
    'rollout/return_mean'
    """
    if key in STOP_KEYS:
        return STOP_KEYS[key]
    for prefix in _SAMPLER_PREFIXES:
        if key.startswith(prefix):
            return todays_metric(key.removeprefix(prefix))
    for prefix in _COUNTER_PREFIXES:
        if key.startswith(f"{prefix}num_"):
            return todays_metric(key.removeprefix(prefix))
    if _TRAINED.fullmatch(key):
        return "run/trained_steps"
    if key in (*_AGENTS_STEPS, "num_steps_sampled"):
        return "run/env_steps"
    for pattern, today in _PATTERNS:
        found = re.fullmatch(pattern, key)
        if found:
            name = found.expand(today)
            return todays_metric(name) if name.startswith("evaluation/") else name
    return None


def is_counted_otherwise(key: str) -> bool:
    """Whether an old counter is only nearly what its counterpart today counts (agents' steps)."""
    return key.rpartition("/")[2] in _AGENTS_STEPS


def why_gone(key: str) -> str | None:
    """Why an old result has no counterpart today, None where it has one or never was a result."""
    bare = key
    for prefix in (*_SAMPLER_PREFIXES, "evaluation/"):
        bare = bare.removeprefix(prefix)
    if todays_metric(key) is not None:
        return None
    return next((why for pattern, why in _GONE if re.fullmatch(pattern, bare)), None)
