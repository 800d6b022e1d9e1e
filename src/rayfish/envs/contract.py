"""What reset and step take and return, probed once on the innermost environment.

Wrappers unpack these returns and would only say "not enough values"; here the cause is named.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rayfish.envs.kinds import DEFAULT_AGENT, agents_and_spaces, is_multi_agent, is_parallel
from rayfish.envs.play import ALL
from rayfish.envs.values import legal_sample
from rayfish.errors import EnvironmentFault

_RESET = "write `def reset(self, *, seed=None, options=None)` and end it with `return observation, info`"
_STEP = "end step() with `return observation, reward, terminated, truncated, info`"
_AGENTS = "return dictionaries keyed by agent"


class ContractBroken(EnvironmentFault):
    """reset or step is not what Gymnasium or PettingZoo call so; nothing further can be looked at."""


def reset(env: Any) -> dict[Any, Any]:
    """Probe `reset` and give its observation by agent.

    :raises ContractBroken: it takes no seed or options, or returns something else than (observation, info)
    """
    inner = getattr(env, "unwrapped", env)
    missing = [name for name in ("seed", "options") if not _accepts(inner.reset, name)]
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
        raise ContractBroken(f"the info that reset() returns is a {type(info).__name__}, not a dict", _RESET)
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
    """Probe one `step` after a reset, and give its observation by agent.

    :raises ContractBroken: it returns anything but its five values, or not by agent
    """
    inner = getattr(env, "unwrapped", env)
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
        raise ContractBroken(
            f"the info that step() returns is a {type(result[4]).__name__}, not a dict", _STEP
        )
    if not is_multi_agent(env):
        return {DEFAULT_AGENT: result[0]}
    _by_agent(result, inner)
    return dict(result[0])


def _by_agent(result: tuple[Any, ...], inner: Any) -> None:
    for name, value in zip(("observations", "rewards", "terminated", "truncated"), result, strict=False):
        _keyed("step()", name, value, inner)
    if is_parallel(inner):
        return
    for name, flags in (("terminated", result[2]), ("truncated", result[3])):
        if ALL not in flags:
            raise ContractBroken(
                f"the {name} that step() returns has no {ALL!r} (it has {list(flags)})",
                f"set {name}['{ALL}'] = True when the episode ends for everyone, else False",
            )


def _keyed(place: str, name: str, value: Any, inner: Any) -> None:
    if not isinstance(value, Mapping):
        raise ContractBroken(f"the {name} of {place} are a {type(value).__name__}, not a dict", _AGENTS)
    known, _, _ = agents_and_spaces(inner)
    strange = [agent for agent in value if agent not in known and agent != ALL]
    if strange:
        raise ContractBroken(
            f"the {name} of {place} name {strange[0]!r}, which is not in possible_agents {list(known)}",
            "list every agent that may appear in possible_agents, or mend the name",
        )


def _accepts(function: Callable[..., Any], name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return name in parameters or any(entry.kind is entry.VAR_KEYWORD for entry in parameters.values())
