"""Rewards clipped while training (`environment.clip_rewards`); the true return travels in the last info.

Old RLlib clipped rewards only after an episode's return was counted. Here the environment itself
returns clipped rewards, and reports at the end of an episode what the unclipped ones came to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from rayfish.envs.env_kind import is_rllib_multi_agent
from rayfish.envs.play import ALL
from rayfish.envs.wrappers import AgentsWrapper
from rayfish.errors import EnvironmentFault

TRUE_RETURN = "rayfish_true_return"
"""Key of the last info of an episode: its return by true rewards (several agents: of each agent)."""


class ClipFault(EnvironmentFault):
    """`environment.clip_rewards` is nothing that rewards can be clipped to."""


@dataclass(frozen=True)
class Clip:
    """How rewards are clipped: to their sign, or into [low, high]."""

    low: float
    high: float
    sign: bool = False

    def __call__(self, reward: Any) -> Any:
        """A reward, or an array of them, clipped."""
        return np.sign(reward) if self.sign else np.clip(reward, self.low, self.high)


def clip_of(value: Any) -> Clip | None:
    """What `environment.clip_rewards` says; None when rewards stay as they are."""
    if value is None or value is False:
        return None
    if value is True:
        return Clip(-1.0, 1.0, sign=True)
    bounds = (-value, value) if isinstance(value, int | float) else value
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low, high = 1.0, 0.0
    if not low < high:
        raise ClipFault(
            f"is {value!r}", "true (their sign), a number above 0 (its size at most), or [low, high]"
        )
    return Clip(low, high)


def clipped(env: Any, clip: Clip | None) -> Any:
    """`env` (as RLlib steps it) with clipped rewards; as it is without a `clip`."""
    if clip is None:
        return env
    if isinstance(env, gym.vector.VectorEnv):
        return ClippedVector(env, clip)
    return ClippedAgents(env, clip) if is_rllib_multi_agent(env) else ClippedRewards(env, clip)


class ClippedRewards(gym.Wrapper):
    """A single agent's rewards, clipped."""

    def __init__(self, env: gym.Env, clip: Clip) -> None:
        super().__init__(env)
        self._clip = clip
        self._total = 0.0
        self.metadata = dict(env.metadata or {})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        """Start an episode and its sum."""
        self._total = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; the last info holds the true return."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._total += float(reward)
        if terminated or truncated:
            info = {**info, TRUE_RETURN: self._total}
        return observation, float(self._clip(reward)), terminated, truncated, info


class ClippedAgents(AgentsWrapper):
    """The rewards of every agent of RLlib's `MultiAgentEnv`, clipped."""

    def __init__(self, env: Any, clip: Clip) -> None:
        super().__init__(env)
        self._clip = clip
        self._totals: dict[Any, float] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode and its sums."""
        self._totals = {}
        return self.env.reset(seed=seed, options=options)

    def step(self, action: dict[Any, Any]) -> tuple[dict, dict, dict, dict, dict]:  # type: ignore[override]
        """One step; the last info of every observed agent holds the true return of each agent."""
        observations, rewards, terminated, truncated, infos = self.env.step(action)
        for agent, reward in rewards.items():
            self._totals[agent] = self._totals.get(agent, 0.0) + float(reward)
        rewards = {agent: float(self._clip(reward)) for agent, reward in rewards.items()}
        if terminated.get(ALL) or truncated.get(ALL):
            true = {TRUE_RETURN: dict(self._totals)}
            infos = {**infos, **{agent: {**(infos.get(agent) or {}), **true} for agent in observations}}
        return observations, rewards, terminated, truncated, infos


class ClippedVector(gym.vector.VectorWrapper):
    """The rewards of many copies that step as one, clipped."""

    def __init__(self, env: gym.vector.VectorEnv, clip: Clip) -> None:
        super().__init__(env)
        self._clip = clip
        self._totals = np.zeros(env.num_envs)
        self._over = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        """Start all episodes and their sums."""
        self._totals[:], self._over[:] = 0.0, False
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of all copies; the infos hold the true returns of episodes that end."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._totals[self._over] = 0.0
        self._totals += np.asarray(rewards, float)
        self._over = np.logical_or(terminated, truncated)
        if self._over.any():
            infos = {**infos, TRUE_RETURN: self._totals.copy(), f"_{TRUE_RETURN}": self._over.copy()}
        return observations, self._clip(np.asarray(rewards, float)), terminated, truncated, infos


def true_returns(infos: Iterable[Any]) -> dict[Any, float] | None:
    """By agent (None of a single one), from an episode's last infos; None where rewards are not clipped."""
    reported = (info[TRUE_RETURN] for info in infos if isinstance(info, Mapping) and TRUE_RETURN in info)
    found = next(reported, None)
    return found if found is None or isinstance(found, dict) else {None: float(found)}
