"""Many wildfires whose agents have a slot each, stepped as one: the batched form of `WildfireParallel`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rayfish.worlds.wildfire.env import observe
from rayfish.worlds.wildfire.env.env import METRICS, WildfireVectorEnv, action_space_of
from rayfish.worlds.wildfire.env.episodes import Episodes
from rayfish.worlds.wildfire.env.options import Options


def names(num_agents: int) -> list[str]:
    """What agents are called."""
    return [f"agent_{index}" for index in range(num_agents)]


def agent_spaces(given: Options, shape: tuple[int, int]) -> tuple[gym.spaces.Box, gym.Space[Any]]:
    """What one agent sees, and what it can do."""
    alone = replace(given, num_agents=1, agent_initialization_method="automatic")
    seen = gym.spaces.Box(-1.0, 1.0, (observe.size_of(given),), np.float32)
    return observe.space_of(given, shape) if given.observation == "grid" else seen, action_space_of(alone)


def show_each_agent(episodes: Episodes) -> None:
    """Let a grid observation, which shows the whole map, tell each agent where it is itself."""
    if episodes.grid is not None:
        episodes.grid = observe.AgentsGridView(episodes.options, episodes.shape, episodes.number)


class WildfireAgentsVectorEnv(VectorEnv):
    """N wildfires with A agents each, as N * A slots: slot `n * A + a` is agent `a` of wildfire `n`.

    The figures of an episode are in its first agent's last info.

    :param num_envs: N; the slots are what Gymnasium calls `num_envs`
    :param num_agents: A
    :param max_episode_steps: the same as `max_steps`; the smaller one counts
    :param given: see `rayfish.worlds.wildfire.env.options.Options`
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self, num_envs: int, num_agents: int = 4, *, max_episode_steps: int | None = None, **given: Any
    ) -> None:
        self.fires = WildfireVectorEnv(
            num_envs, num_agents=num_agents, max_episode_steps=max_episode_steps, **given
        )
        show_each_agent(self.fires.episodes)
        self.possible_agents = names(num_agents)
        self.num_envs = num_envs * num_agents
        spaces = agent_spaces(self.fires.options, self.fires.episodes.shape)
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin all episodes, or those of `options["reset_mask"]`; wildfire n takes `seed + n`.

        Of seeds and of a mask by slot, those of the first agents count.
        """
        agents = len(self.possible_agents)
        if seed is not None and not isinstance(seed, int | np.integer):
            seed = list(seed)[::agents]
        mask = (options or {}).get("reset_mask")
        chosen = None if mask is None else {"reset_mask": np.asarray(mask)[::agents]}
        obs, infos = self.fires.reset(seed=seed, options=chosen)
        return self._rows(obs), infos

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of every agent."""
        obs, rewards, terminated, truncated, infos = self.fires.step(actions)
        agents = len(self.possible_agents)
        rewards, terminated, truncated = (np.repeat(x, agents) for x in (rewards, terminated, truncated))
        return self._rows(obs), rewards, terminated, truncated, self._by_slot(infos) if infos else {}

    def _rows(self, obs: np.ndarray) -> np.ndarray:
        return obs.reshape(self.num_envs, *self.single_observation_space.shape)

    def _by_slot(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Last observations of each agent, and the figures for the first one."""
        agents, over = len(self.possible_agents), infos["_final_obs"]
        final = np.full(self.num_envs, None, dtype=object)
        for index in np.flatnonzero(over):
            last = infos["final_obs"][index].reshape(agents, *self.single_observation_space.shape)
            for place, row in enumerate(last):
                final[index * agents + place] = row
        figures = {name: self._of_first(values) for name, values in infos["final_info"][METRICS].items()}
        return {
            "final_obs": final,
            "_final_obs": np.repeat(over, agents),
            "final_info": {METRICS: figures, f"_{METRICS}": self._of_first(over)},
            "_final_info": np.repeat(over, agents),
        }

    def _of_first(self, values: np.ndarray) -> np.ndarray:
        out = np.zeros(self.num_envs, values.dtype)
        out[:: len(self.possible_agents)] = values
        return out
