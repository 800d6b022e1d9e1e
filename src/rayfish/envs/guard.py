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
from rayfish.envs.space_check import Reward, Wrong, observed
from rayfish.errors import EnvironmentFault
from rayfish.supervise.error_messages import NOTE, source_of
from rayfish.supervise.watchdog import Call, activity

_logger = logging.getLogger(__name__)


def guarded(env: Any, name: str) -> Any:
    """`env` with its guard around it.

    :param name: how the experiment names the environment
    """
    if isinstance(env, gym.vector.VectorEnv):
        return VectorGuard(env, name)
    return AgentsGuard(env, name) if is_rllib_multi_agent(env) else Guard(env, name)


def close(env: Any) -> None:
    """Close an environment; nothing depends on its own close(), so an error in it is only logged."""
    try:
        env.close()
    except Exception as error:
        inner = getattr(env, "unwrapped", env)
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        _warn_once(f"{type(inner).__name__}.close() failed: {text}")
        if isinstance(inner, gym.vector.VectorEnv):
            inner.closed = True  # else its __del__ closes it again


@functools.cache
def _warn_once(text: str) -> None:
    _logger.warning(text)


class _Guarding:
    """What the guards share: which step of the episode it is, and how a fault is reported."""

    env: Any
    name: str
    episode_step: int

    def __getattr__(self, name: str) -> Any:
        """What callbacks read of an environment is found behind its guard, too; nothing private."""
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.env, name)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode; its first observation is checked."""
        self.episode_step = 0
        result = self._called("reset", seed=seed, options=options)
        wrong = _values(result, 2) or self._wrong_observation(result[0])
        if wrong is not None:
            raise self._fault("reset", wrong)
        return result

    def step(self, action: Any) -> Any:
        """One step; what it returns is checked."""
        self.episode_step += 1
        result = self._called("step", action)
        wrong = _values(result, 5) or self._wrong_observation(result[0]) or self._wrong_reward(result[1])
        if wrong is not None:
            raise self._fault("step", wrong)
        return result

    def close(self) -> None:
        """Close the environment."""
        close(self.env)

    def _wrong_observation(self, observation: Any) -> Wrong | None:
        raise NotImplementedError

    def _wrong_reward(self, reward: Any) -> Wrong | None:
        raise NotImplementedError

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

    def _fault(self, method: str, wrong: Wrong) -> EnvironmentFault:
        cls, file, line = source_of(self.env, method)
        where = f" ({Path(file).name}:{line})" if file else ""
        what = f"{method}() of {cls}{where} returned {wrong.what}, in step {self.episode_step} of the episode"
        place = f"fix {file}:{line}" if file else f"fix {cls}"
        return EnvironmentFault(
            what, f"{place}: {wrong.hint}; rayfish env check {self.name} tries the environment by itself"
        )


class Guard(_Guarding, gym.Wrapper):
    """A single-agent environment whose observations and rewards are checked as they come.

    The last observation of an episode is a copy: many environments write the next one into the same array.
    """

    def __init__(self, env: gym.Env, name: str = "") -> None:
        super().__init__(env)
        self.name = name
        self.episode_step = 0
        # Vectors write their autoreset mode into the metadata: keep that out of the class they share.
        self.metadata = dict(env.metadata or {})
        self._observation = observed(env.observation_space, "an observation")
        self._reward = Reward("a reward")

    def step(self, action: Any) -> Any:
        """One step; what it returns is checked."""
        result = super().step(action)
        if result[2] or result[3]:
            return (copy.deepcopy(result[0]), *result[1:])
        return result

    def _wrong_observation(self, observation: Any) -> Wrong | None:
        return self._observation.wrong(observation)

    def _wrong_reward(self, reward: Any) -> Wrong | None:
        return self._reward.wrong(reward)


class AgentsGuard(_Guarding, gym.Wrapper):
    """RLlib's `MultiAgentEnv` whose observations and rewards are checked agent by agent."""

    def __init__(self, env: Any, name: str = "") -> None:
        super().__init__(env)
        self.name = name
        self.episode_step = 0
        _, spaces, _ = agents_and_spaces(env)
        self._observations = {
            agent: observed(space, f"an observation of agent {agent!r}") for agent, space in spaces.items()
        }

    @property
    def agents(self) -> list[Any]:
        """The live agents."""
        return self.unwrapped.agents

    @property
    def possible_agents(self) -> list[Any]:
        """Every agent that may appear."""
        return self.unwrapped.possible_agents

    def _wrong_observation(self, observations: Any) -> Wrong | None:
        if not isinstance(observations, Mapping):
            return Wrong(f"observations as a {type(observations).__name__}", "return a dict keyed by agent")
        for agent, value in observations.items():
            check = self._observations.get(agent)
            if check is None:
                known = ", ".join(repr(a) for a in list(self._observations)[:5])
                return Wrong(f"an observation of the unknown agent {agent!r}", f"the agents are {known}")
            wrong = check.wrong(value)
            if wrong is not None:
                return wrong
        return None

    def _wrong_reward(self, rewards: Any) -> Wrong | None:
        if not isinstance(rewards, Mapping):
            return Wrong(f"rewards as a {type(rewards).__name__}", "return a dict keyed by agent")
        checked = (Reward(f"a reward of agent {agent!r}").wrong(value) for agent, value in rewards.items())
        return next((wrong for wrong in checked if wrong is not None), None)


class VectorGuard(_Guarding, gym.vector.VectorWrapper):
    """A `VectorEnv` that steps many copies at once, checked as a whole."""

    def __init__(self, env: gym.vector.VectorEnv, name: str = "") -> None:
        super().__init__(env)
        self.name = name
        self.episode_step = 0  # of the whole vector: copies begin their episodes at different times
        self._observation = observed(env.observation_space, "observations")

    def _wrong_observation(self, observations: Any) -> Wrong | None:
        return self._observation.wrong(observations)

    def _wrong_reward(self, rewards: Any) -> Wrong | None:
        array = np.asarray(rewards)
        if array.shape != (self.num_envs,):
            return Wrong(f"rewards of shape {array.shape}, not ({self.num_envs},)", "return one per copy")
        bad = np.flatnonzero(~np.isfinite(array.astype(float)))
        if bad.size:
            return Wrong(f"the reward {array[bad[0]]} for copy {bad[0]}", "a reward is a finite number")
        return None


def _values(result: Any, count: int) -> Wrong | None:
    if isinstance(result, tuple) and len(result) == count:
        return None
    got = f"{len(result)} values" if isinstance(result, tuple) else f"one {type(result).__name__}"
    expected = "observation, reward, terminated, truncated, info" if count == 5 else "observation, info"
    return Wrong(got, f"end it with `return {expected}`")
