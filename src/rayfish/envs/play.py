"""Random episodes in any kind of environment, in one form: dictionaries by agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from rayfish.envs.env_kind import DEFAULT_AGENT, is_multi_agent
from rayfish.envs.space_check import legal_sample

ALL = "__all__"


@dataclass
class AgentStep:
    """What one reset or step gave, by agent; a reset has no rewards and no ends.

    :param over: whether the episode has ended
    """

    observations: dict[Any, Any]
    rewards: dict[Any, Any] = field(default_factory=dict)
    terminated: dict[Any, Any] = field(default_factory=dict)
    truncated: dict[Any, Any] = field(default_factory=dict)
    over: bool = False


class Player:
    """Steps an environment with random legal actions; a single agent is called `default_agent`.

    :param env: a Gymnasium, PettingZoo parallel or RLlib multi-agent environment
    :param actions: the action space of each agent
    """

    def __init__(self, env: Any, actions: dict[Any, gym.Space[Any]]) -> None:
        self.env = env
        self.actions = actions
        self.multi = is_multi_agent(env)
        self.now = AgentStep({}, over=True)

    def seed_actions(self, seed: int) -> None:
        """Make the random actions of all agents repeatable."""
        for index, space in enumerate(self.actions.values()):
            space.seed(seed + index)

    def reset(self, seed: int | None = None) -> AgentStep:
        """Start an episode."""
        observations, _ = self.env.reset(seed=seed)
        self.now = AgentStep(dict(observations) if self.multi else {DEFAULT_AGENT: observations})
        return self.now

    def choose(self) -> dict[Any, Any]:
        """A random legal action for every agent that was observed and is not done."""
        now = self.now
        return {
            agent: legal_sample(self.actions[agent], observation)
            for agent, observation in now.observations.items()
            if not now.terminated.get(agent) and not now.truncated.get(agent)
        }

    def step(self, actions: dict[Any, Any] | None = None) -> AgentStep:
        """One step with the given actions, or with random legal ones."""
        chosen = self.choose() if actions is None else actions
        if not self.multi:
            observation, reward, terminated, truncated, _ = self.env.step(chosen[DEFAULT_AGENT])
            only = DEFAULT_AGENT
            self.now = AgentStep({only: observation}, {only: reward}, {only: terminated}, {only: truncated})
            self.now.over = bool(terminated) or bool(truncated)
            return self.now
        observations, rewards, terminated, truncated, _ = self.env.step(chosen)
        self.now = AgentStep(dict(observations), dict(rewards), dict(terminated), dict(truncated))
        if ALL in terminated:
            self.now.over = bool(terminated[ALL]) or bool(truncated.get(ALL))
        else:
            alive = [agent for agent in observations if not (terminated.get(agent) or truncated.get(agent))]
            self.now.over = not alive
        return self.now


def play(
    player: Player, seed: int, steps: int, see: Callable[[AgentStep], None] | None = None
) -> list[AgentStep]:
    """Up to `steps` steps of one seeded episode; `see` looks at each moment, the reset included."""
    player.seed_actions(seed)
    moments = [player.reset(seed)]
    while True:
        if see is not None:
            see(moments[-1])
        if moments[-1].over or len(moments) > steps:
            return moments
        moments.append(player.step())
