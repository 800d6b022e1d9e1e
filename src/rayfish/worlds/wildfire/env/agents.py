"""Several agents with a mind each: a PettingZoo parallel environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv

from rayfish.errors import EnvironmentFault
from rayfish.worlds.wildfire.env import options
from rayfish.worlds.wildfire.env.act import Decoder
from rayfish.worlds.wildfire.env.agents_vector import (
    WildfireAgentsVectorEnv,
    agent_spaces,
    names,
    show_each_agent,
)
from rayfish.worlds.wildfire.env.env import METRICS
from rayfish.worlds.wildfire.env.episodes import Episodes
from rayfish.worlds.wildfire.pictures.episodes import Pictures


class WildfireParallel(ParallelEnv):
    """A wildfire with the agents `agent_0`, `agent_1`, ...; all get the reward of the team.

    Each sees what is around it and knows who it is, or sees the whole map (`observation: grid`) with itself
    as the first of the agents.

    :param num_agents: how many
    :param render_mode: `rgb_array` or None
    :param given: see `rayfish.worlds.wildfire.env.options.Options`
    """

    metadata = {"name": "wildfire_v0", "render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012

    def __init__(self, num_agents: int = 4, render_mode: str | None = None, **given: Any) -> None:
        self.render_mode = render_mode
        self.options = options.read({**given, "num_agents": num_agents})
        self.episodes = Episodes(self.options, 1)
        self._decode = Decoder(self.options)
        show_each_agent(self.episodes)
        self._spaces = agent_spaces(self.options, self.episodes.shape)
        self._pictures = None if render_mode is None else Pictures(1)
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
        result, rewards = self.episodes.step(*self._decode(chosen[None]))
        if self._pictures is not None:
            self._pictures.note(self.episodes)
        ended, cut = bool(result.ended[0]), bool(result.truncated[0])
        everyone = self.agents
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in everyone}
        seen = self._seen()
        if ended or cut:
            figures = self.episodes.metrics(np.arange(1))
            infos[everyone[0]][METRICS] = {name: float(values[0]) for name, values in figures.items()}
            self.agents = []
        return (
            seen,
            dict.fromkeys(everyone, float(rewards[0])),
            dict.fromkeys(everyone, ended),
            dict.fromkeys(everyone, cut),
            infos,
        )

    def render(self) -> np.ndarray | None:
        """A picture of the fire."""
        return None if self._pictures is None else self._pictures.frame(self.episodes, 0)

    def close(self) -> None:
        """Nothing is held open."""

    def _seen(self) -> dict[str, np.ndarray]:
        rows = self.episodes.look()[0]
        return {agent: rows[index].copy() for index, agent in enumerate(self.possible_agents)}
