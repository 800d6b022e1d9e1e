"""Environments as RLlib wants them: one picklable creator for every worker, several agents adapted."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from rayfish.algorithm.batched.eligibility import AGENTS, NATIVE, PROCESSES, STACKED
from rayfish.algorithm.batched.gpu_sampler import ResidentVector, TensorEnv
from rayfish.envs.agents import AgentSlots, AgentsVector
from rayfish.envs.build import make, make_agents_vector, make_vector
from rayfish.envs.env_kind import agents_and_spaces, is_parallel, is_rllib_multi_agent
from rayfish.envs.guard import guarded
from rayfish.envs.processes import in_processes
from rayfish.envs.restarts import restarting
from rayfish.envs.rewards import clipped
from rayfish.envs.spec import EnvSpec
from rayfish.envs.vector import GymVector, Vector, holds_tensors
from rayfish.nested import first_leaf
from rayfish.supervise import signals, watchdog

ALL = "__all__"

_SET_UP: set[str] = set()
"""Worker names this process was set up for; a vector of environments is made one by one."""


@dataclass(frozen=True)
class EnvCreator:
    """Makes the environment of a spec from the `EnvContext` that RLlib passes on each worker.

    :param setup: called once in each process with the worker's name ("driver", "runner 2") before
        the first environment is made; a module-level function, so that it pickles
    :param patience: how long a call into the environment may take on a worker
    :param vector: how `many` makes many of it for the batched path
    :param policy: the one that all agents share, where there are several
    :param failed: what a step becomes in which an environment fails and is remade (`envs.restarts`); "": an
        error
    """

    spec: EnvSpec
    setup: Callable[[str], None] | None = None
    role: str = "runner"
    patience: watchdog.Patience = field(default_factory=watchdog.Patience)
    vector: str = STACKED
    policy: str = ""
    failed: str = ""

    def many(self, context: Any, num_envs: int) -> Vector:
        """`num_envs` environments as the batched path steps them, in the way `vector` names."""
        if self.vector in (AGENTS, NATIVE, PROCESSES):
            self._settle(context)
        if self.vector == AGENTS:
            slots = make_agents_vector(self.spec, dict(context), num_envs)
            if slots is None:
                return AgentsVector([self(context) for _ in range(num_envs)], self.policy)
            more = partial(make_agents_vector, self.spec, dict(context), num_envs)
            return AgentSlots(self._checked(slots, more), self.policy)
        if self.vector == NATIVE:
            return self._native(context, num_envs)
        if self.vector == PROCESSES:
            make = partial(in_processes, self.spec, context, num_envs, self.patience, self.failed)
            return GymVector(self._remade(make))
        makers = [partial(self, context) for _ in range(num_envs)]
        return GymVector(SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP))

    def _native(self, context: Any, num_envs: int) -> Vector:
        """An environment's own vector; tensors are neither checked one by one nor copied to the CPU."""
        make = partial(make_vector, self.spec, dict(context), num_envs)
        env = _in_torch(make())
        obs = env.reset()[0]
        if not holds_tensors(obs):
            return GymVector(self._checked(env, make))
        if env.metadata.get("autoreset_mode") == AutoresetMode.SAME_STEP:
            return ResidentVector(env, self.spec.clip_rewards)
        return GymVector(clipped(TensorEnv(env, first_leaf(obs).device), self.spec.clip_rewards))

    def _checked(self, env: Any, make: Callable[[], Any]) -> Any:
        """A vector with its guard, and what `make` makes in its place when it fails."""
        first = [env]

        def guarded_one() -> Any:
            vector = first.pop() if first else make()
            return clipped(guarded(vector, self.spec.name), self.spec.clip_rewards)

        return self._remade(guarded_one)

    def _remade(self, make: Callable[[], Any]) -> Any:
        """What `make` makes, remade by it when it fails, where the experiment wants that."""
        return restarting(make, self.spec.name, self.failed) if self.failed else make()

    def __call__(self, context: Any) -> Any:
        """An environment for RLlib; a `VectorEnv` when RLlib asks for `num_envs` at once."""
        self._settle(context)
        num_envs = context.pop("num_envs") if isinstance(context, VectorContext) else 0
        return self._remade(partial(self._one, context, num_envs))

    def _one(self, context: Any, num_envs: int) -> Any:
        if num_envs:
            if self.vector == PROCESSES:  # these have guards of their own
                options = {"copy": True, "autoreset_mode": AutoresetMode.NEXT_STEP}
                return in_processes(self.spec, context, num_envs, self.patience, self.failed, **options)
            env = make_vector(self.spec, dict(context), num_envs)
        else:
            env = for_rllib(make(self.spec, context))
        # Outside the guard, which looks at the true rewards.
        return clipped(guarded(env, self.spec.name), self.spec.clip_rewards)

    def _settle(self, context: Any) -> None:
        """Make this process ready for environments, once."""
        name = worker_name(context, self.role)
        if self.setup is not None and name not in _SET_UP:
            _SET_UP.add(name)
            self.setup(name)
        if name != "driver":
            _outlive_sigterm()
        # The driver is looked after by the run itself; a process that it forked is not.
        if name != "driver" or multiprocessing.parent_process() is not None:
            watchdog.watch_process(self.patience)


class VectorContext(EnvContext):
    """What RLlib hands over in "vector_entry_point" mode: the `env_config`, with `num_envs` added."""


def _with_more(self: EnvContext, more: dict[str, Any]) -> VectorContext:
    """`context | {"num_envs": n}`, by which RLlib asks for a vector, keeps `worker_index` and its like."""
    made = VectorContext(dict(self), self.worker_index)
    made.__dict__.update(self.__dict__)
    made.update(more)
    return made


EnvContext.__or__ = _with_more


def _in_torch(env: gym.vector.VectorEnv) -> gym.vector.VectorEnv:
    """A vector whose arrays are JAX's, with torch's over the same memory (by DLPack)."""
    if "jax" not in sys.modules or not isinstance(first_leaf(env.reset()[0]), sys.modules["jax"].Array):
        return env
    from gymnasium.wrappers.vector import JaxToTorch

    return JaxToTorch(env)


def _outlive_sigterm() -> None:
    """A worker survives SIGTERM (its run saves first), but a program that it starts can be ended by it.

    A Ray that Rayfish started has SIGTERM and SIGHUP blocked in all its processes (`run.engine`), which
    programs would inherit; of a handler they inherit nothing.
    """
    blocked = {signal.SIGTERM, signal.SIGHUP} & signal.pthread_sigmask(signal.SIG_BLOCK, ())
    if blocked and threading.current_thread() is threading.main_thread():
        for number in blocked:
            signal.signal(number, signals.ignore)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)


def worker_name(context: Any, role: str = "runner") -> str:
    """How logs call the process an environment lives in: "driver" or "runner 2"."""
    index = getattr(context, "worker_index", 0) or 0
    return "driver" if index == 0 else f"{role} {index}"


def for_rllib(env: Any) -> gym.Env:
    """`env` itself when RLlib can step it, else its multi-agent adapter."""
    if is_parallel(env):
        return ParallelAdapter(env)
    if is_rllib_multi_agent(env):
        complete(env.unwrapped)
    return env


def complete(env: MultiAgentEnv) -> None:
    """Fill in what today's RLlib reads and environments written for older versions leave out."""
    agents, observations, actions = agents_and_spaces(env)
    env.possible_agents = env.possible_agents or list(agents)
    env.agents = env.agents or list(agents)
    env.observation_spaces = env.observation_spaces or observations
    env.action_spaces = env.action_spaces or actions
    # RLlib writes its autoreset mode into the metadata: keep that out of the class they share.
    env.metadata = dict(env.metadata or {})


class ParallelAdapter(MultiAgentEnv):
    """A PettingZoo parallel environment as RLlib's `MultiAgentEnv`.

    Unlike RLlib's own adapter it accepts agents that are absent at the first reset, ends an episode
    as soon as no agent is left (also when some were terminated and others truncated), and
    keeps each agent's own end: a truncated agent is still bootstrapped.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        agents, observations, actions = agents_and_spaces(env)
        self.possible_agents = list(agents)
        self.agents = list(agents)
        self.observation_spaces = observations
        self.action_spaces = actions
        self.observation_space = gym.spaces.Dict({str(agent): observations[agent] for agent in agents})
        self.action_space = gym.spaces.Dict({str(agent): actions[agent] for agent in agents})
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)
        super().__init__()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self.agents = list(observations)
        return observations, _known(infos, observations)

    def step(self, action_dict: dict[Any, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """One step of every live agent."""
        observations, rewards, terminated, truncated, infos = self.env.step(action_dict)
        terminated = {agent: bool(terminated.get(agent, False)) for agent in observations}
        truncated = {agent: bool(truncated.get(agent, False)) for agent in observations}
        rewards = {agent: float(rewards.get(agent, 0.0)) for agent in observations}
        if not self.env.agents:  # PettingZoo's own sign of the end, should a flag have been forgotten
            truncated = {agent: truncated[agent] or not terminated[agent] for agent in observations}
        self.agents = [agent for agent in observations if not (terminated[agent] or truncated[agent])]
        over = not self.agents
        # RLlib spreads `__all__` over every agent of the last step, and a terminated agent is never
        # bootstrapped. So an end with a truncated agent in it counts as truncated as a whole: the
        # terminated ones keep their own flag, which wins.
        cut = any(truncated[agent] and not terminated[agent] for agent in observations)
        terminated[ALL], truncated[ALL] = over and not cut, over and cut
        return observations, rewards, terminated, truncated, _known(infos, observations)

    def render(self) -> Any:
        """The frame of the inner environment."""
        return self.env.render()

    def close(self) -> None:
        """Close the inner environment."""
        self.env.close()


def _known(infos: dict[Any, Any] | None, observations: dict[Any, Any]) -> dict[Any, Any]:
    """RLlib takes infos only for agents that it got an observation of."""
    return {agent: info for agent, info in (infos or {}).items() if agent in observations}
