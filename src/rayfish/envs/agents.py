"""Several agents with one policy as slots of one batch: the agents of many environments, side by side."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import create_empty_array

from rayfish.envs.kinds import agents_and_spaces
from rayfish.envs.play import ALL
from rayfish.envs.rewards import true_returns
from rayfish.envs.vector import Moment, Tree, Vector
from rayfish.nested import map_nested


class AgentsVector(Vector):
    """Environments of several agents in the shape of RLlib's `MultiAgentEnv`, stepped one after the other.

    Slot `e * agents + a` is agent `a` of environment `e`. An agent that is away (not born, or ended
    before the others) waits; when an environment's last agent ends, it begins anew in the same step.

    :param policy: the name of the policy that all agents share
    """

    def __init__(self, envs: Sequence[Any], policy: str) -> None:
        super().__init__()
        self.envs = list(envs)
        self.env = self
        self.agents, observations, actions = agents_and_spaces(envs[0])
        self.observation_space = observations[self.agents[0]]
        self.action_space = actions[self.agents[0]]
        # What RLlib looks at: one environment, by its agents.
        self.single_observation_space = gym.spaces.Dict({str(a): observations[a] for a in self.agents})
        self.single_action_space = gym.spaces.Dict({str(a): actions[a] for a in self.agents})
        self.num_slots = len(self.envs) * len(self.agents)
        self.num_envs = len(self.envs)
        self.policy = policy
        self.metadata: dict[str, Any] = {}
        self._places = {agent: place for place, agent in enumerate(self.agents)}
        self._obs = create_empty_array(self.observation_space, self.num_slots)
        self._here = np.zeros(self.num_slots, bool)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)

    @property
    def unwrapped(self) -> AgentsVector:
        """Itself: there is nothing around it."""
        return self

    def reset(self, seed: int | None = None) -> Tree:
        """Begin all episodes, each environment with a seed of its own."""
        self._returns[:], self._lengths[:], self._here[:] = 0.0, 0, False
        for index in range(self.num_envs):
            self._begin(index, None if seed is None else seed + index)
        return map_nested(np.copy, self._obs)

    def step(self, actions: Any) -> Moment:
        """One step of every environment; slots whose agent is away are not asked."""
        valid = self._here.copy()
        rewards = np.zeros(self.num_slots, np.float32)
        terminated, truncated = np.zeros(self.num_slots, bool), np.zeros(self.num_slots, bool)
        ended: list[int] = []
        final: list[Any] = []
        for index, env in enumerate(self.envs):
            base = index * len(self.agents)
            chosen = {
                agent: actions[base + place] for agent, place in self._places.items() if valid[base + place]
            }
            obs, gained, over, cut, infos = env.step(chosen)
            self._lengths[index] += 1
            all_over, all_cut = bool(over.get(ALL)), bool(cut.get(ALL))
            for agent in chosen:
                slot = base + self._places[agent]
                rewards[slot] = gained.get(agent, 0.0)
                terminated[slot] = over.get(agent, all_over)
                # What is left of an episode that ends as a whole is cut off, unless it ended by itself;
                # so is an agent that is gone without a word.
                gone = cut.get(agent, False) or all_cut or all_over or agent not in obs
                truncated[slot] = not terminated[slot] and gone
                if terminated[slot] or truncated[slot]:
                    ended.append(slot)
                    final.append(copy.deepcopy(obs[agent] if agent in obs else self._at(slot)))
            self._returns[index] += sum(gained.values())
            self._here[base : base + len(self.agents)] = False
            if all_over or all_cut:
                self._count(index, infos)
                self._begin(index, None)
            else:
                left = {agent for agent in obs if over.get(agent) or cut.get(agent)}
                self._see(base, {agent: seen for agent, seen in obs.items() if agent not in left})
        slots = np.asarray(ended, np.int64)
        last = self._stacked(final)
        all_here = None if valid.all() else valid
        return Moment(
            map_nested(np.copy, self._obs),
            rewards,
            terminated,
            truncated,
            all_here,
            slots,
            last,
            present=None if self._here.all() else self._here.copy(),
        )

    def state(self) -> dict[str, Any]:
        """Sums of the running episodes, who is there and what they see."""
        names = ("_obs", "_here", "_returns", "_lengths", "finished")
        return {name: getattr(self, name) for name in names}

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()

    def _begin(self, index: int, seed: int | None) -> None:
        obs, _ = self.envs[index].reset(seed=seed)
        self._returns[index], self._lengths[index] = 0.0, 0
        self._see(index * len(self.agents), obs)

    def _see(self, base: int, obs: dict[Any, Any]) -> None:
        for agent, seen in obs.items():
            slot = base + self._places[agent]
            self._here[slot] = True
            map_nested(lambda leaf, value, at=slot: leaf.__setitem__(at, value), self._obs, seen)

    def _at(self, slot: int) -> Any:
        return map_nested(lambda leaf: leaf[slot], self._obs)

    def _stacked(self, seen: list[Any]) -> Tree:
        if not seen:
            return map_nested(lambda leaf: leaf[:0], self._obs)
        return map_nested(lambda leaf, *values: np.asarray(np.stack(values), leaf.dtype), self._obs, *seen)

    def _count(self, index: int, infos: dict[Any, Any]) -> None:
        told = next((true for info in infos.values() if (true := true_returns(info)) is not None), None)
        earned = float(sum(told.values()) if told is not None else self._returns[index])
        self.finished.returns.append(earned)
        self.finished.earned.append(float(self._returns[index]))
        self.finished.lengths.append(int(self._lengths[index]))
        self.finished.slots.append(index)
        self.finished.policy.setdefault(self.policy, []).append(earned)
        for info in infos.values():
            self.finished.report(info or {})
