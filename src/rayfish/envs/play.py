"""The episode player: steps any kind of environment and gives what it returns in one form, by agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from rayfish.envs.env_kind import DEFAULT_AGENT, is_multi_agent
from rayfish.envs.space_check import legal_sample

ALL = "__all__"

Actions = dict[Any, Any]


@dataclass(frozen=True)
class TimeStep:
    """What one reset or step returned, by agent; a reset has no rewards and no ends.

    The agent of a single-agent environment is called `default_agent`.
    """

    observations: Mapping[Any, Any]
    infos: Mapping[Any, Any]
    rewards: Mapping[Any, Any] = field(default_factory=dict)
    terminated: Mapping[Any, Any] = field(default_factory=dict)
    truncated: Mapping[Any, Any] = field(default_factory=dict)

    def ended(self, agent: Any) -> tuple[bool, bool]:
        """Whether this step terminated, and whether it truncated, the episode of an agent."""
        return (
            bool(self.terminated.get(agent) or self.terminated.get(ALL)),
            bool(self.truncated.get(agent) or self.truncated.get(ALL)),
        )

    @property
    def acting(self) -> dict[Any, Any]:
        """The observations of the agents that act next."""
        return {agent: seen for agent, seen in self.observations.items() if not any(self.ended(agent))}

    @property
    def over(self) -> bool:
        """Whether the episode is over: RLlib's environments report `__all__`; else no agent is left."""
        if ALL in self.terminated:
            return bool(self.terminated[ALL] or self.truncated.get(ALL))
        return not self.acting


Act = Callable[[TimeStep], Actions]
"""What acts: the actions of the agents in `TimeStep.acting`."""


class Player:
    """Steps an environment.

    :param env: a Gymnasium, PettingZoo parallel or RLlib multi-agent environment
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self._multi = is_multi_agent(env)

    def reset(self, seed: int | None = None) -> TimeStep:
        """Start an episode."""
        return TimeStep(*self._by_agent(self.env.reset(seed=seed)))

    def step(self, actions: Actions) -> TimeStep:
        """Take one step."""
        returned = self.env.step(actions if self._multi else actions[DEFAULT_AGENT])
        observations, rewards, terminated, truncated, infos = self._by_agent(returned)
        return TimeStep(observations, infos, rewards, terminated, truncated)

    def episode(self, act: Act, seed: int | None = None) -> Iterator[tuple[Actions, TimeStep]]:
        """Play an episode: first `({}, the reset)`, then the actions and outcome of each step."""
        now = self.reset(seed)
        yield {}, now
        while not now.over:
            actions = act(now)
            now = self.step(actions)
            yield actions, now

    def _by_agent(self, returned: Sequence[Any]) -> list[dict[Any, Any]]:
        return [dict(value or {}) if self._multi else {DEFAULT_AGENT: value} for value in returned]


def random_actions(spaces: Mapping[Any, gym.Space[Any]], seed: int | None = None) -> Act:
    """Acts at random within action masks.

    :param spaces: the action space of each agent
    :param seed: makes the actions repeatable
    """
    if seed is not None:
        for index, space in enumerate(spaces.values()):
            space.seed(seed + index)
    return lambda now: {agent: legal_sample(spaces[agent], seen) for agent, seen in now.acting.items()}
