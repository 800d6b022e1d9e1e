"""The state of a running environment, so that a resumed run sees the very step it would have seen.

An environment is saved in the first of these ways that brings it back (tried on a real one, not
guessed: many environments pickle only their constructor's arguments):

    get_state   methods `get_state()` and `set_state(state)` of its own
    pickle      the whole object
    fresh       neither: every run begins new episodes at each checkpoint, interrupted or not
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np

from rayfish.compat.library_internals import cached_spec, set_cached_spec
from rayfish.envs import guard, restarts
from rayfish.envs.env_kind import EnvInfo, layers
from rayfish.envs.play import Act, Actions, Player, TimeStep, random_actions
from rayfish.envs.space_check import same
from rayfish.envs.vector import holds_tensors
from rayfish.generators import generators, set_generators, undisturbed
from rayfish.nested import first_leaf
from rayfish.supervise.error_messages import first_line

GET_STATE, PICKLE, FRESH = "get_state", "pickle", "fresh"

MOST_BYTES = 64 * 2**20
"""A larger pickled environment is not saved: checkpoints would be mostly its data."""

_STEPS_BEFORE, _STEPS_AFTER, _LONGEST_S = 3, 8, 20.0


def find_way(env: Any, actions: dict[Any, gym.Space[Any]]) -> tuple[str, str]:
    """How `env` can be saved, and why not better: `("pickle", "")`, `("fresh", "TypeError: ...")`.

    The environment is stepped for it; global generators are left as they were.
    """
    why = ""
    for way in (GET_STATE, PICKLE):
        if way == GET_STATE and not _offers_state(env):
            continue
        with undisturbed(), _quiet_finalizers():
            try:
                why = _trial(env, way, actions)
            except Exception as error:
                why = first_line(error)
        if not why:
            return way, ""
    return FRESH, why


def why_not_pickled(vector: Any) -> str:
    """Why a running vector of environments does not come back by pickle; "" when it does.

    It is reset and stepped for it; global generators are left as they were.
    """
    with undisturbed(), _quiet_finalizers():
        first, _ = vector.reset(seed=7)
        vector.action_space.seed(7)
        script = [_like(first, vector.action_space.sample()) for _ in range(_STEPS_BEFORE + _STEPS_AFTER)]
        for actions in script[:_STEPS_BEFORE]:
            vector.step(actions)
        try:
            saved = dump([vector.unwrapped], PICKLE)
            if len(saved) > MOST_BYTES:
                return f"its pickled state is {len(saved) / 2**20:.0f} MB"
            drawn = generators()
            expected = [vector.step(actions)[:4] for actions in script[_STEPS_BEFORE:]]
            set_generators(drawn)
            [again] = pickle.loads(saved)
            seen = [again.step(actions)[:4] for actions in script[_STEPS_BEFORE:]]
        except Exception as error:
            return first_line(error)
    return "" if same(expected, seen) else "a copy made by pickle behaves differently"


@contextmanager
def _quiet_finalizers() -> Iterator[None]:
    """Drop what `__del__` raises: an environment that fails to unpickle is deleted half made."""
    hook = sys.unraisablehook

    def drop(ignored: sys.UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, Exception):  # a signal
            hook(ignored)

    sys.unraisablehook = drop
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _like(obs: Any, actions: Any) -> Any:
    """Actions as an environment of tensors takes them, where it is one."""
    if not holds_tensors(obs):
        return actions
    import torch

    return torch.as_tensor(actions, device=first_leaf(obs).device)


def note(info: EnvInfo, vectorized: str | None = None) -> str:
    """What a user should know of saving this environment; "" when it is saved as it is."""
    if vectorized not in (None, "sync", "SYNC"):
        why = f"with gym_env_vectorize_mode={vectorized} they are out of reach"
    elif info.saved_by == FRESH:
        why = info.not_saved
    else:
        return ""
    return (
        f"running environments are not saved ({why}): new episodes begin at each checkpoint; "
        "get_state() and set_state() in the environment keep them"
    )


def dump(envs: list[Any], way: str) -> bytes:
    """The state of environments (several of one process together: they may share objects)."""
    if way == GET_STATE:
        return cloudpickle.dumps([_own_state(env) for env in envs], protocol=5)
    with _without_specs(envs):
        return cloudpickle.dumps(envs, protocol=5)


def load(envs: list[Any], way: str, saved: bytes) -> list[Any]:
    """The environments to go on with; those given are closed where they are replaced."""
    states = pickle.loads(saved)
    if way == GET_STATE:
        for env, state in zip(envs, states, strict=True):
            _set_own_state(env, state)
        return envs
    loaded = []
    for old, new in zip(envs, states, strict=True):
        if hasattr(old, "unwrapped") and hasattr(new, "unwrapped"):
            new.unwrapped.spec = getattr(old.unwrapped, "spec", None)
        guard.close(old)
        loaded.append(restarts.put_around(old, new))
    return loaded


def _trial(env: Any, way: str, actions: dict[Any, gym.Space[Any]]) -> str:
    """Why `env` does not come back in this way; "" when it does."""
    player, act, started = Player(env), random_actions(actions), time.monotonic()
    before = _play(player, player.reset(seed=7), _STEPS_BEFORE, act)[-1][1]
    took = time.monotonic() - started
    if took > _LONGEST_S:
        return f"its first {_STEPS_BEFORE} steps took {took:.0f} s, too long to try it"
    saved = dump([env], way)
    if len(saved) > MOST_BYTES:
        return f"its pickled state is {len(saved) / 2**20:.0f} MB"
    drawn = generators()
    expected = _play(player, before, _STEPS_AFTER, act)
    set_generators(drawn)
    [again] = load([env], way, saved) if way == GET_STATE else pickle.loads(saved)
    script = iter([chosen for chosen, _ in expected])
    seen = _play(Player(again), before, _STEPS_AFTER, lambda _: next(script))
    if again is not env:
        guard.close(again)
    return "" if same(expected, seen) else f"a copy made by {way} behaves differently"


def _play(player: Player, now: TimeStep, steps: int, act: Act) -> list[tuple[Actions, TimeStep]]:
    """Steps across the ends of episodes: what was done (nothing in place of a reset) and what it led to.

    Without infos, which may hold times and the like.
    """
    played = []
    for _ in range(steps):
        over, actions = now.over, act(now)
        now = player.reset() if over else player.step(actions)
        played.append((actions, replace(now, infos={})))
    return played


def _offers_state(env: Any) -> bool:
    inner = layers(env)[-1]
    return callable(getattr(inner, "get_state", None)) and callable(getattr(inner, "set_state", None))


def _own_state(env: Any) -> dict[str, Any]:
    """What the environment says of itself, with what its wrappers and its generator know besides."""
    *wrappers, inner = restarts.saved_layers(env)
    generator = getattr(inner, "_np_random", None)
    return {
        "state": inner.get_state(),
        "generator": generator.bit_generator.state if generator is not None else None,
        "wrappers": [
            {key: value for key, value in vars(layer).items() if key != "env" and _plain(value)}
            for layer in wrappers
        ],
    }


def _set_own_state(env: Any, saved: dict[str, Any]) -> None:
    env.reset()  # many build their simulator only there
    *wrappers, inner = restarts.saved_layers(env)
    inner.set_state(saved["state"])
    if saved["generator"] is not None:
        inner.np_random.bit_generator.state = saved["generator"]
    for layer, values in zip(wrappers, saved["wrappers"], strict=True):
        vars(layer).update(values)


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple | set):
        return all(_plain(part) for part in value)
    if isinstance(value, dict):
        return all(_plain(key) and _plain(part) for key, part in value.items())
    return value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic)


@contextmanager
def _without_specs(envs: list[Any]) -> Iterator[None]:
    """Gymnasium's spec holds the function that made an environment, with all that it refers to."""
    inner = [env.unwrapped for env in envs if hasattr(env, "unwrapped")]
    specs = [getattr(env, "spec", None) for env in inner]
    wrappers = [layer for env in envs for layer in layers(env) if isinstance(layer, gym.Wrapper)]
    cached = [(layer, cached_spec(layer)) for layer in wrappers]
    try:
        for env in inner:
            env.spec = None
        for layer, _ in cached:
            set_cached_spec(layer, None)
        yield
    finally:
        for env, spec in zip(inner, specs, strict=True):
            env.spec = spec
        for layer, spec in cached:
            set_cached_spec(layer, spec)
