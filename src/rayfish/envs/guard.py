"""Around every environment in training: what it returns is checked as it comes.

A wrong observation would otherwise surface much later, inside a network, as a NaN or a shape error
that names nothing of the user's. The guards also report calls in progress to the watchdog.
They hold plain data only, so that an environment can be pickled with its guard.
"""

from __future__ import annotations

import copy
import functools
import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rayfish.envs.env_kind import agents_and_spaces, is_rllib_multi_agent
from rayfish.envs.space_check import Faults, faults, is_finite, observed, reward_faults
from rayfish.envs.wrappers import AgentsWrapper, Transparent
from rayfish.errors import EnvironmentFault
from rayfish.supervise.error_messages import NOTE, first_line, source_of
from rayfish.supervise.watchdog import Call, activity

_logger = logging.getLogger(__name__)


def guarded(env: Any, name: str) -> Any:
    """`env` with its guard around it."""
    if isinstance(env, gym.vector.VectorEnv):
        return VectorGuard(env, name)
    return AgentsGuard(env, name) if is_rllib_multi_agent(env) else Guard(env, name)


def close(env: Any) -> None:
    """Close an environment; nothing depends on its own close(), so an error in it is only logged."""
    try:
        env.close()
    except Exception as error:
        inner = getattr(env, "unwrapped", env)
        _warn_once(f"{type(inner).__name__}.close() failed: {first_line(error)}")
        if isinstance(inner, gym.vector.VectorEnv):
            inner.closed = True  # else its __del__ closes it again


@functools.cache
def _warn_once(text: str) -> None:
    _logger.warning(text)


class _Guarding(Transparent):
    """What the guards share: the checks, the step of the episode, and how a fault is reported."""

    def __init__(self, env: Any, name: str = "") -> None:
        super().__init__(env)  # type: ignore[call-arg]
        self.name = name
        self.episode_step = 0
        self._observation = observed(getattr(env, "observation_space", None))

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode; its first observation is checked."""
        self.episode_step = 0
        result = self._called("reset", seed=seed, options=options)
        if not (isinstance(result, tuple) and len(result) == 2 and self._fits(result[0])):
            raise self._fault("reset", result, ("observation", "info"))
        return result

    def step(self, action: Any) -> Any:
        """One step; what it returns is checked."""
        self.episode_step += 1
        result = self._called("step", action)
        sound = isinstance(result, tuple) and len(result) == 5 and self._fits(result[0])
        if not (sound and self._pays(result[1])):
            raise self._fault("step", result, ("observation", "reward", "terminated", "truncated", "info"))
        return result

    def close(self) -> None:
        """Close the environment."""
        close(self.env)

    def _fits(self, observation: Any) -> bool:
        return self._observation.fits(observation)

    def _pays(self, reward: Any) -> bool:
        return is_finite(reward)

    def _observation_faults(self, observation: Any) -> Faults:
        return faults(observation, self.env.observation_space, "observation", strict=False)

    def _reward_faults(self, reward: Any) -> Faults:
        return reward_faults(reward, strict=False)

    def _called(self, method: str, *arguments: Any, **options: Any) -> Any:
        mine, me = activity(), threading.get_ident()
        mine.running[me] = Call(time.monotonic(), self, method)
        try:
            result = getattr(self.env, method)(*arguments, **options)
        except Exception as error:
            if not any(note.startswith(NOTE) for note in getattr(error, "__notes__", ())):
                error.add_note(f"{NOTE}{self.episode_step} of the episode")
            raise
        finally:
            mine.running.pop(me, None)
        mine.finished += 1
        return result

    def _fault(self, method: str, result: Any, expected: tuple[str, ...]) -> EnvironmentFault:
        if isinstance(result, tuple) and len(result) == len(expected):
            found = self._observation_faults(result[0])
            found += self._reward_faults(result[1]) if "reward" in expected else []
        else:
            got = f"{len(result)} values" if isinstance(result, tuple) else f"one {type(result).__name__}"
            found = [(f"it returned {got}", f"end it with `return {', '.join(expected)}`")]
        cls, file, line = source_of(self.env, method)
        where = f" ({Path(file).name}:{line})" if file else ""
        wrong = "; ".join(what for what, _ in found[:2])
        hints = "; ".join(dict.fromkeys(hint for _, hint in found[:2]))
        return EnvironmentFault(
            f"{method}() of {cls}{where}, in step {self.episode_step} of the episode: {wrong}",
            f"fix {f'{file}:{line}' if file else cls}: {hints}; "
            f"rayfish env check {self.name} tries the environment by itself",
        )


class Guard(_Guarding, gym.Wrapper):
    """A single-agent environment whose observations and rewards are checked as they come.

    The last observation of an episode is a copy: many environments write the next one into the same array.
    """

    def __init__(self, env: gym.Env, name: str = "") -> None:
        super().__init__(env, name)
        # Vectors write their autoreset mode into the metadata: keep that out of the class they share.
        self.metadata = dict(env.metadata or {})

    def step(self, action: Any) -> Any:
        """One step; what it returns is checked."""
        result = super().step(action)
        if result[2] or result[3]:
            return (copy.deepcopy(result[0]), *result[1:])
        return result


class AgentsGuard(_Guarding, AgentsWrapper):
    """RLlib's `MultiAgentEnv` whose observations and rewards are checked agent by agent."""

    def __init__(self, env: Any, name: str = "") -> None:
        super().__init__(env, name)
        _, spaces, _ = agents_and_spaces(env)
        self._observations = {agent: observed(space) for agent, space in spaces.items()}

    def _fits(self, observations: Any) -> bool:
        checks = self._observations
        return isinstance(observations, Mapping) and all(
            agent in checks and checks[agent].fits(value) for agent, value in observations.items()
        )

    def _pays(self, rewards: Any) -> bool:
        return isinstance(rewards, Mapping) and all(map(is_finite, rewards.values()))

    def _observation_faults(self, observations: Any) -> Faults:
        if not isinstance(observations, Mapping):
            return [(f"the observations are a {type(observations).__name__}", "return a dict keyed by agent")]
        _, spaces, _ = agents_and_spaces(self.env)
        found: Faults = []
        for agent, value in observations.items():
            if agent in spaces:
                found += faults(value, spaces[agent], f"observation of agent {agent!r}", strict=False)
            else:
                known = ", ".join(repr(name) for name in list(spaces)[:5])
                found.append((f"it observes the unknown agent {agent!r}", f"the agents are {known}"))
        return found

    def _reward_faults(self, rewards: Any) -> Faults:
        if not isinstance(rewards, Mapping):
            return [(f"the rewards are a {type(rewards).__name__}", "return a dict keyed by agent")]
        found: Faults = []
        for agent, value in rewards.items():
            found += reward_faults(value, f"the reward of agent {agent!r}", strict=False)
        return found


class VectorGuard(_Guarding, gym.vector.VectorWrapper):
    """A `VectorEnv` that steps many copies at once, checked as a whole; it counts the steps of all copies."""

    def _pays(self, rewards: Any) -> bool:
        array = np.asarray(rewards)
        return array.shape == (self.num_envs,) and bool(np.isfinite(array.astype(float)).all())

    def _reward_faults(self, rewards: Any) -> Faults:
        return faults(rewards, gym.spaces.Box(-np.inf, np.inf, (self.num_envs,)), "rewards", strict=False)
