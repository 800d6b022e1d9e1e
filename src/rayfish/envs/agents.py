"""Several agents with one policy as slots of one batch: the agents of many environments, side by side.

Any PettingZoo parallel environment is stepped one after the other (`AgentsVector`). A class that can step
many of its environments at once says so with a class method, and is stepped as one (`AgentSlots`):

    @classmethod
    def vector_of_agents(cls, num_envs, **env_config):
        return a gymnasium.vector.VectorEnv

Slot `e * agents + a` of what it returns (`num_envs * agents` slots, spaces of one agent) is agent `a` of
environment `e`. Further:

- it has `possible_agents`, the names of one environment's agents in their order;
- its autoreset mode is `SAME_STEP` (last observations in `infos["final_obs"]`), and the agents of an
  environment begin and end together;
- `reset(seed=s)` begins environment `e` as a single one begins with `reset(seed=s + e)`;
- the figures of an episode (`metrics`) are in the last info of one of its agents;
- `max_episode_steps` is among its parameters where `rollouts.horizon` is to be used with it.

It is not asked of a class with `set_task`: tasks are set in single environments.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import create_empty_array

from rayfish.envs import guard
from rayfish.envs.env_kind import agents_and_spaces
from rayfish.envs.play import ALL
from rayfish.envs.restarts import LOST, RESTARTS
from rayfish.envs.rewards import TRUE_RETURN, true_returns
from rayfish.envs.vector import GymVector, StepResult, Tree, Vector, _of_one
from rayfish.errors import EnvironmentFault
from rayfish.nested import map_nested

HOOK = "vector_of_agents"
"""The class method by which an environment of several agents offers to be stepped as many at once."""


class AgentsVector(Vector):
    """Environments of several agents in the shape of RLlib's `MultiAgentEnv`, stepped one after the other.

    Slot `e * agents + a` is agent `a` of environment `e`. An agent that is absent (not born, or ended
    before the others) waits; when an environment's last agent ends, it resets in the same step.

    :param policy: the name of the policy that all agents share
    """

    counted = ("_obs", "_here", "_returns", "_lengths", "finished")

    def __init__(self, envs: Sequence[Any], policy: str) -> None:
        super().__init__()
        self.envs = list(envs)
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
    def env(self) -> AgentsVector:  # type: ignore[override]
        """Itself is what RLlib sees; no attribute, or it would look like a wrapper of itself."""
        return self

    unwrapped = env

    @property
    def present(self) -> np.ndarray | None:  # type: ignore[override]
        """Which slots have an agent that is there; None when all have."""
        return None if self._here.all() else self._here.copy()

    def reset(self, seed: int | None = None) -> Tree:
        """Reset every environment, each with a seed of its own."""
        for index in range(self.num_envs):
            self._begin(index, None if seed is None else seed + index)
        return map_nested(np.copy, self._obs)

    def step(self, actions: Any) -> StepResult:
        """One step of every environment; slots whose agent is away are not asked."""
        valid = self._here.copy()
        rewards = np.zeros(self.num_slots, np.float32)
        terminated, truncated = np.zeros(self.num_slots, bool), np.zeros(self.num_slots, bool)
        ended: list[int] = []
        final: list[Any] = []
        lost: np.ndarray | None = None
        for index, env in enumerate(self.envs):
            base = index * len(self.agents)
            chosen = {
                agent: actions[base + place] for agent, place in self._places.items() if valid[base + place]
            }
            obs, gained, over, cut, infos = env.step(chosen)
            if LOST in infos:  # it was remade and begins another episode
                lost = np.zeros(self.num_slots, bool) if lost is None else lost
                lost[base : base + len(self.agents)] = True
                self.restarts += infos[RESTARTS]
                self.lost_episodes += 1
                self.lost_steps += 1
                self._start_episode(index, obs)
                continue
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
                    before = map_nested(lambda leaf, at=slot: leaf[at], self._obs)
                    final.append(copy.deepcopy(obs.get(agent, before)))
            self._returns[index] += sum(gained.values())
            if all_over or all_cut:
                self._count(index, infos)
                self._begin(index, None)
            else:
                left = {agent for agent in obs if over.get(agent) or cut.get(agent)}
                self._see(index, {agent: seen for agent, seen in obs.items() if agent not in left})
        if lost is not None:
            valid &= ~lost
        return StepResult(
            map_nested(np.copy, self._obs),
            rewards,
            terminated,
            truncated,
            None if valid.all() else valid,
            np.asarray(ended, np.int64),
            self._stacked(final),
            present=self.present,
            lost=lost,
        )

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            guard.close(env)

    def _begin(self, index: int, seed: int | None) -> None:
        obs, infos = self.envs[index].reset(seed=seed)
        self.restarts += sum((info or {}).get(RESTARTS, 0) for info in infos.values())
        self._start_episode(index, obs)

    def _start_episode(self, index: int, obs: dict[Any, Any]) -> None:
        self._returns[index], self._lengths[index] = 0.0, 0
        self._see(index, obs)

    def _see(self, index: int, obs: dict[Any, Any]) -> None:
        """Take up what the agents of one environment observe; those without an observation are absent."""
        base = index * len(self.agents)
        self._here[base : base + len(self.agents)] = False
        for agent, seen in obs.items():
            slot = base + self._places[agent]
            self._here[slot] = True
            map_nested(lambda leaf, value, at=slot: leaf.__setitem__(at, value), self._obs, seen)

    def _stacked(self, seen: list[Any]) -> Tree:
        if not seen:
            return map_nested(lambda leaf: leaf[:0], self._obs)
        return map_nested(lambda leaf, *values: np.asarray(np.stack(values), leaf.dtype), self._obs, *seen)

    def _count(self, index: int, infos: dict[Any, Any]) -> None:
        by_agent = true_returns(infos.values())
        true = None if by_agent is None else sum(by_agent.values())
        length = self._lengths[index]
        self.finished.end(index, self._returns[index], length, true=true, policy=self.policy)
        for info in infos.values():
            self.finished.report(info or {})


class AgentSlots(GymVector):
    """Environments of several agents that are stepped as one: what `vector_of_agents` of a class returned.

    :param policy: the name of the policy that all agents share
    """

    def __init__(self, env: VectorEnv, policy: str) -> None:
        super().__init__(env)
        self.agents = _agents_of(env)
        self.env = ByAgent(env, self.agents)
        self.policy = policy
        self._returns = np.zeros(self.num_slots // len(self.agents))
        self._lengths = np.zeros(len(self._returns), np.int64)

    def step(self, actions: Any) -> StepResult:
        """One step of every environment; those that end reset in it."""
        result = super().step(actions)
        result.rewards = result.rewards.astype(np.float32)
        return result

    def _drop(self, lost: np.ndarray) -> None:
        self._returns[:], self._lengths[:] = 0.0, 0  # all of them: they fail as one
        self.lost_steps += len(self._lengths)

    def _add(self, rewards: np.ndarray, valid: np.ndarray | None) -> None:
        if valid is None:
            self._returns += sum(rewards.reshape(-1, len(self.agents)).T)
            self._lengths += 1

    def _final(self, obs: Tree, infos: dict[str, Any], ended: np.ndarray) -> Tree:
        if ended.size:
            self._check_together(ended)
        return super()._final(obs, infos, ended)

    def _check_together(self, ended: np.ndarray) -> None:
        environments, agents = np.unique(ended // len(self.agents), return_counts=True)
        apart = environments[agents < len(self.agents)]
        if apart.size:
            raise EnvironmentFault(
                f"of environment {apart[0]} some agents ended and others did not",
                f"end all in one step, or remove {HOOK}: environments are then stepped one by one",
            )

    def _count(self, infos: dict[str, Any], ended: np.ndarray) -> None:
        size, last = len(self.agents), infos.get("final_info", {})
        for index in np.unique(ended // size).tolist():
            slots = range(index * size, (index + 1) * size)
            true = sum(infos[TRUE_RETURN][slot] for slot in slots) if TRUE_RETURN in infos else None
            length = self._lengths[index]
            self.finished.end(index, self._returns[index], length, true=true, policy=self.policy)
            for slot in slots:
                self.finished.report(_of_one(last, slot))
            self._returns[index], self._lengths[index] = 0.0, 0


class ByAgent(VectorWrapper):
    """Slots as RLlib looks at them: one environment, by its agents."""

    def __init__(self, env: VectorEnv, agents: Sequence[Any]) -> None:
        super().__init__(env)
        seen, done = env.single_observation_space, env.single_action_space
        self.observation_space, self.action_space = seen, done
        self.single_observation_space = gym.spaces.Dict({str(agent): seen for agent in agents})
        self.single_action_space = gym.spaces.Dict({str(agent): done for agent in agents})


def _agents_of(env: VectorEnv) -> tuple[Any, ...]:
    name, inner = type(env.unwrapped).__name__, env.unwrapped
    agents = tuple(getattr(inner, "possible_agents", ()))
    if not agents:
        raise EnvironmentFault(f"{name} does not say which agents it has", "set its possible_agents")
    if env.num_envs % len(agents):
        raise EnvironmentFault(
            f"{name} has num_envs={env.num_envs}, which {len(agents)} agents do not divide",
            f"set num_envs to environments * {len(agents)}: every agent has a slot",
        )
    if (env.metadata or {}).get("autoreset_mode") != AutoresetMode.SAME_STEP:
        raise EnvironmentFault(
            f"{name} does not begin ended episodes in the same step",
            "set metadata['autoreset_mode'] = gymnasium.vector.AutoresetMode.SAME_STEP, and do so",
        )
    return agents
