"""Whether learning has run off: losses and weights that are no numbers any more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

_MAY_BE_INFINITE = ("mean_kl_loss",)  # two policies that exclude each other's actions


def broken_losses(result: Mapping[str, Any]) -> list[str]:
    """The losses of a training result that are NaN or infinite: `policy/loss is nan`."""
    found = []
    for policy, values in (result.get("learners") or {}).items():
        # Without an update (no runner brought any data) RLlib reports losses of NaN.
        if not isinstance(values, Mapping) or not _happened(values.get("num_module_steps_trained")):
            continue
        for key, value in values.items():
            if "loss" in key and key not in _MAY_BE_INFINITE and _is_broken(value):
                found.append(f"{policy}/{key} is {float(value)}")
    return found


def broken_weights(algorithm: Algorithm) -> list[str]:
    """The layers with weights that are NaN or infinite: `policy/layer`."""
    results = algorithm.learner_group.foreach_learner(_broken_parameters)
    return next((result.get() for result in results.ignore_errors()), [])


def _broken_parameters(learner: Any) -> list[str]:
    import torch

    return [
        f"{policy}/{layer}"
        for policy, module in learner.module.items()
        if isinstance(module, torch.nn.Module)
        for layer, weights in module.named_parameters()
        if not bool(torch.isfinite(weights).all())
    ]


def _happened(steps: Any) -> bool:
    return not _is_broken(steps) and bool(steps)


def _is_broken(value: Any) -> bool:
    try:
        return not math.isfinite(float(value))
    except (TypeError, ValueError):
        return False
