"""Whether an experiment fits the batched path, in one sentence when it does not.

Imports no RLlib, unless a custom model is named: its class is loaded, to see whether it is an RLModule.

`rollouts.runner` is `auto` (batched where it fits), `batched` (or an error that says why not) or `rllib`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from rayfish.algorithm.callback_hooks import EPISODE_HOOKS
from rayfish.algorithm.contradictions import BUFFERS
from rayfish.envs.state import FRESH, PICKLE
from rayfish.experiment.imports import load_object

if TYPE_CHECKING:
    from rayfish.envs.build import EnvInfo
    from rayfish.experiment import Experiment

BATCHED, RLLIB = "batched", "rllib"
NATIVE, STACKED, PROCESSES, AGENTS = "native", "stacked", "processes", "agents"
"""Ways to step many environments as one: the environment's own vector, one after the other in this
process, each in a process of its own, and the agents of several environments side by side."""

_WAYS = {
    NATIVE: "the environment's own vector",
    STACKED: "environments one after the other in one process",
    PROCESSES: "environments in processes of their own",
    AGENTS: "the agents of all environments side by side",
}

ALGORITHMS = ("PPO", "APPO", "IMPALA", "DQN", "SAC")

_CONNECTORS = (
    "rollouts.env_runner_cls",
    "rollouts.env_to_module_connector",
    "rollouts.module_to_env_connector",
    "rollouts.episode_lookback_horizon",
    "rollouts.episodes_to_numpy",
    "learners.learner_class",
    "learners.learner_connector",
    "training.learner_class",
    "training.learner_connector",
    "multi_agent.observation_fn",
    "offline_data.output",
    "reporting.log_gradients",
)
_DEFAULT_CONNECTORS = (
    "rollouts.add_default_connectors_to_env_to_module_pipeline",
    "rollouts.add_default_connectors_to_module_to_env_pipeline",
    "learners.add_default_connectors_to_learner_pipeline",
    "training.add_default_connectors_to_learner_pipeline",
)
_HOOKS_WITH_EPISODES = (*EPISODE_HOOKS, "on_sample_end")


@dataclass(frozen=True)
class Fit:
    """Which runner steps the environments of an experiment.

    :param why: one sentence, for `run.json` and the console
    :param vector: how many environments are stepped as one
    """

    runner: str
    why: str
    vector: str = STACKED

    @property
    def batched(self) -> bool:
        """Whether it is the batched one."""
        return self.runner == BATCHED


def fit(experiment: Experiment, info: EnvInfo) -> Fit:
    """The runner of an experiment, as `rollouts.runner` and what it needs allow."""
    if (experiment.rollouts.runner or "auto") == RLLIB:
        reason = "rollouts.runner=rllib"
    else:
        checks = (_algorithm, _environment, _agents, _settings, _hooks, _model)
        reason = next(filter(None, (check(experiment, info) for check in checks)), "")
    if reason:
        in_processes = "async" in _vector_mode(experiment) and info.kind == "single"
        return Fit(RLLIB, reason, PROCESSES if in_processes else STACKED)
    vector = _vector(experiment, info)
    return Fit(BATCHED, f"steps {_WAYS[vector]}, one pass of the policy for all", vector)


def saved(experiment: Experiment, info: EnvInfo) -> EnvInfo:
    """What is known of an environment, with the way in which it is saved as it will be stepped."""
    if info.native and fit(experiment, info).vector in (NATIVE, AGENTS):
        way = FRESH if info.native_saved else PICKLE
        return replace(info, saved_by=way, not_saved=info.native_saved)
    return info


def _algorithm(experiment: Experiment, info: EnvInfo) -> str:
    name, learners = experiment.algo.name, learners_of(experiment)
    if name not in ALGORITHMS:
        return f"{name} has RLlib's own way of sampling"
    if name in ("APPO", "IMPALA") and info.kind == "multi":
        return f"{name} with several agents learns from RLlib's multi-agent episodes"
    if name in ("DQN", "SAC") and learners:
        return f"{name} with learners of their own samples its replay buffer through RLlib"
    runners = max(1, int(experiment.rollouts.num_env_runners or 0))
    slots = runners * int(experiment.rollouts.num_envs_per_env_runner or 1) * len(info.agents)
    if learners > slots:
        return f"{learners} learners would share {slots} environments"
    return ""


def learners_of(experiment: Experiment) -> int:
    """Remote learners an experiment asks for, by their number or by that of its GPUs."""
    asked, gpus = experiment.get("learners.num_learners"), experiment.resources.num_gpus
    return int(asked or (gpus if isinstance(gpus, int | float) and gpus > 1 else 0))


def _environment(experiment: Experiment, info: EnvInfo) -> str:
    space = info.action_space
    if not isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete | gym.spaces.Box):
        return f"actions of {type(space).__name__} are RLlib's to choose"
    if experiment.get("rollouts.batch_mode") == "complete_episodes":
        return "rollouts.batch_mode=complete_episodes samples whole episodes"
    return ""


def _agents(experiment: Experiment, info: EnvInfo) -> str:
    if info.kind != "multi":
        return ""
    if not info.parallel:
        return "agents of an RLlib MultiAgentEnv may act in turns"
    from rayfish.experiment.mapping import policies_of

    policies = policies_of(experiment)
    if len(policies) > 1:
        return f"{len(policies)} policies ({', '.join(policies)}) learn from the same environment"
    trained = experiment.get("multi_agent.policies_to_train")
    if isinstance(trained, list) and set(policies) - set(trained):
        return "multi_agent.policies_to_train leaves the policy out"
    first = info.agents[0]
    for spaces in (info.observation_spaces, info.action_spaces):
        other = next((agent for agent in info.agents if spaces[agent] != spaces[first]), None)
        if other is not None:
            return f"agents {first!r} and {other!r} have different spaces"
    return ""


def _settings(experiment: Experiment, info: EnvInfo) -> str:
    for key in _CONNECTORS:
        if experiment.get(key) is not None:
            return f"{key} is made for RLlib's runner"
    for key in _DEFAULT_CONNECTORS:
        if experiment.get(key) is False:
            return f"{key}=false changes a connector pipeline, which only RLlib's runner uses"
    if experiment.get("multi_agent.count_steps_by") == "agent_steps":
        return "multi_agent.count_steps_by=agent_steps is RLlib's way to count"
    if experiment.get("training.use_critic") is False:
        return "PPO without a critic is RLlib's"
    if experiment.get("training.td_error_loss_fn") not in (None, "huber", "mse"):
        return "training.td_error_loss_fn is a function of your own"
    buffer = experiment.get("training.replay_buffer_config.type")
    if buffer is not None and str(buffer) not in BUFFERS:
        return f"the replay buffer {buffer} takes RLlib's episodes"
    if _vector_mode(experiment) == "vector_entry_point" and (info.kind == "multi" or not info.native):
        return f"the environment has no vector of its own{f' ({info.not_native})' if info.not_native else ''}"
    return ""


def _hooks(experiment: Experiment, info: EnvInfo) -> str:
    """Callbacks that look at single episodes need RLlib's, which the batched path does not make."""
    section = experiment.section("callbacks")
    for hook in _HOOKS_WITH_EPISODES:
        if section.get(hook) is not None:
            return f"callbacks.{hook} looks at RLlib's episodes"
    named = experiment.callbacks.callbacks_class or []
    for path in [named] if isinstance(named, str) else named:
        cls = load_object(path, experiment.paths)
        for hook in _HOOKS_WITH_EPISODES:
            if _overridden(cls, hook):
                return f"{hook} of {getattr(cls, '__name__', path)} looks at RLlib's episodes"
    return ""


def _overridden(cls: Any, hook: str) -> bool:
    return any(
        hook in vars(base) for base in getattr(cls, "__mro__", ()) if not base.__module__.startswith("ray.")
    )


def _model(experiment: Experiment, info: EnvInfo) -> str:
    name = experiment.algo.name
    model = experiment.training.model or {}
    if info.kind == "multi":
        from rayfish.experiment.mapping import policies_of

        model = {**model, **(next(iter(policies_of(experiment).values())).get("model") or {})}
    remembers = bool(model.get("use_lstm"))
    if model.get("custom_model"):
        from rayfish.models.custom import find_class

        cls = find_class(str(model["custom_model"]), experiment.paths)
        if any(base.__module__.startswith("ray.rllib") for base in cls.__mro__):
            return f"custom_model {cls.__name__} is an RLModule, with a way to act of its own"
        remembers = hasattr(cls, "initial_state")
    if remembers and name != "PPO":
        return f"{name} with memory learns from RLlib's episodes"
    if remembers and learners_of(experiment) > 1:
        return "several learners with memory share RLlib's episodes"
    return ""


def _vector_mode(experiment: Experiment) -> str:
    return str(experiment.get("rollouts.gym_env_vectorize_mode") or "").lower()


def _vector(experiment: Experiment, info: EnvInfo) -> str:
    mode = _vector_mode(experiment)
    if info.kind == "multi":
        return AGENTS
    if experiment.environment.env_task_fn:
        return STACKED  # tasks are set in the single environments
    if "async" in mode:
        return PROCESSES
    return NATIVE if info.native and "sync" not in mode else STACKED


def stored_bytes(space: gym.Space[Any]) -> int:
    """Of one observation or action in a replay buffer, where floating numbers are stored with four bytes."""
    parts = getattr(space, "spaces", None)
    if parts is not None:
        return sum(map(stored_bytes, parts.values() if isinstance(parts, Mapping) else parts))
    dtype = np.dtype(space.dtype or np.float32)
    each = min(dtype.itemsize, 4) if np.issubdtype(dtype, np.floating) else dtype.itemsize
    return math.prod(space.shape or ()) * each
