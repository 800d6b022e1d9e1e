"""Wrappers around an environment: episode limits, the last action and reward as observations."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rayfish.envs.env_kind import is_parallel, is_rllib_multi_agent, max_steps
from rayfish.errors import EnvironmentFault

LAST_ACTION, LAST_REWARD, OBSERVATION = "last_action", "last_reward", "observation"


class Transparent:
    """Base of wrappers that show the attributes of the environment behind them; private ones excepted."""

    env: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.env, name)


class AgentsWrapper(gym.Wrapper):
    """Base of wrappers around RLlib's `MultiAgentEnv`, with the attributes that RLlib reads."""

    @property
    def agents(self) -> list[Any]:
        """The live agents."""
        return self.unwrapped.agents

    @property
    def possible_agents(self) -> list[Any]:
        """Every agent that may appear."""
        return self.unwrapped.possible_agents


def limit_steps(env: Any, horizon: int | None) -> Any:
    """`env` cut off after `horizon` steps; as it is when it already ends by then."""
    own = max_steps(env)
    if horizon is None or (own is not None and own <= horizon):
        return env
    if is_parallel(env):
        return ParallelTimeLimit(env, horizon)
    if is_rllib_multi_agent(env):
        return MultiAgentTimeLimit(env, horizon)
    return gym.wrappers.TimeLimit(env, horizon)


class ParallelTimeLimit(Transparent):
    """A PettingZoo parallel environment whose live agents are all truncated after a number of steps."""

    def __init__(self, env: Any, max_episode_steps: int) -> None:
        self.env = env
        self._max_episode_steps = max_episode_steps
        self._steps = 0
        self._cut = False

    @property
    def agents(self) -> list[Any]:
        """The live agents; none once the limit has ended the episode."""
        return [] if self._cut else self.env.agents

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode and its count."""
        self._steps, self._cut = 0, False
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: dict[Any, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """One step; the last one allowed truncates every agent that is still alive."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._steps += 1
        if self._steps >= self._max_episode_steps:
            self._cut = True
            truncated = {
                agent: bool(truncated.get(agent)) or not terminated.get(agent) for agent in observations
            }
        return observations, rewards, terminated, truncated, infos


class MultiAgentTimeLimit(AgentsWrapper):
    """RLlib's `MultiAgentEnv`, truncated as a whole (`__all__`) after a number of steps."""

    def __init__(self, env: Any, max_episode_steps: int) -> None:
        super().__init__(env)
        self._max_episode_steps = max_episode_steps
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode and its count."""
        self._steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: dict[Any, Any]) -> tuple[dict, dict, dict, dict, dict]:  # type: ignore[override]
        """One step; the last one allowed truncates the episode unless it has ended by itself."""
        observations, rewards, terminated, truncated, infos = self.env.step(action)
        self._steps += 1
        if self._steps >= self._max_episode_steps and not terminated.get("__all__"):
            truncated = {**truncated, "__all__": True}
        return observations, rewards, terminated, truncated, infos


class LastFault(EnvironmentFault):
    """An environment whose last action or reward cannot be observed."""


def observing_last(env: Any, *, action: bool, reward: bool) -> Any:
    """`env` with `environment.observe_last_action` and `observe_last_reward`."""
    if not (action or reward):
        return env
    if not isinstance(env, gym.Env) or hasattr(env.unwrapped, "possible_agents"):
        raise LastFault("only a single agent's last action and reward can be observed", "set it to false")
    return ObserveLast(env, action=action, reward=reward)


class ObserveLast(gym.Wrapper):
    """Adds the last action and reward to the observation; zeros in the first step of an episode.

    Old RLlib fed them to its LSTM behind the environment's back (`lstm_use_prev_action`, `_reward`). As a
    part of the observation they reach every model, and travel with a policy wherever it acts.
    """

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
        discrete = isinstance(env.action_space, gym.spaces.Discrete)
        self._none = env.action_space.start if discrete else np.zeros_like(env.action_space.sample())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        """Start an episode: nothing was done yet."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._joined(observation, self._none, 0.0), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, observed together with its action and reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._joined(observation, action, float(reward)), reward, terminated, truncated, info

    def _joined(self, observation: Any, action: Any, reward: float) -> dict[str, Any]:
        joined = dict(observation) if self._joins else {OBSERVATION: observation}
        if self._action:
            joined[LAST_ACTION] = action
        if self._reward:
            joined[LAST_REWARD] = np.array([reward], np.float32)
        return joined
