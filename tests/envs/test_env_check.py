"""`rayfish env check`: a sound environment passes, every classic mistake is named with its remedy."""

from __future__ import annotations

import random

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

from rayfish.envs import space_check
from rayfish.envs.check import check
from rayfish.envs.wrappers import limit_steps


class Sound(gym.Env):
    """An environment without a fault; the tests below break one thing each."""

    observation_space: gym.Space = spaces.Box(-1, 1, (3,), np.float32)
    action_space: gym.Space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.look(), {}

    def look(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def step(self, action):
        self.t += 1
        return self.look(), 1.0, self.t >= 10, False, {}


def variant(**members):
    return type("Variant", (Sound,), members)()


def found(env, level="error"):
    return [finding for finding in check(env) if finding.level == level]


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch):
    monkeypatch.setattr("rayfish.envs.check._SPEED_SECONDS", 0.02)
    monkeypatch.setattr("rayfish.envs.check._LONG", 300)
    monkeypatch.setattr("rayfish.envs.check._STEPS_LOOKED_AT", 50)


def test_a_sound_environment_passes_every_check():
    findings = check(Sound())
    assert {finding.level for finding in findings} == {"ok"}
    assert {"spaces", "reset", "step", "observations", "reward", "seed", "speed"} <= {
        f.topic for f in findings
    }


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Taxi-v3", "Blackjack-v1"])
def test_gymnasiums_own_environments_pass(name):
    assert not found(gym.make(name)) and not found(gym.make(name), "warning")


def four_values(self, action):
    return self.look(), 1.0, False, {}


def observation_only(self, *, seed=None, options=None):
    return np.zeros(3, np.float32)


CONTRACT = [
    ({"step": four_values}, "step", "four values", "terminated"),
    ({"step": lambda self, a: (self.look(), 1.0)}, "step", "2 values instead of five", "return observation"),
    ({"step": lambda self, a: None}, "step", "returns nothing", "return observation"),
    (
        {"step": lambda self, a: (self.look(), 1.0, False, False, None)},
        "step",
        "NoneType, not a dict",
        "info",
    ),
    ({"reset": lambda self: (np.zeros(3), {})}, "reset", "takes no seed and no options", "seed=None"),
    (
        {"reset": observation_only},
        "reset",
        "one ndarray instead of (observation, info)",
        "return observation, info",
    ),
    (
        {"observation_space": None},
        "spaces",
        "observation_space of Variant is not set",
        "self.observation_space",
    ),
    ({"action_space": (0, 1)}, "spaces", "action_space of Variant is a builtins.tuple", "gymnasium.spaces"),
]


@pytest.mark.parametrize(("members", "topic", "what", "hint"), CONTRACT)
def test_a_broken_contract_is_explained(members, topic, what, hint):
    (finding,) = found(variant(**members))
    assert finding.topic == topic
    assert what in finding.what
    assert hint in finding.hint


VALUES = [
    (lambda self: np.array([0, 5, 9], np.float32), "observation[1] is 5, outside [-1, 1], and 1 more"),
    (lambda self: np.array([0, np.nan, 0], np.float32), "observation[1] is NaN"),
    (lambda self: np.zeros(3), "dtype float64, its space float32"),
    (lambda self: np.zeros((3, 1), np.float32), "shape (3, 1), its space (3,)"),
    (lambda self: [0.0, 0.0, 0.0], "is a list, its space wants a NumPy array"),
    (lambda self: np.array(["a", "b", "c"]), "has dtype <U1"),
]


@pytest.mark.parametrize(("look", "what"), VALUES)
def test_an_observation_outside_its_space_is_reported_with_place_and_value(look, what):
    (finding,) = found(variant(look=look))
    assert (finding.topic, finding.hint != "") == ("observations", True)
    assert what in finding.what


@pytest.mark.parametrize(
    ("space", "value", "what"),
    [
        (spaces.Discrete(3), 3, "x is 3, outside 0..2"),
        (spaces.Discrete(3), 1.0, "x is 1.0 (float)"),
        (spaces.MultiDiscrete([2, 3]), np.array([0, 3]), "x[1] is 3, outside [0, 2]"),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8), "x[1] is 2, outside [0, 1]"),
        (spaces.Dict(a=spaces.Discrete(2)), {"b": 1}, "x lacks 'a'"),
        (spaces.Dict(a=spaces.Discrete(2)), {"a": 1, "b": 1}, "x has 'b', not in its space"),
        (spaces.Dict(a=spaces.Discrete(2)), {"a": 5}, "x['a'] is 5"),
        (spaces.Dict(a=spaces.Discrete(2)), [1], "x is a list, its space is a Dict"),
        (spaces.Tuple([spaces.Discrete(2)]), (0, 0), "x has 2 parts, its space 1"),
        (
            spaces.Box(0, 1, (2, 2)),
            np.full((2, 2), 2, np.float32),
            "x[0, 0] is 2, outside [0, 1], and 3 more",
        ),
    ],
)
def test_the_reason_a_value_is_not_in_its_space(space, value, what):
    assert not space.contains(value) or value == {"a": 1, "b": 1}
    texts = [text for text, _ in space_check.faults(value, space, "x")]
    assert any(what in text for text in texts), texts


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2, 3)),
        spaces.Box(0, 255, (4, 4, 3), np.uint8),
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([2, 5]),
        spaces.MultiBinary(3),
        spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, ())]),
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.MultiBinary(2)])),
    ],
)
def test_what_a_space_samples_has_no_faults(space):
    for _ in range(20):
        assert space_check.faults(space.sample(), space, "x") == []


@pytest.mark.parametrize("reward", [np.ones(1), "3", None, True, float("nan")])
def test_a_reward_that_is_no_finite_number_is_an_error(reward):
    env = variant(step=lambda self, action: (self.look(), reward, True, False, {}))
    assert [finding.topic for finding in found(env)] == ["reward"]


def test_ends_that_are_not_bool_are_errors():
    env = variant(step=lambda self, action: (self.look(), 1.0, 1, False, {}))
    (finding,) = found(env)
    assert "terminated is 1 (int)" in finding.what


def test_an_exception_in_step_names_the_line():
    def step(self, action):
        return self.missing

    (finding,) = found(variant(step=step))
    assert "test_env_check.py:" in finding.what and "AttributeError" in finding.what


def test_chance_that_ignores_the_seed_is_reported_with_its_source():
    (globally,) = found(variant(look=lambda self: np.full(3, random.random(), np.float32)), "warning")
    assert "global `random`" in globally.what
    generator = np.random.default_rng()
    (own,) = found(variant(look=lambda self: generator.uniform(-1, 1, 3).astype(np.float32)), "warning")
    assert "generator that reset() does not seed" in own.what
    assert "self.np_random" in own.hint


def test_looking_for_chance_leaves_the_global_generators_alone():
    random.seed(3)
    expected = random.Random(3).getstate()
    check(variant(look=lambda self: np.full(3, np.random.random(), np.float32)))
    assert random.getstate() == expected


def test_an_endless_environment_gets_the_advice_to_set_a_horizon():
    env = variant(step=lambda self, action: (self.look(), 1.0, False, False, {}))
    (finding,) = found(env, "warning")
    assert "rollouts.horizon" in finding.hint
    assert not found(limit_steps(env, 100), "warning")


def masked(mask, n=2):
    members = {
        "observation_space": spaces.Dict(
            observations=Sound.observation_space, action_mask=spaces.Box(0, 1, np.shape(mask), np.int8)
        ),
        "action_space": spaces.Discrete(n),
        "look": lambda self: {"observations": Sound.look(self), "action_mask": np.array(mask, np.int8)},
    }
    return variant(**members)


@pytest.mark.parametrize(
    ("mask", "what"),
    [([0, 0], "forbids every action"), ([1, 1, 1], "shape (3,), the action space needs (2,)")],
)
def test_a_wrong_action_mask_is_an_error(mask, what):
    assert any(what in finding.what for finding in found(masked(mask)))


def test_forbidden_actions_are_never_tried():
    env = masked([0, 1, 0], n=3)
    tried = []
    inner = Sound.step
    type(env).step = lambda self, action: (tried.append(int(action)), inner(self, action))[1]
    assert not found(env)
    assert set(tried) == {1}


class Team(ParallelEnv):
    """Two agents for ten steps."""

    metadata = {"name": "team"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def observation_space(self, agent):
        return spaces.Discrete(3)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, ["a", "b"]
        return {"a": 0, "b": 1}, {"a": {}, "b": {}}

    def step(self, actions):
        self.t += 1
        over = self.t >= 10
        if over:
            self.agents = []
        flags = {"a": over, "b": over}
        return {"a": 0, "b": 1}, {"a": 1.0, "b": 0.0}, flags, {"a": False, "b": False}, {"a": {}, "b": {}}


def test_a_sound_parallel_environment_passes():
    assert {finding.level for finding in check(Team())} == {"ok"}


def test_agents_that_stay_after_the_end_are_reported():
    class Stays(Team):
        def step(self, actions):
            result = super().step(actions)
            self.agents = ["a", "b"]
            return result

    (finding,) = found(Stays())
    assert "env.agents is still ['a', 'b']" in finding.what


def test_an_unknown_agent_is_reported():
    class Stranger(Team):
        def reset(self, seed=None, options=None):
            super().reset()
            return {"a": 0, "c": 1}, {}

    (finding,) = found(Stranger())
    assert "'c', which is not in possible_agents ['a', 'b']" in finding.what


def test_an_observation_of_one_agent_outside_its_space_names_the_agent():
    class Wrong(Team):
        def step(self, actions):
            _, *rest = super().step(actions)
            return {"a": 0, "b": 7}, *rest

    (finding,) = found(Wrong())
    assert "observation of 'b' is 7, outside 0..2" in finding.what
