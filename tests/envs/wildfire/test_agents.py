"""Several agents, with a mind each or with one for all."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test

from rayfish.envs.kinds import is_parallel
from rayfish.envs.wildfire import WildfireEnv
from rayfish.envs.wildfire.agents import WildfireParallel
from rayfish.errors import RayfishError
from tests.envs.wildfire.test_env import TINY


def test_pettingzoo_has_nothing_to_say_against_it():
    env = WildfireParallel(3, simulation=TINY)
    assert is_parallel(env)
    parallel_api_test(env, num_cycles=400)


def test_minds_of_their_own_play_the_same_game_as_one_mind():
    many, one = WildfireParallel(3, simulation=TINY), WildfireEnv(num_agents=3, simulation=TINY)
    seen, _ = many.reset(seed=7)
    whole, _ = one.reset(seed=7)
    rng = np.random.default_rng(0)
    for _ in range(300):
        assert np.array_equal(np.concatenate([seen[agent] for agent in many.possible_agents]), whole)
        chosen = rng.integers(10, size=3)
        seen, rewards, ended, cut, infos = many.step(dict(zip(many.possible_agents, chosen, strict=True)))
        whole, reward, terminated, truncated, info = one.step(chosen)
        assert set(rewards.values()) == {reward}
        assert set(ended.values()) == {terminated} and set(cut.values()) == {truncated}
        if terminated or truncated:
            break
    assert terminated and many.agents == []
    assert infos["agent_0"]["metrics"] == info["metrics"]


def test_a_saved_game_goes_on_identically():
    env = WildfireParallel(2, simulation=TINY)
    env.reset(seed=0)
    actions = {"agent_0": 7, "agent_1": 3}
    env.step(actions)
    copy = pickle.loads(pickle.dumps(env))
    for _ in range(20):
        mine, other = env.step(actions), copy.step(actions)
        assert mine[1:4] == other[1:4]
        assert all(np.array_equal(mine[0][agent], other[0][agent]) for agent in mine[0])


def test_a_grid_is_no_observation_of_one_agent():
    with pytest.raises(RayfishError, match="the same for all agents"):
        WildfireParallel(2, simulation=TINY, observation="grid")
