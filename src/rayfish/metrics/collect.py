"""One RLlib result becomes one flat line of named numbers.

RLlib's own `episode_return_mean` is the unweighted mean over runners of this iteration's finished
episodes, and NaN when none finished. Here every finished episode counts once, in a window of the
last 100; counters survive a resume; a number that is not known is absent, never NaN.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from rayfish.metrics import names, stats
from rayfish.metrics.timing import TimeShares, is_fresh_evaluation

WINDOW = 100
"""Finished episodes in the moving window of `rollout/return_mean` and its companions."""

MOST_SERIES = 200
"""Windows over episodes that a run keeps at most."""

EPISODE_KEY = "rayfish"
"""Where Rayfish's callback puts per-episode data inside `env_runners`: returns, lengths, ..."""

_RLLIB_RUNNER_KEYS = frozenset(
    {
        "agent_steps",
        "env_reset_timer",
        "env_runner_state_server_pull",
        "env_step_timer",
        "episode_duration_sec_mean",
        "learner_connector",
        "mean_num_episode_lists_received",
        "module_steps",
        "rlmodule_inference_timer",
        "sample",
        "time_between_sampling",
        "timers",
        "weights_seq_no",
    }
)
"""What RLlib itself reports in `env_runners`, next to the users' own values."""

_RLLIB_RUNNER_PREFIXES = (
    "num_agent_steps_sampled",
    "num_env_steps_sampled",
    "num_module_steps_sampled",
    "num_episodes",
    "num_env_step_failures",
    "num_healthy_workers",
    "num_remote_worker_restarts",
    "episode_return_m",  # mean, min, max
    "episode_len_m",
    "agent_episode_return",
    "module_episode_return",
    "connector_pipeline_timer",
    "env_to_module_",  # connectors, and the episodes that go in and out
    "module_to_env_",
)
_RLLIB_LEARNER_NOISE = (
    "num_",
    "weights_seq_no",
    "diff_num_",
    "module_train_batch_size",
    "last_target_update_ts",
)


class Collector:
    """Follows a run: each result becomes a flat line, counters and windows carry over.

    :param runners: remote env runners of the experiment; those that are missing are lost
    :param parallel_envs: environments that step at the same time, over all runners; sharpens the
        time shares while RLlib's smoothed timers still remember the first slow iterations
    :param trained: which of RLlib's counters in `learners` is the steps trained on; "" where these are
        the steps sampled (RLlib's PPO, which counts the whole batch with every minibatch of it)
    """

    def __init__(
        self,
        runners: int | None = None,
        parallel_envs: int | None = None,
        *,
        trained: str = "",
        window: int = WINDOW,
    ) -> None:
        self._trained = trained
        self._window = window
        self._runners = runners
        self._shares = TimeShares(parallel_envs)
        self._last_time: float | None = None
        # Since the run began, earlier sessions included.
        self._totals = {"iteration": 0, "env_steps": 0, "episodes": 0, "trained_steps": 0, "total_s": 0.0}
        self._windows: dict[str, deque[float]] = {}

    @property
    def iteration(self) -> int:
        """Iterations so far, earlier sessions included."""
        return int(self._totals["iteration"])

    def update(
        self, result: Mapping[str, Any], now: float, own: Mapping[str, Any] | None = None
    ) -> dict[str, float]:
        """Take in one result of `Algorithm.train()`.

        :param now: any clock in seconds that only grows
        :param own: what callbacks added to the result in `on_train_result`
        """
        took = _number(result.get("time_this_iter_s")) or 0.0
        totals = self._totals
        totals["total_s"] += took if self._last_time is None else max(0.0, now - self._last_time)
        self._last_time = now
        totals["iteration"] += 1
        runners: Mapping[str, Any] = result.get("env_runners") or {}
        steps = int(_number(runners.get("num_env_steps_sampled")) or 0)
        totals["env_steps"] += steps
        rollout = self._rollout(runners)
        everyone = (result.get("learners") or {}).get("__all_modules__") or {}
        totals["trained_steps"] += int(_number(everyone.get(self._trained)) or 0) if self._trained else steps
        line: dict[str, float] = {
            names.ITERATION: totals["iteration"],
            names.ENV_STEPS: totals["env_steps"],
            names.EPISODES: totals["episodes"],
            names.TRAINED_STEPS: totals["trained_steps"],
            **rollout,
        }
        shares = self._shares.update(result, took)
        sampling_s = took * (1.0 - shares.get(names.EVAL_SHARE, 0.0))
        if steps and sampling_s > 0:
            line[names.STEPS_PER_S] = steps / sampling_s
        evaluation = result.get("evaluation") or {}
        if is_fresh_evaluation(evaluation):
            line |= evaluation_metrics(evaluation, self.iteration)
        line |= _learners(result.get("learners") or {})
        line |= self._env(runners)
        line |= {names.env(key): value for key, value in _flat(own or {})}
        line[names.TIME_TOTAL] = totals["total_s"]
        line[names.TIME_ITERATION] = took
        line |= shares
        line |= self._workers(result.get("fault_tolerance") or {})
        return line

    def state(self) -> dict[str, Any]:
        """What must be kept for the line after a resume to continue the line before it (plain JSON)."""
        return {**self._totals, "windows": {name: list(window) for name, window in self._windows.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state()` returned."""
        self._totals = {name: state.get(name, 0) for name in self._totals}
        self._windows = {name: deque(values, self._window) for name, values in state["windows"].items()}
        self._last_time = None

    def _window_mean(self, name: str, values: list[float]) -> float | None:
        window = self._windows.setdefault(name, deque(maxlen=self._window))
        window.extend(values)
        return sum(window) / len(window) if window else None

    def _rollout(self, runners: Mapping[str, Any]) -> dict[str, float]:
        data = _finished(runners)
        returns = _series(data.get("returns"))
        self._totals["episodes"] += len(returns)
        line: dict[str, float | None] = {names.RETURN_MEAN: self._window_mean(names.RETURN_MEAN, returns)}
        window = self._windows[names.RETURN_MEAN]
        if window:
            line |= {names.RETURN_MIN: min(window), names.RETURN_MAX: max(window)}
        line[names.LENGTH_MEAN] = self._window_mean(names.LENGTH_MEAN, _series(data.get("lengths")))
        for name, values in _per_policy(data, names.policy_return).items():
            line[name] = self._window_mean(name, values)
        return {name: value for name, value in line.items() if value is not None}

    def _env(self, runners: Mapping[str, Any]) -> dict[str, float]:
        """What callbacks logged by RLlib's logger, then what environments report per episode."""
        rllibs = {EPISODE_KEY, *_RLLIB_RUNNER_KEYS}
        own = {
            key: value
            for key, value in runners.items()
            if key not in rllibs and not key.startswith(_RLLIB_RUNNER_PREFIXES)
        }
        line = {names.env(key): value for key, value in _flat(own)}
        for key, value in _leaves(_finished(runners).get("env") or {}):
            name = names.env(key)
            if name not in self._windows and len(self._windows) >= MOST_SERIES:
                continue  # an environment that names its numbers after what it sees has ever new ones
            mean = self._window_mean(name, _series(value))
            if mean is not None:
                line[name] = mean
        return line

    def _workers(self, faults: Mapping[str, Any]) -> dict[str, float]:
        healthy = _number(faults.get("num_healthy_workers"))
        if healthy is None:
            return {}
        if self._runners is None or healthy > self._runners:
            self._runners = int(healthy)
        if not self._runners:
            return {}
        restarts = int(_number(faults.get("num_remote_worker_restarts")) or 0)
        return {names.WORKERS_LOST: self._runners - int(healthy), names.WORKER_RESTARTS: restarts}


def _finished(runners: Mapping[str, Any]) -> Mapping[str, Any]:
    """What Rayfish's callback reports of the episodes that this iteration finished."""
    # RLlib may repeat the last series in an iteration that finished no episode.
    finished = _number(runners.get("num_episodes")) != 0
    return (finished and runners.get(EPISODE_KEY)) or {}


def evaluation_metrics(evaluation: Mapping[str, Any], seed: int = 0) -> dict[str, float]:
    """The `eval/*` metrics of `Algorithm.evaluate()`; empty when no episode finished."""
    data: Mapping[str, Any] = (evaluation.get("env_runners") or {}).get(EPISODE_KEY) or {}
    returns = _series(data.get("returns"))
    if not returns:
        return {}
    mean, low, high = stats.bootstrap_ci(returns, seed)
    line: dict[str, float] = {names.EVAL_RETURN_MEAN: mean, names.EVAL_CI_LOW: low, names.EVAL_CI_HIGH: high}
    lengths = _series(data.get("lengths"))
    if lengths:
        line[names.EVAL_LENGTH_MEAN] = sum(lengths) / len(lengths)
    line[names.EVAL_EPISODES] = len(returns)
    for name, values in _per_policy(data, names.eval_policy_return).items():
        if values:
            line[name] = sum(values) / len(values)
    return line | {names.eval_env(key): value for key, value in _flat(data.get("env") or {})}


def _learners(learners: Mapping[str, Any]) -> dict[str, float]:
    return {
        names.learn(policy, key): value
        for policy, values in learners.items()
        if policy != "__all_modules__" and isinstance(values, Mapping)
        for key, value in _flat(values)
        if not key.startswith(_RLLIB_LEARNER_NOISE) and "_throughput" not in key and "connector" not in key
    }


def _per_policy(data: Mapping[str, Any], name: Any) -> dict[str, list[float]]:
    """The returns of each policy; logged for multi-agent environments only."""
    policies: Mapping[str, Any] = data.get("policy_returns") or {}
    return {name(policy): _series(values) for policy, values in policies.items()}


def _series(value: Any) -> list[float]:
    """Finite numbers of a logged series; RLlib reports a series of one item as the bare item."""
    if value is None:
        return []
    items = value.tolist() if hasattr(value, "tolist") else value
    items = items if isinstance(items, list | tuple) else [items]
    numbers = (_number(item) for item in items)
    return [number for number in numbers if number is not None]


def _number(value: Any) -> float | None:
    """`value` as a finite float, or None."""
    if value is None or isinstance(value, str | bytes):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def _flat(tree: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The finite numbers of a nested dict, by slashed path; a series counts as its mean."""
    for key, value in _leaves(tree):
        numbers = _series(value)
        if numbers:
            yield key, sum(numbers) / len(numbers)
