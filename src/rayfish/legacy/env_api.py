"""Environments and spaces written for old gym or old RLlib, in today's form.

Old means: `reset()` gives the observation alone, or `step()` four values with one `done`; there may
be a `seed()` method, and spaces of the gym package. Whether an environment is old is found out by
trying it once (`is_old`), since neither its class nor its signatures tell.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rayfish.envs.env_kind import is_rllib_multi_agent
from rayfish.envs.play import ALL
from rayfish.envs.space_check import legal_sample
from rayfish.errors import EnvironmentFault
from rayfish.generators import undisturbed

_CUT = "TimeLimit.truncated"
_LIBRARIES = ("gymnasium", "ray", "pettingzoo", "ale_py", "rayfish")

_tried: dict[type, bool] = {}
"""What trying an environment of a class has shown, in this process."""


def modernised(env: Any, *, known: bool | None = None) -> Any:
    """`env` itself when it keeps to today's interface, else with its adapter around it.

    :param known: whether it is old, where that was found out before; None tries it
    """
    outer, inner = _behind_gymnasium(env)
    if isinstance(inner, gym.vector.VectorEnv) or not _playable(inner):
        return env
    if not (known if known is not None else is_old(inner)):
        return env
    adapted = OldAgents(inner) if is_rllib_multi_agent(inner) else OldEnv(inner)
    if outer is None:
        return adapted
    outer.env = adapted  # behind the wrappers of gymnasium.make, which unpack five values
    return env


def is_old(env: Any) -> bool:
    """Whether `env` must be adapted; it may be reset and stepped for it, once for each class."""
    if not isinstance(env, gym.Env):
        return True
    cls = type(env)
    if cls.step.__module__.split(".")[0] in _LIBRARIES and not _of_old_gym(cls):
        return False
    if cls not in _tried:
        try:
            with undisturbed():
                _tried[cls] = _gives_old_values(env)
        except Exception:  # what is wrong with it is reported where it is checked
            return False
    return _tried[cls]


def adapter(env: Any) -> OldEnv | OldAgents | None:
    """The adapter among the layers of an environment; None when it needed none."""
    while env is not None:
        if isinstance(env, OldEnv | OldAgents):
            return env
        env = getattr(env, "__dict__", {}).get("env")
    return None


def notice(env: Any) -> str:
    """What to tell of an adapted environment; "" when nothing was done."""
    found = adapter(env)
    if found is None:
        return ""
    name = type(found.env).__name__
    if isinstance(found, OldEnv) and not isinstance(found.env, gym.Env) and not found.converts:
        return f"{name} does not inherit from gymnasium.Env: it is wrapped in one"
    return (
        f"{name} has the reset() and step() of old gym: its `done` counts as terminated, unless its info "
        f"says {_CUT}"
    )


class OldEnv(gym.Env):
    """An old single-agent environment in today's form.

    Not a `gymnasium.Wrapper`: what is inside need not be a Gymnasium environment, and everything
    that asks for the innermost environment should meet one that keeps the contract.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = modern_space(env.observation_space)
        self.action_space = modern_space(env.action_space)
        modes = (getattr(env, "metadata", None) or {}).get("render.modes")
        self.metadata = dict(getattr(env, "metadata", None) or {})
        if modes and not self.metadata.get("render_modes"):
            self.metadata["render_modes"] = list(modes)
        self.render_mode = getattr(env, "render_mode", None)
        self.converts = False
        self._reset_takes = _reset_parameters(env)

    def __getattr__(self, name: str) -> Any:
        """What callbacks and curricula read of an environment is the inner one's; nothing private."""
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.env, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        """Start an episode, seeded in the way the environment knows."""
        result = _reset(self.env, self._reset_takes, seed, options)
        if _is_pair(result, self.observation_space):
            return self._as_declared(result[0]), result[1]
        self.converts = True
        return self._as_declared(result), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """One step; `done` becomes terminated, or truncated where the info says so."""
        result = self.env.step(action)
        if not isinstance(result, tuple) or len(result) != 4:
            return result
        self.converts = True
        observation, reward, done, info = result
        cut = bool(done) and bool(info.get(_CUT, False))
        return self._as_declared(observation), reward, bool(done) and not cut, cut, info

    def _as_declared(self, observation: Any) -> Any:
        """Lists and other number types as the array that a Box declares; old RLlib took them, too."""
        space = self.observation_space
        if isinstance(space, gym.spaces.Box) and observation is not None:
            with suppress(TypeError, ValueError):
                return np.asarray(observation, dtype=space.dtype)
        return observation

    def render(self) -> Any:
        """A frame; old environments take the mode at each call."""
        if "mode" in inspect.signature(self.env.render).parameters:
            return self.env.render(mode=self.render_mode or "rgb_array")
        return self.env.render()

    def close(self) -> None:
        """Close the inner environment."""
        if hasattr(self.env, "close"):
            self.env.close()


class OldAgents(gym.Wrapper):
    """RLlib's `MultiAgentEnv` with four dictionaries from step, one of them `dones`."""

    def __init__(self, env: Any) -> None:
        for name in ("observation_space", "action_space", "observation_spaces", "action_spaces"):
            space = getattr(env, name, None)
            if isinstance(space, dict):
                setattr(env, name, {agent: modern_space(part) for agent, part in space.items()})
            elif space is not None and not isinstance(space, gym.Space):
                setattr(env, name, modern_space(space))
        super().__init__(env)
        self._reset_takes = _reset_parameters(env)
        if not _declares_agents(env):  # old RLlib did not require it to list its agents
            observed, _ = self.reset()
            env._agent_ids = set(observed)

    @property
    def agents(self) -> list[Any]:
        """The live agents."""
        return self.env.agents

    @property
    def possible_agents(self) -> list[Any]:
        """Every agent that may appear."""
        return self.env.possible_agents

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode, seeded in the way the environment knows."""
        result = _reset(self.env, self._reset_takes, seed, options)
        return result if isinstance(result, tuple) and len(result) == 2 else (result, {})

    def step(self, action: dict[Any, Any]) -> Any:  # type: ignore[override]
        """One step; each agent's `done` is terminated, or truncated where its info says so."""
        result = self.env.step(action)
        if not isinstance(result, tuple) or len(result) != 4:
            return result
        observations, rewards, dones, infos = result
        cut = {agent: bool((infos.get(agent) or {}).get(_CUT, False)) for agent in dones if agent != ALL}
        cut = {agent: bool(dones[agent]) and flag for agent, flag in cut.items()}
        over = bool(dones.get(ALL, False))
        shown = [flag for agent, flag in cut.items() if dones[agent]]
        whole = over and bool(shown) and all(shown)
        terminated = {agent: bool(done) and not cut.get(agent, False) for agent, done in dones.items()}
        return observations, rewards, terminated | {ALL: over and not whole}, cut | {ALL: whole}, infos


def contract_layer(env: Any) -> Any:
    """The innermost layer of `env` that keeps to today's interface."""
    found = adapter(env)
    return found if found is not None else getattr(env, "unwrapped", env)


def _gives_old_values(env: Any) -> bool:
    """Tries one reset and one step."""
    result = _reset(env, _reset_parameters(env), 0, None)
    if result is None:
        return False
    multi = is_rllib_multi_agent(env)
    old_reset = not _is_pair(result, None if multi else modern_space(env.observation_space))
    if old_reset and isinstance(result, tuple) and not multi and len(result) != _parts(env.observation_space):
        return False  # neither an observation nor (observation, info)
    observation = result if old_reset else result[0]
    stepped = env.step(_actions(env, observation) if multi else _action(env, observation))
    values = len(stepped) if isinstance(stepped, tuple) else 0
    return values == 4 or (old_reset and values == 5)


def _declares_agents(env: Any) -> bool:
    names = ("possible_agents", "observation_spaces", "agents", "_agent_ids")
    return any(getattr(env, name, None) for name in names) or isinstance(
        getattr(env, "observation_space", None), gym.spaces.Dict
    )


def _action(env: Any, observation: Any) -> Any:
    return legal_sample(modern_space(env.action_space), observation)


def _actions(env: Any, observation: Mapping[Any, Any]) -> dict[Any, Any]:
    from rayfish.envs.env_kind import agents_and_spaces

    spaces = agents_and_spaces(OldAgents(env))[2]
    return {agent: legal_sample(spaces[agent], seen) for agent, seen in observation.items()}


def _reset(env: Any, takes: frozenset[str], seed: int | None, options: dict[str, Any] | None) -> Any:
    """Call reset with what it takes; a seed that it does not take goes to `seed()`, or to `np_random`."""
    given = {"seed": seed, "options": options}
    keywords = {name: value for name, value in given.items() if name in takes and value is not None}
    if seed is not None and "seed" not in takes:
        if callable(getattr(env, "seed", None)):
            env.seed(seed)
        elif isinstance(env, gym.Env):
            gym.Env.reset(env, seed=seed)
    return env.reset(**keywords)


def _reset_parameters(env: Any) -> frozenset[str]:
    try:
        parameters = inspect.signature(env.reset).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    if any(entry.kind is entry.VAR_KEYWORD for entry in parameters) and not callable(
        getattr(env, "seed", None)
    ):
        return frozenset(("seed", "options"))
    return frozenset(entry.name for entry in parameters if entry.name in ("seed", "options"))


def _is_pair(result: Any, space: gym.Space[Any] | None) -> bool:
    """Whether a reset gave (observation, info), and not an observation that is a pair by itself."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
        return False
    return not (isinstance(space, gym.spaces.Tuple) and len(space) == 2 and space.contains(result))


def _parts(space: Any) -> int:
    return len(space.spaces) if isinstance(getattr(space, "spaces", None), list | tuple) else -1


def _behind_gymnasium(env: Any) -> tuple[Any, Any]:
    """The last of Gymnasium's own wrappers around `env` (None without one), and what it wraps."""
    outer = None
    while isinstance(env, gym.Wrapper) and type(env).__module__.startswith("gymnasium."):
        outer, env = env, env.env
    return outer, env


def _of_old_gym(cls: type) -> bool:
    return any(
        base.__module__.split(".")[0] == "gym" or base.__module__ == "rayfish.legacy.gym"
        for base in cls.__mro__
    )


def _playable(env: Any) -> bool:
    """Whether `env` looks like a single environment at all: reset, step and two spaces."""
    if isinstance(env, gym.Env):
        return True
    spaces = [getattr(env, name, None) for name in ("observation_space", "action_space")]
    return (
        not isinstance(env, type)
        and all(callable(getattr(env, method, None)) for method in ("reset", "step"))
        and all(isinstance(space, gym.Space) or is_old_space(space) for space in spaces)
    )


def is_old_space(space: Any) -> bool:
    """Whether `space` is one of gym's."""
    return any(
        base.__module__.split(".")[0] == "gym" and base.__name__ == "Space" for base in type(space).__mro__
    )


def modern_space(space: Any) -> Any:
    """The same space in Gymnasium's terms; what is no space of gym's is left as it is.

    :raises EnvironmentFault: a kind of space that has no counterpart
    """
    if isinstance(space, gym.Space) or not is_old_space(space):
        return space
    kind = next(base.__name__ for base in type(space).__mro__ if base.__module__.startswith("gym."))
    if kind == "Box":
        return spaces.Box(np.asarray(space.low), np.asarray(space.high), space.shape, space.dtype)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if kind == "MultiBinary":
        return spaces.MultiBinary(int(space.n) if np.ndim(space.n) == 0 else [int(n) for n in space.n])
    if kind == "Tuple":
        return spaces.Tuple([modern_space(part) for part in space.spaces])
    if kind == "Dict":
        return spaces.Dict({key: modern_space(part) for key, part in space.spaces.items()})
    raise EnvironmentFault(
        f"the gym space {type(space).__name__} has no counterpart that algorithms learn from",
        "use Box, Discrete, MultiDiscrete, MultiBinary, Tuple or Dict",
    )
