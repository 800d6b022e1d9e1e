"""Spaces and the model section become a network: the one entry of this stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import nn

from rayfish.errors import ModelError, RayfishError
from rayfish.experiment.imports import user_frame
from rayfish.models.custom import CustomNetwork, find_class
from rayfish.models.networks import FAMILIES, ActorCritic, PolicyNetwork, QNetwork
from rayfish.models.options import resolve


def build_network(
    algo: str,
    observation_space: gym.Space,
    action_space: gym.Space,
    model: Mapping[str, Any],
    *,
    critic: bool = True,
) -> nn.Module:
    """The network with which a policy of `algo` acts.

    :param model: the model section with all defaults (`models.options.resolve`), for DQN also
        `dueling`, `num_atoms`, `v_min` and `v_max`, and for a custom model `paths`
    :param critic: with the value function, where the algorithm has one beside the policy
    :returns: a module whose `forward(observation, state)` returns (outputs, next state) and that has
        `initial_state()`
    """
    family = FAMILIES.get(algo)
    if family is None:
        raise ModelError(f"{algo} has no Rayfish network", f"one of {', '.join(FAMILIES)}")
    if family == "q":
        if not isinstance(action_space, gym.spaces.Discrete):
            what = f"DQN needs Discrete actions, this environment has {action_space}"
            raise ModelError(what, "use PPO or SAC")
        low, high = model.get("v_min"), model.get("v_max")
        return QNetwork(
            observation_space,
            action_space,
            model,
            dueling=bool(model.get("dueling", True)),
            atoms=int(model.get("num_atoms") or 1),
            bounds=(-10.0 if low is None else float(low), 10.0 if high is None else float(high)),
        )
    if family == "actor_critic":
        return actor_critic(observation_space, action_space, model, critic=critic and algo != "BC")
    return PolicyNetwork(observation_space, action_space, model)


def require_buildable(
    algo: str,
    observation_space: gym.Space,
    action_space: gym.Space,
    section: Mapping[str, Any],
    paths: Sequence[str],
) -> None:
    """Builds the custom model of a model section as training would, and lets it go.

    :raises ModelError: it cannot be built, or fails on a batch of blank observations
    """
    model = {**resolve(section), "paths": list(paths)}
    cls = find_class(str(model["custom_model"]), paths)
    try:
        with torch.random.fork_rng(devices=[]):
            if any(base.__module__.startswith("ray.rllib") for base in cls.__mro__):
                cls(
                    observation_space=observation_space,
                    action_space=action_space,
                    model_config={**model, **model["custom_model_config"]},
                )
            else:
                build_network(algo, observation_space, action_space, model)
    except RayfishError:
        raise
    except Exception as error:
        frame = user_frame(error)
        where = f" at {frame.filename}:{frame.lineno}" if frame else ""
        raise ModelError(
            f"custom_model {cls.__name__} could not be built{where}: {type(error).__name__}: {error}",
            "fix that line; --debug shows the whole traceback",
        ) from error


def actor_critic(
    observation_space: gym.Space, action_space: gym.Space, model: Mapping[str, Any], *, critic: bool
) -> ActorCritic | CustomNetwork:
    """Policy and value network of PPO and its kin."""
    if model["custom_model"]:
        return CustomNetwork(observation_space, action_space, model, critic=critic)
    return ActorCritic(observation_space, action_space, model, critic=critic)
