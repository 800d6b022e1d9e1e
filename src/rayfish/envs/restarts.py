"""Environments that are remade when they fail (`fault_tolerance.restart_failed_sub_environments`).

Only the failed environment loses its episode. It resets with a new seed, derived from the one it had and the
number of its restarts: with the old one it could fail at the same step again, and without one a run would
not repeat. An environment that keeps failing soon after it was remade ends the run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np

from rayfish.envs.env_kind import is_rllib_multi_agent, layers
from rayfish.envs.play import ALL
from rayfish.envs.tasks import task_settable
from rayfish.envs.wrappers import AgentsWrapper, Transparent
from rayfish.errors import EnvironmentFault

SKIP, TRUNCATE = "skip", "truncate"
"""What a failed step becomes: no step at all (the vectors of `envs.vector` understand that), or the end of
a truncated episode, with the observation before it and no reward (RLlib's own env runner has no other)."""

RESTARTS, LOST = "rayfish_restarts", "rayfish_episode_lost"
"""Keys of an info: how often the environment was remade in this call; whether its episode was lost by it."""

RESTARTS_IN_A_ROW, SOON = 10, 10
"""An environment may fail so many times in a row within so many steps of being remade."""

_COUNTERS = ("_seed", "_count", "_steps", "_in_a_row", "_reseed", "_pending", "_last")
_logger = logging.getLogger("ray.rllib")


class RestartsExhausted(EnvironmentFault):
    """An environment that fails again and again, however often it is remade."""


def restarting(make: Callable[[], Any], name: str, failed: str) -> Any:
    """The environment of `make`, remade by it whenever it fails.

    :param failed: what a failed step becomes, `SKIP` or `TRUNCATE`
    """
    env = make()
    kind: Any = RestartingAgents if is_rllib_multi_agent(env) else Restarting
    if isinstance(env, gym.vector.VectorEnv):
        kind = RestartingVector
    return kind(env, make, name, failed)


class _Restarts(Transparent):
    """What the wrappers share: remaking, seeds, and the limit."""

    def __init__(self, env: Any, make: Callable[[], Any], name: str, failed: str) -> None:
        super().__init__(env)  # type: ignore[call-arg]
        self.env = env
        self.metadata = dict(env.metadata or {})  # vectors write into it
        self._make = make
        self._name = name
        self._failed = failed
        self._last: Any = None  # of a failed step that truncates
        self._reseed = self._pending = False
        self._seed: Any = None
        self._count = self._steps = self._in_a_row = 0

    def __reduce__(self) -> Any:
        """Pickles as the environment behind it: a resumed run may have no such wrapper."""
        return _itself, (self.env,)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode."""
        if seed is not None:
            self._seed, self._count = seed, 0
        elif self._reseed:  # remade by a step that failed
            seed = self._next_seed()
        self._reseed = self._pending = False
        before = self._count
        observation, info = self._begun(seed, options)
        return observation, self._counted(observation, info, self._count - before)

    def step(self, action: Any) -> Any:
        """One step; a failed one is reported as `failed` says, with the environment remade."""
        if self._pending:
            observation, info = self.reset()
            return self._first(observation, info)
        try:
            result = self.env.step(action)
        except RestartsExhausted:
            raise
        except Exception as error:
            return self._after(error)
        self._steps += 1
        if self._failed == TRUNCATE:
            self._last = result[0]
        return result

    def _after(self, error: Exception) -> Any:
        """What a step that failed returns."""
        before = self._count
        self._remake(error, "Environment step failed")
        if self._failed == TRUNCATE:
            self._reseed = True
            return self._truncated(self._last, self._count - before)
        observation, _ = self._begun(self._next_seed(), None)
        return self._skipped(observation, self._count - before)

    def _begun(self, seed: Any, options: dict[str, Any] | None) -> tuple[Any, Any]:
        """A first observation and its info, with as many restarts as it takes."""
        while True:
            try:
                observation, info = self.env.reset(seed=seed, options=options)
            except RestartsExhausted:
                raise
            except Exception as error:
                self._remake(error, "Resetting the env resulted in an error")
                seed = self._next_seed()
                continue
            if self._failed == TRUNCATE:
                self._last = observation
            return observation, info

    def _remake(self, error: Exception, what: str) -> None:
        """Another environment in the place of this one."""
        old = self.env
        while True:
            self._count += 1
            self._in_a_row = 1 if self._steps >= SOON else self._in_a_row + 1
            self._steps = 0
            if type(error).__name__ != "StepFailedRecreateEnvError":  # RLlib's word for "do not log it"
                _logger.error("%s; the environment is remade. The error is: %s", what, error, exc_info=error)
            if self._in_a_row >= RESTARTS_IN_A_ROW:
                raise self._exhausted(error) from error
            with suppress(Exception):
                self.env.close()
            try:
                self.env = self._make()
            except Exception as again:  # a simulator whose port is still in use, say
                error = again
                continue
            before, now = task_settable(old), task_settable(self.env)
            if before is not None and now is not None:
                with suppress(Exception):
                    now.set_task(before.get_task())
            return

    def _exhausted(self, error: Exception) -> RestartsExhausted:
        last = error.what if isinstance(error, EnvironmentFault) else f"{type(error).__name__}: {error}"
        return RestartsExhausted(
            f"the environment was remade {RESTARTS_IN_A_ROW} times in a row and failed again within "
            f"{SOON} steps each time; the last time: {last}",
            f"fix it; rayfish env check {self._name} tries the environment by itself",
        )

    def _next_seed(self) -> int | None:
        if self._seed is None:
            return None
        given = [int(part) for part in np.atleast_1d(self._seed) if part is not None]
        entropy = [*given, self._count]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)

    def _counted(self, observation: Any, info: Any, restarts: int) -> Any:
        return {**info, RESTARTS: restarts} if restarts else info

    def _skipped(self, observation: Any, restarts: int) -> Any:
        return observation, 0.0, False, False, {RESTARTS: restarts, LOST: True}

    def _truncated(self, last: Any, restarts: int) -> Any:
        return last, 0.0, False, True, {RESTARTS: restarts, LOST: True}

    def _first(self, observation: Any, info: Any) -> Any:
        raise NotImplementedError  # of vectors, which reset by themselves


def _itself(env: Any) -> Any:
    return env


class Restarting(_Restarts, gym.Wrapper):
    """A single-agent environment."""


class RestartingAgents(_Restarts, AgentsWrapper):
    """RLlib's `MultiAgentEnv`."""

    def _counted(self, observation: Any, info: Any, restarts: int) -> Any:
        if not restarts or not observation:
            return info
        first = next(iter(observation))
        return {**info, first: {**(info.get(first) or {}), RESTARTS: restarts}}

    def _skipped(self, observation: Any, restarts: int) -> Any:
        return observation, {}, {ALL: False}, {ALL: False}, {RESTARTS: restarts, LOST: True}

    def _truncated(self, last: Any, restarts: int) -> Any:
        info = {RESTARTS: restarts, LOST: True}
        nothing, over = dict.fromkeys(last, 0.0), dict.fromkeys((*last, ALL), True)
        return last, nothing, dict.fromkeys(over, False), over, {agent: dict(info) for agent in last}


class RestartingVector(_Restarts, gym.vector.VectorWrapper):
    """Environments that fail as one: a vector of its own, or processes of which one is gone."""

    def _counted(self, observation: Any, info: Any, restarts: int) -> Any:
        return {**info, RESTARTS: self._of_first(restarts)} if restarts else info

    def _skipped(self, observation: Any, restarts: int) -> Any:
        return self._result(observation, False, self._lost(restarts))

    def _truncated(self, last: Any, restarts: int) -> Any:
        self._pending = True  # these vectors reset in the step after
        return self._result(last, True, self._lost(restarts))

    def _first(self, observation: Any, info: Any) -> Any:
        return self._result(observation, False, info)

    def _result(self, observation: Any, truncated: bool, info: dict[str, Any]) -> Any:
        size = self.num_envs
        return observation, np.zeros(size), np.zeros(size, bool), np.full(size, truncated), info

    def _lost(self, restarts: int) -> dict[str, Any]:
        every = np.ones(self.num_envs, bool)
        return {RESTARTS: self._of_first(restarts), LOST: every, f"_{RESTARTS}": every, f"_{LOST}": every}

    def _of_first(self, restarts: int) -> np.ndarray:
        counts = np.zeros(self.num_envs, int)
        counts[0] = restarts
        return counts


def layer_of(env: Any) -> tuple[Any, _Restarts] | None:
    """The wrapper of this file around an environment, after the layer around it (None: it is outermost)."""
    chain = layers(env)
    places = zip([None, *chain], chain, strict=False)
    return next((place for place in places if isinstance(place[1], _Restarts)), None)


def saved_layers(env: Any) -> list[Any]:
    """The layers of an environment without the wrapper of this file: a resumed run may have none."""
    return [layer for layer in layers(env) if not isinstance(layer, _Restarts)]


def put_around(old: Any, new: Any) -> Any:
    """A loaded environment with the wrapper that the one in its place had."""
    place = layer_of(old)
    if place is None:
        return new
    outer, wrapper = place
    if outer is None:
        wrapper.env = new
        return wrapper
    depth, chain = len(layers(wrapper.env)), layers(new)
    wrapper.env = chain[-depth]
    if len(chain) == depth:
        return wrapper
    chain[-depth - 1].env = wrapper
    return new


def counters(envs: Sequence[Any]) -> list[dict[str, Any] | None]:
    """What `set_counters` puts back; None for an environment that is not restarted."""
    places = map(layer_of, envs)
    return [place and {name: getattr(place[1], name) for name in _COUNTERS} for place in places]


def set_counters(envs: Sequence[Any], saved: Sequence[dict[str, Any] | None] | None) -> None:
    """The restarts of environments as they were counted when they were saved."""
    for env, state in zip(envs, saved or (), strict=False):
        place = layer_of(env)
        if place is not None and state is not None:
            vars(place[1]).update(state)
