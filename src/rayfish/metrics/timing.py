"""Where the time of an iteration went, read from RLlib's timers.

RLlib smooths every timer with an exponential average of coefficient 0.01, so that a slow first
iteration (imports, memory, compilation) is still visible a hundred iterations later. `Unsmoothed`
takes the average apart again: after `n` further values, `new = w * old + (1 - w) * recent` with
`w = 0.99 ** n`, hence `recent = (new - w * old) / (1 - w)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rayfish.metrics import names

EMA_COEFFICIENT = 0.01
_SYNC_TIMERS = ("synch_weights", "synch_env_connectors")
_LEARN_TIMERS = (
    "learner_update_timer",
    "replay_buffer_add_data_timer",
    "replay_buffer_sampling_timer",
    "replay_buffer_update_prios_timer",
    "offline_sampling",
    "learn_on_batch",
)


class Unsmoothed:
    """Keeps the last value of each smoothed timer and returns the mean of what came since."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def recent(self, key: str, value: Any, pushes: float) -> float:
        """The mean of the last `pushes` values of the timer `key` that now reads `value`."""
        if not isinstance(value, int | float) or not math.isfinite(value):
            return 0.0
        old = self._last.get(key)
        self._last[key] = float(value)
        if old is None or pushes <= 0:
            return float(value)
        weight = (1.0 - EMA_COEFFICIENT) ** pushes
        # Rounding, a restarted runner or a wrong count may push it below zero.
        return max(0.0, (value - weight * old) / (1.0 - weight))


class TimeShares:
    """Turns the timers of one result after the other into the `time/*_share` metrics."""

    def __init__(self, parallel_envs: int | None = None) -> None:
        self._parallel_envs = parallel_envs
        self._timers = Unsmoothed()

    def update(self, result: Mapping[str, Any], seconds: float) -> dict[str, float]:
        """The shares of an iteration that took `seconds`; empty when they are unknown."""
        if seconds <= 0:
            return {}
        timers: Mapping[str, Any] = result.get("timers") or {}
        runners: Mapping[str, Any] = result.get("env_runners") or {}
        learners = (result.get("learners") or {}).get("__all_modules__") or {}
        if "learner_thread_update_timer" in learners:
            return self._overlapping(runners, learners)
        calls = float(result.get("num_training_step_calls_per_iteration") or 1)

        def total(key: str) -> float:
            return calls * self._timers.recent(key, timers.get(key), calls)

        waited = total("env_runner_sampling_timer")
        sampled = calls * self._timers.recent("sample", runners.get("sample"), calls)
        # Remote runners work side by side: their mean time counts once, and what the driver waited
        # beyond it is transport and imbalance. A local runner's sampling is the wait itself.
        sampled = min(sampled, waited) if waited else sampled
        env_part, inference_part = self._split(runners)
        shares = {
            names.ENV_SHARE: sampled * env_part,
            names.INFERENCE_SHARE: sampled * inference_part,
            names.LEARN_SHARE: sum(total(key) for key in _LEARN_TIMERS),
            names.SYNC_SHARE: sum(total(key) for key in _SYNC_TIMERS) + max(0.0, waited - sampled),
        }
        # RLlib's own evaluation timer reaches the result an iteration late: take what is left over.
        trained = self._timers.recent("training_iteration", timers.get("training_iteration"), 1)
        if is_fresh_evaluation(result.get("evaluation") or {}) and trained:
            shares[names.EVAL_SHARE] = max(0.0, seconds - trained)
        # The timers are estimates: together they may not claim more than the iteration had.
        scale = max(seconds, sum(shares.values()))
        return {name: value / scale for name, value in shares.items()}

    def _split(self, runners: Mapping[str, Any]) -> tuple[float, float]:
        """How the time inside `sample()` divides between the environments and choosing actions."""
        own = runners.get("rayfish") or {}  # the batched runner's own clock
        if "env_s" in own:
            spent = (float(own["env_s"]), float(own.get("policy_s") or 0.0))
            return (spent[0] / sum(spent), spent[1] / sum(spent)) if sum(spent) > 0 else (0.0, 0.0)
        steps = float(runners.get("num_env_steps_sampled") or 0.0)
        vector_steps = steps / self._parallel_envs if self._parallel_envs else math.inf

        def per_step(key: str, value: Any) -> float:
            return self._timers.recent(key, value, vector_steps)

        def pipeline(key: str) -> Any:
            return (runners.get(key) or {}).get("connector_pipeline_timer")

        env = per_step("env_step", runners.get("env_step_timer"))
        inference = per_step("inference", runners.get("rlmodule_inference_timer"))
        inference += per_step("to_module", pipeline("env_to_module_connector"))
        inference += per_step("to_env", pipeline("module_to_env_connector"))
        both = env + inference
        return (env / both, inference / both) if both > 0 else (0.0, 0.0)

    def _overlapping(self, runners: Mapping[str, Any], learners: Mapping[str, Any]) -> dict[str, float]:
        """Shares of an asynchronous algorithm, whose runners and learner work at the same time.

        Each is a share of its own clock (a runner's, the learner thread's), so they do not add up to 1.
        """

        def busy(work: Any, idle: Any) -> float:
            if not isinstance(work, int | float) or not isinstance(idle, int | float):
                return 0.0
            return work / (work + idle) if work + idle > 0 and math.isfinite(work + idle) else 0.0

        runner_busy = busy(runners.get("sample"), runners.get("time_between_sampling"))
        env_part, inference_part = self._split(runners)
        shares = {
            names.ENV_SHARE: runner_busy * env_part,
            names.INFERENCE_SHARE: runner_busy * inference_part,
            names.LEARN_SHARE: busy(
                learners.get("learner_thread_update_timer"),
                learners.get("learner_thread_in_queue_wait_timer"),
            ),
        }
        if runner_busy:
            shares[names.SYNC_SHARE] = 1.0 - runner_busy
        return shares


def is_fresh_evaluation(evaluation: Mapping[str, Any]) -> bool:
    """Whether this iteration evaluated; RLlib repeats the old numbers in those that did not."""
    return "num_healthy_workers" in evaluation  # only a fresh one has it


def bottleneck(metrics: Mapping[str, float]) -> str:
    """What took the largest share of the iteration, in words; "" when nothing is known."""
    words = {
        names.ENV_SHARE: "environment",
        names.INFERENCE_SHARE: "inference",
        names.LEARN_SHARE: "learner",
        names.SYNC_SHARE: "sync",
        names.EVAL_SHARE: "evaluation",
    }
    known = [(metrics[name], word) for name, word in words.items() if metrics.get(name, 0.0) > 0.0]
    return max(known)[1] if known else ""
