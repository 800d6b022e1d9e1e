"""Several agents with a policy each: a PettingZoo parallel environment, and many of it stepped as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from pettingzoo import ParallelEnv

from rayfish.errors import EnvironmentFault
from rayfish.worlds.wildfire.env import observe, options
from rayfish.worlds.wildfire.env.act import Decoder
from rayfish.worlds.wildfire.env.env import METRICS, OneWildfire, WildfireVectorEnv, action_space_of
from rayfish.worlds.wildfire.env.episodes import Episodes
from rayfish.worlds.wildfire.env.options import Options


def names(num_agents: int) -> list[str]:
    """The names of the agents."""
    return [f"agent_{index}" for index in range(num_agents)]


def agent_spaces(given: Options, shape: tuple[int, int]) -> tuple[gym.spaces.Box, gym.Space[Any]]:
    """What one agent sees, and what it can do."""
    alone = replace(given, num_agents=1, agent_initialization_method="automatic")
    seen = gym.spaces.Box(-1.0, 1.0, (observe.size_of(given),), np.float32)
    return observe.space_of(given, shape) if given.observation == "grid" else seen, action_space_of(alone)


def show_each_agent(episodes: Episodes) -> None:
    """Make a grid observation, which shows the whole map, show each agent its own place."""
    if episodes.grid is not None:
        episodes.grid = observe.AgentsGridView(episodes.options, episodes.shape, episodes.number)


class WildfireParallel(OneWildfire, ParallelEnv):
    """A wildfire with the agents `agent_0`, `agent_1`, ...; all get the reward of the team.

    Each sees what is around it and knows who it is, or sees the whole map (`observation: grid`) with itself
    as the first of the agents.

    :param given: see `rayfish.worlds.wildfire.env.options.Options`
    """

    metadata = {"name": "wildfire_v0", "render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012

    def __init__(self, num_agents: int = 4, render_mode: str | None = None, **given: Any) -> None:
        self._open(options.read({**given, "num_agents": num_agents}), render_mode)
        self._decode = Decoder(self.options)
        show_each_agent(self.episodes)
        self._spaces = agent_spaces(self.options, self.episodes.shape)
        self.possible_agents = names(num_agents)
        self.agents: list[str] = []

    @classmethod
    def vector_of_agents(cls, num_envs: int, **given: Any) -> WildfireAgentsVectorEnv:
        """Many of it that are stepped as one, with a slot for each agent; see `rayfish.envs.agents`."""
        return WildfireAgentsVectorEnv(num_envs, **given)

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """What one agent sees."""
        return self._spaces[0]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """What one agent can do."""
        return self._spaces[1]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Begin an episode."""
        self.episodes.begin(np.arange(1), [seed])
        self.agents = list(self.possible_agents)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[
        dict[str, np.ndarray], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
    ]:
        """One step of all agents; the figures of an episode are in the first agent's last info."""
        missing = [agent for agent in self.possible_agents if agent not in actions]
        if missing or not self.agents:
            what = f"no action of {missing[0]}" if self.agents else "a step without an episode"
            raise EnvironmentFault(what, "give an action of every agent" if self.agents else "call reset")
        chosen = np.stack([np.asarray(actions[agent]) for agent in self.possible_agents])
        reward, ended, cut, last = self._advance(self._decode, chosen[None])
        everyone = self.agents
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in everyone}
        infos[everyone[0]] = last
        if ended or cut:
            self.agents = []
        over, truncated = (dict.fromkeys(everyone, value) for value in (ended, cut))
        return self._seen(), dict.fromkeys(everyone, reward), over, truncated, infos

    def close(self) -> None:
        """Nothing is held open."""

    def _seen(self) -> dict[str, np.ndarray]:
        rows = self.episodes.look()[0]
        return {agent: rows[index].copy() for index, agent in enumerate(self.possible_agents)}


class WildfireAgentsVectorEnv(VectorEnv):
    """N wildfires with A agents each, as N * A slots: slot `n * A + a` is agent `a` of wildfire `n`.

    The figures of an episode are in its first agent's last info.

    :param num_envs: N; the slots are what Gymnasium calls `num_envs`
    :param num_agents: A
    :param given: as `WildfireVectorEnv` takes it
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, num_agents: int = 4, **given: Any) -> None:
        self.fires = WildfireVectorEnv(num_envs, num_agents=num_agents, **given)
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
