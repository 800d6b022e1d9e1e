"""Several agents, with a mind each or with one for all."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test

import rayfish
from rayfish.algorithm.adapters import ParallelAdapter
from rayfish.envs.agents import AgentSlots, AgentsVector
from rayfish.envs.env_kind import is_parallel
from rayfish.envs.state import why_not_pickled
from rayfish.worlds.wildfire import WildfireEnv
from rayfish.worlds.wildfire.env import observe
from rayfish.worlds.wildfire.env.agents import WildfireParallel
from tests.envs.test_native_agents import together
from tests.worlds.wildfire.test_env import TINY, WINDY

SHORT = TINY | {"simulation": {"update_rate": 3, "runtime": "60m"}}


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


def test_a_grid_shows_each_agent_itself_as_the_first():
    starts = {"initial_agent_positions": [[1, 2], [3, 4], [1, 2]]}
    env = WildfireParallel(3, simulation=TINY, attributes=["fire_map", "elevation"], **starts)
    seen, _ = env.reset(seed=0)
    for agent, numbers in (("agent_0", (4, 5)), ("agent_1", (5, 4)), ("agent_2", (4, 6))):
        assert env.observation_space(agent).contains(seen[agent])
        fire_map = seen[agent][..., 0]
        assert (fire_map[2, 1], fire_map[4, 3]) == numbers
    assert seen["agent_0"].shape == (*env.episodes.shape, 2)


def test_starts_can_be_given_for_every_agent():
    given = {"agent_initialization_method": "manual", "initial_agent_positions": [[1, 2], [3, 4]]}
    env = WildfireParallel(2, simulation=TINY, **given)
    env.reset(seed=0)
    assert env.episodes.crew.x.tolist() == [[1, 3]] and env.episodes.crew.y.tolist() == [[2, 4]]


@pytest.mark.parametrize(
    "given",
    [
        {"simulation": SHORT, "num_agents": 3},
        {"simulation": WINDY, "num_agents": 2, "max_steps": 25, "endangered": True},
        {"simulation": SHORT, "num_agents": 2, "action_space_cls": "MultiDiscrete", "production": "dozer"},
        {"simulation": SHORT, "num_agents": 1, "scenarios": {"count": 8, "evaluation": 2}},
        {"simulation": SHORT, "num_agents": 2, "attributes": ["fire_map", "w_0"]},
    ],
    ids=["shared landscape", "varied, cut off", "MultiDiscrete", "one agent on stored fires", "grid"],
)
def test_many_stepped_as_one_play_what_they_play_one_by_one(given, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one_by_one = AgentsVector([ParallelAdapter(WildfireParallel(**given)) for _ in range(5)], "shared")
    as_one = AgentSlots(WildfireParallel.vector_of_agents(5, **given), "shared")
    finished = together(one_by_one, as_one, 200)
    assert len(finished.returns) >= 5 and len(finished.env["saved_share"]) == len(finished.returns)


def test_every_slot_knows_which_agent_it_is():
    env = WildfireParallel.vector_of_agents(3, num_agents=4, simulation=TINY)
    where = observe.layout(env.fires.options)["id"]
    first, _ = env.reset(seed=0)
    later = env.step(env.action_space.sample())[0]
    for seen in (first, later):
        np.testing.assert_array_equal(seen[:, where], np.tile(np.eye(4, dtype=np.float32), (3, 1)))


def test_many_stepped_as_one_are_saved_and_go_on_identically():
    env = WildfireParallel.vector_of_agents(3, num_agents=2, simulation=WINDY, max_steps=6)
    assert why_not_pickled(env) == ""


def test_one_environment_of_many_restarts_by_its_mask():
    env = WildfireParallel.vector_of_agents(3, num_agents=2, simulation=TINY)
    first, _ = env.reset(seed=[5, 5, 6, 6, 7, 7])
    alone, _ = WildfireParallel(2, simulation=TINY).reset(seed=6)
    np.testing.assert_array_equal(first[2:4], np.stack(list(alone.values())))
    moved = env.step(np.full(6, 4))[0]
    again, _ = env.reset(seed=[5, 5, 6, 6, 7, 7], options={"reset_mask": np.repeat([False, True, False], 2)})
    np.testing.assert_array_equal(again[2:4], first[2:4])
    np.testing.assert_array_equal(again[[0, 1, 4, 5]], moved[[0, 1, 4, 5]])


def test_agents_can_have_a_policy_each(ray_session):
    words = (
        "environment.env_config.num_agents=2",
        "environment.env_config.scenarios=null",
        "multi_agent.mapping={agent_0: first, agent_1: second}",
        "rollouts.num_envs_per_env_runner=1",
        "training.train_batch_size_per_learner=128",
        "training.minibatch_size=64",
    )
    with rayfish.Trainer("wildfire_marl", *words) as trainer:
        metrics = trainer.step()
    assert {name.split("/")[1] for name in metrics if name.startswith("learn/")} >= {"first", "second"}
    assert metrics["run/env_steps"] == 128
