"""How fast an experiment's environments are stepped in some way: the real vectors, with the untrained policy.

Needs RLlib's classes, but no running Ray.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_context import EnvContext

from rayfish.algorithm.batched.gpu_sampler import ResidentSampler
from rayfish.algorithm.batched.runner import actor_for, sampler_for
from rayfish.algorithm.batched.sampler import Sampler
from rayfish.algorithm.build import build_config
from rayfish.compat.ray_node import registered_creator
from rayfish.experiment.mapping import policies_of
from rayfish.generators import undisturbed

if TYPE_CHECKING:
    from rayfish.envs.build import EnvInfo
    from rayfish.experiment import Experiment

_SPELLS = 5
"""Spells of a measurement; their median ignores one in which the machine was busy."""


@dataclass(frozen=True)
class Measurement:
    """The speed of one way of stepping.

    :param way: as in `eligibility`
    :param steps_per_s: environment steps, the policy's pass included
    :param env_share: how much of that time was the environments'
    :param ready_s: seconds until the first step could be taken
    """

    way: str
    envs: int
    steps_per_s: float
    env_share: float = 0.0
    ready_s: float = 0.0


class Bench:
    """Tries ways of stepping the environments of one experiment."""

    def __init__(self, experiment: Experiment, info: EnvInfo) -> None:
        self._config = build_config(experiment, info)
        self._seed = experiment.debugging.seed
        self._creator: Any = registered_creator(self._config.env)
        self._context = EnvContext(self._config.env_config, worker_index=0)
        on_gpu = self._config.num_gpus_per_learner and not self._config.num_env_runners
        self._device = torch.device("cuda" if on_gpu and torch.cuda.is_available() else "cpu")
        with undisturbed():
            self._module = self._policy(experiment, info).to(self._device).eval()

    def trial(self, way: str, envs: int, seconds: float) -> Measurement:
        """Steps so many environments in this way for about so long, and at least twice."""
        with undisturbed():
            began = time.perf_counter()
            vector = replace(self._creator, vector=way, setup=None).many(self._context, envs)
            try:
                sampler = sampler_for(
                    vector,
                    actor_for(self._module, vector.action_space, explore=True),
                    self._device,
                    normalise=None,
                    scale=bool(self._config.normalize_actions),
                    clip=bool(self._config.clip_actions),
                )
                sampler.reset(self._seed)
                ready_s = time.perf_counter() - began
                rate = _rate(sampler, seconds) * envs
            finally:
                vector.close()
        spent = sampler.clock.env + sampler.clock.policy
        return Measurement(way, envs, rate, sampler.clock.env / spent, ready_s)

    def _policy(self, experiment: Experiment, info: EnvInfo) -> Any:
        """The module that acts, untrained; of several agents, the one they share."""
        policy = next(iter(policies_of(experiment))) if info.kind == "multi" else DEFAULT_MODULE_ID
        spaces = dict.fromkeys(
            (INPUT_ENV_SPACES, INPUT_ENV_SINGLE_SPACES, policy), (info.observation_space, info.action_space)
        )
        if info.kind != "multi":
            return self._config.get_rl_module_spec(spaces=spaces, inference_only=True).build()
        return self._config.get_multi_rl_module_spec(spaces=spaces, inference_only=True).build()[policy]


def _rate(sampler: Sampler | ResidentSampler, seconds: float) -> float:
    """Steps of the whole vector per second; a first one, which may have to warm up, does not count."""
    one = _took(sampler, 1)
    if one > seconds:  # too slow to be tried again and again; nothing warms up for that long
        return 2 / (one + _took(sampler, 1))
    sampler.clock.env = sampler.clock.policy = 0.0
    steps = max(1, min(256, int(seconds / _SPELLS / max(_took(sampler, 1), 1e-6))))
    rates: list[float] = []
    until = time.perf_counter() + seconds
    while len(rates) < 2 or (time.perf_counter() < until and len(rates) < 4 * _SPELLS):
        rates.append(steps / _took(sampler, steps))
    return statistics.median(rates)


def _took(sampler: Sampler | ResidentSampler, steps: int) -> float:
    began = time.perf_counter()
    sampler.collect(steps)
    return time.perf_counter() - began
