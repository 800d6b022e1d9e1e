"""Episode limits for several agents; a single agent has Gymnasium's own `TimeLimit`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from rayfish.envs.env_kind import is_parallel, is_rllib_multi_agent, max_steps


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


class ParallelTimeLimit:
    """A PettingZoo parallel environment whose live agents are all truncated after a number of steps."""

    def __init__(self, env: Any, max_episode_steps: int) -> None:
        self.env = env
        self._max_episode_steps = max_episode_steps
        self._steps = 0
        self._cut = False

    def __getattr__(self, name: str) -> Any:
        """Everything else is the inner environment's."""
        if name.startswith("__") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def agents(self) -> list[Any]:
        """The live agents; none once the limit has ended the episode."""
        return [] if self._cut else self.env.agents

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self.env.unwrapped

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode and its count."""
        self._steps, self._cut = 0, False
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: dict[Any, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """One step; the last one allowed truncates whoever is still alive."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._steps += 1
        if self._steps >= self._max_episode_steps:
            self._cut = True
            truncated = {
                agent: bool(truncated.get(agent)) or not terminated.get(agent) for agent in observations
            }
        return observations, rewards, terminated, truncated, infos


class MultiAgentTimeLimit(gym.Wrapper):
    """RLlib's `MultiAgentEnv`, truncated as a whole (`__all__`) after a number of steps."""

    def __init__(self, env: Any, max_episode_steps: int) -> None:
        super().__init__(env)
        self._max_episode_steps = max_episode_steps
        self._steps = 0

    @property
    def agents(self) -> list[Any]:
        """The live agents."""
        return self.unwrapped.agents

    @property
    def possible_agents(self) -> list[Any]:
        """Every agent that may appear."""
        return self.unwrapped.possible_agents

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
