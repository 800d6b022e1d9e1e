"""What kind of environment an object is, and the spaces of its agents, without importing Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from rayfish.errors import EnvironmentFault

DEFAULT_AGENT = "default_agent"
"""The one agent of a single-agent environment, under the name RLlib gives it."""


@dataclass(frozen=True)
class EnvInfo:
    """What the later stages need to know of an environment.

    :param kind: "single" (Gymnasium) or "multi" (PettingZoo parallel, RLlib MultiAgentEnv)
    :param agents: every agent that may appear
    :param class_name: the innermost class
    :param saved_by: how a running one can be saved (`envs.state`): get_state, pickle or fresh
    :param not_saved: why it cannot be saved
    :param parallel: of several agents, whether all live ones act in every step (PettingZoo)
    :param native: it has a vector of its own that steps many copies at once, and can be used here
    :param not_native: why that cannot be used, "" when there is none
    :param native_saved: why a running vector cannot be saved, "" when it can
    :param native_same_step: its vector resets an environment in the step that ends its episode
    :param old_api: it has the reset and step of old gym, and is adapted
    :param notices: what was done to an old name, import or environment, a sentence each
    """

    name: str
    kind: str
    agents: tuple[Any, ...]
    observation_spaces: Mapping[Any, gym.Space[Any]]
    action_spaces: Mapping[Any, gym.Space[Any]]
    max_episode_steps: int | None = None
    render_modes: tuple[str, ...] = ()
    class_name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    saved_by: str = "fresh"
    not_saved: str = ""
    parallel: bool = False
    native: bool = False
    not_native: str = ""
    native_saved: str = ""
    native_same_step: bool = False
    old_api: bool = False
    notices: tuple[str, ...] = ()

    @property
    def has_box_actions(self) -> bool:
        """Whether the actions of any agent are a Box."""
        return any(isinstance(space, gym.spaces.Box) for space in self.action_spaces.values())

    @property
    def multi_agent(self) -> bool:
        """Whether the environment has named agents."""
        return self.kind == "multi"

    @property
    def observation_space(self) -> gym.Space[Any]:
        """The observation space of the first (in a single-agent environment: the only) agent."""
        return self.observation_spaces[self.agents[0]]

    @property
    def action_space(self) -> gym.Space[Any]:
        """The action space of the first (in a single-agent environment: the only) agent."""
        return self.action_spaces[self.agents[0]]


def is_rllib_multi_agent(env: Any) -> bool:
    """Whether `env` is RLlib's `MultiAgentEnv` (judged by its bases, without importing Ray)."""
    inner = getattr(env, "unwrapped", env)
    return any(
        base.__name__ == "MultiAgentEnv" and base.__module__.startswith("ray.rllib.")
        for base in type(inner).__mro__
    )


def is_parallel(env: Any) -> bool:
    """Whether `env` follows PettingZoo's parallel interface."""
    return (
        not isinstance(env, gym.Env)
        and hasattr(env, "possible_agents")
        and callable(getattr(env, "observation_space", None))
        and callable(getattr(env, "action_space", None))
        and not is_turn_based(env)
    )


def is_turn_based(env: Any) -> bool:
    """Whether `env` follows PettingZoo's turn-based (AEC) interface."""
    return hasattr(env, "agent_iter") and hasattr(env, "last")


def is_multi_agent(env: Any) -> bool:
    """Whether `env` has named agents, in either library's interface."""
    return is_parallel(env) or is_rllib_multi_agent(env)


def agents_and_spaces(
    env: Any,
) -> tuple[tuple[Any, ...], dict[Any, gym.Space[Any]], dict[Any, gym.Space[Any]]]:
    """Every possible agent, with its observation and its action space.

    :raises EnvironmentFault: agents or spaces are not declared
    """
    if is_parallel(env):
        agents = tuple(env.possible_agents)
        observations = {agent: env.observation_space(agent) for agent in agents}
        actions = {agent: env.action_space(agent) for agent in agents}
    elif is_rllib_multi_agent(env):
        inner = env.unwrapped
        agents = _rllib_agents(inner)
        observations = {agent: _rllib_space(inner, "observation_space", agent) for agent in agents}
        actions = {agent: _rllib_space(inner, "action_space", agent) for agent in agents}
    else:
        agents = (DEFAULT_AGENT,)
        observations = {DEFAULT_AGENT: getattr(env, "observation_space", None)}
        actions = {DEFAULT_AGENT: getattr(env, "action_space", None)}
    name = type(getattr(env, "unwrapped", env)).__name__
    if not agents:
        hint = "set self.possible_agents in its constructor"
        raise EnvironmentFault(f"{name} does not say which agents it has", hint)
    for what, spaces in (("observation_space", observations), ("action_space", actions)):
        bad = next((agent for agent, space in spaces.items() if not isinstance(space, gym.Space)), None)
        if bad is not None:
            whose = "" if bad == DEFAULT_AGENT else f" for agent {bad!r}"
            value = spaces[bad]
            got = "not set" if value is None else f"a {type(value).__module__}.{type(value).__name__}"
            hint = f"set self.{what} to a gymnasium.spaces space in the constructor"
            if bad != DEFAULT_AGENT:
                hint = f"set self.{what}s = {{agent: gymnasium space, ...}} in the constructor"
            raise EnvironmentFault(f"the {what} of {name}{whose} is {got}", hint)
    return agents, observations, actions


def in_short(space: gym.Space[Any]) -> str:
    """A space in a few words, without the arrays of its bounds."""
    if isinstance(space, gym.spaces.Box):
        low, high = float(space.low.min()), float(space.high.max())
        return f"Box{space.shape} {space.dtype} in [{low:g}, {high:g}]"
    if isinstance(space, gym.spaces.Dict):
        return "Dict(" + ", ".join(f"{key}: {in_short(inner)}" for key, inner in space.spaces.items()) + ")"
    if isinstance(space, gym.spaces.Tuple):
        return "Tuple(" + ", ".join(in_short(inner) for inner in space.spaces) + ")"
    return str(space)


def alike(one: gym.Space[Any], other: gym.Space[Any]) -> bool:
    """Whether one network fits both spaces: the same kind and sizes; bounds and number types may differ."""
    if type(one) is not type(other):
        return False
    if isinstance(one, gym.spaces.Dict):
        return one.spaces.keys() == other.spaces.keys() and all(alike(one[k], other[k]) for k in one.spaces)
    if isinstance(one, gym.spaces.Tuple):
        return len(one.spaces) == len(other.spaces) and all(map(alike, one.spaces, other.spaces))
    if isinstance(one, gym.spaces.Discrete):
        return bool(one.n == other.n)
    if isinstance(one, gym.spaces.MultiDiscrete):
        return bool(np.array_equal(one.nvec, other.nvec))
    return one.shape == other.shape


def layers(env: Any) -> list[Any]:
    """The environment with all that is wrapped around it (in any library), the innermost last."""
    found = [env]
    while (inner := getattr(found[-1], "__dict__", {}).get("env")) is not None and inner is not found[-1]:
        found.append(inner)
    return found


def max_steps(env: Any) -> int | None:
    """The episode limit we can see: that of a time-limit wrapper, else the spec's."""
    limits = [getattr(layer, "_max_episode_steps", None) for layer in layers(env)]
    limits.append(getattr(getattr(env, "spec", None), "max_episode_steps", None))
    found = [limit for limit in limits if isinstance(limit, int) and limit > 0]
    return min(found) if found else None


def _rllib_agents(env: Any) -> tuple[Any, ...]:
    """The agents, also of environments written for older RLlib versions (`_agent_ids`, Dict spaces)."""
    for declared in (
        getattr(env, "possible_agents", None),
        getattr(env, "observation_spaces", None),
        getattr(env, "agents", None),
        sorted(getattr(env, "_agent_ids", None) or (), key=str),
    ):
        if declared:
            return tuple(declared)
    space = getattr(env, "observation_space", None)
    return tuple(space.spaces) if isinstance(space, gym.spaces.Dict) else ()


def _rllib_space(env: Any, what: str, agent: Any) -> Any:
    try:
        return getattr(env, f"get_{what}")(agent)
    except KeyError:
        return None
