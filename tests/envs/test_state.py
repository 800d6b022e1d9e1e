"""Which environments can be saved in the middle of an episode, and that they go on as they would have."""

from __future__ import annotations

import io
import random
import sys
import threading

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import EzPickle

from rayfish.envs import state
from rayfish.envs.env_kind import agents_and_spaces


class Drift(gym.Env):
    """A walk that depends on its whole past and on its generator."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.normal()), 0
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        self.place += float(self.np_random.normal()) + action
        return self.seen(), self.place, self.steps == 20, False, {}

    def seen(self):
        return np.array([self.place, self.steps], np.float32)


class Locked(Drift):
    """Cannot be pickled."""

    def __init__(self):
        self.lock = threading.Lock()


class Told(Locked):
    """Cannot be pickled, but says and takes its state."""

    def get_state(self):
        return {"place": self.place, "steps": self.steps}

    def set_state(self, told):
        self.place, self.steps = told["place"], told["steps"]


class Forgetful(Told):
    """Says only half of its state."""

    def get_state(self):
        return {"place": self.place, "steps": 0}


class Remade(Drift, EzPickle):
    """Pickles its constructor's arguments alone, as many environments do."""

    def __init__(self):
        EzPickle.__init__(self)


class Global(Drift):
    """Draws from the process's generators."""

    def step(self, action):
        self.place += random.random() + np.random.rand()
        return super().step(action)


class Large(Drift):
    """Holds a data set."""

    def __init__(self):
        self.data = np.zeros(state.MOST_BYTES, np.uint8)


def way(env) -> tuple[str, str]:
    return state.find_way(env, agents_and_spaces(env)[2])


@pytest.mark.parametrize(
    ("kind", "expected", "why"),
    [
        (Drift, "pickle", ""),
        (Global, "pickle", ""),
        (Told, "get_state", ""),
        (Locked, "fresh", "cannot pickle '_thread.lock' object"),
        (Forgetful, "fresh", "cannot pickle '_thread.lock' object"),
        (Remade, "fresh", ""),
        (Large, "fresh", "its pickled state is 64 MB"),
    ],
)
def test_the_way_is_found_by_trying_it(kind, expected, why):
    found, reason = way(kind())
    assert found == expected
    assert why in reason
    assert bool(reason) == (found == "fresh")


@pytest.mark.parametrize(("name", "expected"), [("CartPole-v1", "pickle"), ("Taxi-v3", "pickle")])
def test_registered_environments_keep_their_wrappers_and_their_spec(name, expected):
    env = gym.make(name)
    assert way(env)[0] == expected
    assert env.spec.id == name


@pytest.mark.parametrize("kind", [Drift, Told])
def test_a_loaded_environment_goes_on_as_it_would_have(kind):
    def made():
        return gym.wrappers.TimeLimit(kind(), 12)

    env = made()
    env.reset(seed=3)
    for _ in range(5):
        env.step(1)
    found = "get_state" if kind is Told else "pickle"
    saved = state.dump([env], found)
    expected = [env.step(1) for _ in range(7)]
    fresh = made()
    fresh.reset(seed=99)
    (again,) = state.load([fresh], found, saved)
    for (obs, *rest), (obs2, *rest2) in zip(expected, (again.step(1) for _ in range(7)), strict=True):
        assert np.array_equal(obs, obs2)
        assert rest == rest2
    assert rest[2] is True, "the time limit was lost"


class HalfMade(EzPickle, Drift):
    """Fails to unpickle, and then to be deleted."""

    def __init__(self, needed):
        EzPickle.__init__(self)
        self.window = needed

    def __del__(self):
        self.window.close()


def test_a_copy_that_fails_half_made_prints_no_traceback(capsys, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)  # pytest has its own
    env = HalfMade(io.StringIO())
    way, why = state.find_way(env, agents_and_spaces(env)[2])
    assert way == state.FRESH and "missing 1 required positional argument" in why
    assert capsys.readouterr().err == ""


def test_looking_for_a_way_leaves_the_global_generators_alone():
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    way(Global())
    assert (random.random(), np.random.rand()) == expected
