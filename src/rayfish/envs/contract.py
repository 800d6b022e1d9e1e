"""What reset and step take and return, probed once on the innermost environment.

Wrappers unpack these returns and would only say "not enough values"; here the cause is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from rayfish.envs.arguments import takes
from rayfish.envs.env_kind import DEFAULT_AGENT, agents_and_spaces, is_multi_agent, is_parallel
from rayfish.envs.old_environments import contract_layer
from rayfish.envs.play import ALL
from rayfish.envs.space_check import faults, legal_sample, reward_faults
from rayfish.errors import EnvironmentFault

_RESET = "write `def reset(self, *, seed=None, options=None)` and end it with `return observation, info`"
_STEP = "end step() with `return observation, reward, terminated, truncated, info`"
_AGENTS = "return dictionaries keyed by agent"


class ContractBroken(EnvironmentFault):
    """reset or step is not what Gymnasium or PettingZoo call so; nothing further can be looked at."""


class ValueBroken(ContractBroken):
    """reset or step gives a value that no training can use: another shape than declared, or NaN."""


def reset(env: Any) -> dict[Any, Any]:
    """Probe `reset` and give its observation by agent."""
    inner = contract_layer(env)
    missing = [name for name in ("seed", "options") if not takes(inner.reset, name)]
    if missing:
        raise ContractBroken(f"reset() takes no {' and no '.join(missing)}", _RESET)
    result = inner.reset(seed=0, options=None)
    if result is None:
        raise ContractBroken("reset() returns nothing", _RESET)
    if not isinstance(result, tuple) or len(result) != 2:
        got = f"{len(result)} values" if isinstance(result, tuple) else f"one {type(result).__name__}"
        raise ContractBroken(f"reset() returns {got} instead of (observation, info), as old gym did", _RESET)
    observation, info = result
    if not isinstance(info, Mapping):
        raise ContractBroken(f"the info of reset() is a {type(info).__name__}, not a dict", _RESET)
    if is_multi_agent(env):
        _keyed("reset()", "observations", observation, inner)
        if not observation:
            raise ContractBroken("reset() observes no agent", "return the observation of at least one agent")
        if is_parallel(inner) and set(inner.agents) != set(observation):
            raise ContractBroken(
                f"after reset() env.agents is {list(inner.agents)}, but it observes {list(observation)}",
                "set self.agents = self.possible_agents[:] in reset, and observe each of them",
            )
        return dict(observation)
    return {DEFAULT_AGENT: observation}


def step(env: Any) -> dict[Any, Any]:
    """Probe one `step` after a reset, and give its observation by agent."""
    inner = contract_layer(env)
    _, _, spaces = agents_and_spaces(inner)
    observation, _ = inner.reset(seed=0, options=None)
    if not is_multi_agent(env):
        result = inner.step(legal_sample(next(iter(spaces.values())), observation))
    else:
        result = inner.step({agent: legal_sample(spaces[agent], observation[agent]) for agent in observation})
    if not isinstance(result, tuple):
        got = "nothing" if result is None else f"one {type(result).__name__}"
        raise ContractBroken(f"step() returns {got}", _STEP)
    if len(result) == 4:
        raise ContractBroken(
            "step() returns four values (observation, reward, done, info), as old gym did",
            f"split done into terminated (the task ended) and truncated (time ran out); {_STEP}",
        )
    if len(result) != 5:
        raise ContractBroken(f"step() returns {len(result)} values instead of five", _STEP)
    if not isinstance(result[4], Mapping):
        raise ContractBroken(f"the info of step() is a {type(result[4]).__name__}, not a dict", _STEP)
    if is_multi_agent(env):
        _by_agent(result, inner)
        return dict(result[0])
    _usable(env, (observation, result))
    return {DEFAULT_AGENT: result[0]}


def _usable(env: Any, seen: tuple[Any, Any]) -> None:
    """Whether what training will see of reset and step can be learnt from.

    Bounds, and number types that can be cast, are left to `rayfish env check`: they spoil nothing at once.

    :param seen: what the innermost environment gave; taken where no wrapper changes it
    """
    if _changes_values(env):
        observation, _ = env.reset(seed=0)
        result = env.step(legal_sample(env.action_space, observation))
    else:
        observation, result = seen
    for place, value in (("reset()", observation), ("step()", result[0])):
        for what, hint in faults(value, env.observation_space, "observation", strict=False):
            raise ValueBroken(f"{place} does not keep to its observation space: {what}", hint)
    for what, hint in reward_faults(result[1], "the reward that step() returns", strict=False):
        raise ValueBroken(what, hint)


def _changes_values(env: Any) -> bool:
    """Whether a wrapper stands between the innermost environment and training that may change values."""
    layer = env
    while isinstance(layer, gym.Wrapper):
        if type(layer).__name__ not in ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker"):
            return True
        layer = layer.env
    return False


def _by_agent(result: tuple[Any, ...], inner: Any) -> None:
    for name, value in zip(("observations", "rewards", "terminated", "truncated"), result, strict=False):
        _keyed("step()", name, value, inner)
    if is_parallel(inner):
        return
    if ALL not in result[2]:  # RLlib takes truncated without it as not truncated
        raise ContractBroken(
            f"the terminated that step() returns has no {ALL!r} (it has {list(result[2])})",
            f"set terminated['{ALL}'] = True when the episode ends for everyone, else False",
        )


def _keyed(place: str, name: str, value: Any, inner: Any) -> None:
    if not isinstance(value, Mapping):
        raise ContractBroken(f"the {name} of {place} are a {type(value).__name__}, not a dict", _AGENTS)
    known, _, _ = agents_and_spaces(inner)
    strange = [agent for agent in value if agent not in known and agent != ALL]
    if strange:
        raise ContractBroken(
            f"the {name} of {place} name {strange[0]!r}, which is not in possible_agents {list(known)}",
            "list every agent that may appear in possible_agents, or fix the name",
        )
