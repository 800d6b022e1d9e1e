"""What every batched learner counts, under the names of RLlib's own learners."""

from __future__ import annotations

from typing import Any

from ray.rllib.utils.metrics import (
    ALL_MODULES,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
)


def count_trained(metrics: Any, policy: str, rows: int, env_steps: int) -> None:
    """Log how much a policy was trained on: rows over all epochs, and the environment steps behind them."""
    for where, now, ever, value in (
        (policy, NUM_MODULE_STEPS_TRAINED, NUM_MODULE_STEPS_TRAINED_LIFETIME, rows),
        (ALL_MODULES, NUM_MODULE_STEPS_TRAINED, NUM_MODULE_STEPS_TRAINED_LIFETIME, rows),
        (ALL_MODULES, NUM_ENV_STEPS_TRAINED, NUM_ENV_STEPS_TRAINED_LIFETIME, env_steps),
    ):
        metrics.log_value((where, now), value, reduce="sum")
        metrics.log_value((where, ever), value, reduce="lifetime_sum")
