"""The last action and reward as part of the observation (`environment.observe_last_action`, `_reward`).

Old RLlib fed them to its LSTM behind the environment's back (`lstm_use_prev_action`, `_reward`). As a part
of the observation they reach every model, and travel with a policy wherever it acts.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rayfish.errors import EnvironmentFault

LAST_ACTION, LAST_REWARD, OBSERVATION = "last_action", "last_reward", "observation"


class LastFault(EnvironmentFault):
    """An environment whose last action or reward cannot be observed."""


def observing_last(env: Any, *, action: bool, reward: bool) -> Any:
    """`env` with its last action and reward in the observation, as asked.

    :raises LastFault: it has several agents
    """
    if not (action or reward):
        return env
    if not isinstance(env, gym.Env) or hasattr(env.unwrapped, "possible_agents"):
        raise LastFault("only a single agent's last action and reward can be observed", "set it to false")
    return ObserveLast(env, action=action, reward=reward)


class ObserveLast(gym.Wrapper):
    """Adds the last action and reward; zeros in the first step of an episode."""

    def __init__(self, env: gym.Env, *, action: bool, reward: bool) -> None:
        super().__init__(env)
        self.metadata = dict(env.metadata or {})
        inner = env.observation_space
        self._joins = isinstance(inner, gym.spaces.Dict)
        spaces = dict(inner.spaces) if isinstance(inner, gym.spaces.Dict) else {OBSERVATION: inner}
        if action:
            spaces[LAST_ACTION] = env.action_space
        if reward:
            spaces[LAST_REWARD] = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = gym.spaces.Dict(spaces)
        self._action = action
        self._reward = reward
        self._none = _zero(env.action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        """Start an episode: nothing was done yet."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._joined(observation, self._none, 0.0), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, observed together with what was done and earned in it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._joined(observation, action, float(reward)), reward, terminated, truncated, info

    def _joined(self, observation: Any, action: Any, reward: float) -> dict[str, Any]:
        joined = dict(observation) if self._joins else {OBSERVATION: observation}
        if self._action:
            joined[LAST_ACTION] = action
        if self._reward:
            joined[LAST_REWARD] = np.array([reward], np.float32)
        return joined


def _zero(space: gym.Space) -> Any:
    """The action that stands for none."""
    if isinstance(space, gym.spaces.Discrete):
        return space.start
    return np.zeros_like(space.sample())
