"""The environments: seeds, ends, infos, saving; as Gymnasium wants them."""

from __future__ import annotations

import pickle
import re
from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv

from rayfish.envs.state import why_not_pickled
from rayfish.envs.vector import GymVector
from rayfish.errors import RayfishError
from rayfish.worlds.wildfire import WILDFIRE, ScenarioSet, WildfireEnv, WildfireVectorEnv
from rayfish.worlds.wildfire.env.options import SMALL

TINY = deepcopy(SMALL) | {
    "area": {"screen_size": [12, 16], "pixel_scale": 50},
    "simulation": {"update_rate": 3, "runtime": "24h"},
}
WINDY = TINY | {"randomize": ["ignition", "wind", "fuel"]}


def played(num_envs, steps, seeds, options):
    """Observations, rewards and ends of environments with these seeds and actions that depend on the seed."""
    env = WildfireVectorEnv(num_envs, **options)
    rngs = [np.random.default_rng(1000 + seed) for seed in seeds]
    seen = [env.reset(seed=list(seeds))[0]]
    rewards, ends = [], []
    for _ in range(steps):
        actions = np.array([rng.integers(10) for rng in rngs])
        obs, reward, terminated, truncated, _ = env.step(actions)
        seen.append(obs)
        rewards.append(reward)
        ends.append(terminated | truncated)
    return np.stack(seen), np.stack(rewards), np.stack(ends)


@pytest.mark.parametrize("landscape", [TINY, WINDY], ids=["shared", "varied"])
def test_an_environment_depends_on_its_own_seed_alone(landscape):
    options = {"simulation": landscape, "max_steps": 60}
    many = played(5, 90, [3, 4, 5, 6, 7], options)
    alone = played(1, 90, [6], options)
    assert many[2].any(axis=0).all(), "every environment began a second episode"
    for together, single in zip(many, alone, strict=True):
        assert np.array_equal(together[:, 3:4], single)


def test_the_same_seed_gives_the_same_episode_and_another_seed_another():
    options = {"simulation": TINY}
    first, again, other = (played(2, 30, seeds, options) for seeds in ([1, 2], [1, 2], [8, 9]))
    assert np.array_equal(first[0], again[0]) and np.array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])


def test_a_batch_of_one_is_the_single_environment():
    vector, single = WildfireVectorEnv(1, simulation=TINY), WildfireEnv(simulation=TINY)
    seen, _ = vector.reset(seed=11)
    assert np.array_equal(seen[0], single.reset(seed=11)[0])
    rng = np.random.default_rng(0)
    for _ in range(40):
        action = int(rng.integers(10))
        batch, one = vector.step(np.array([action])), single.step(action)
        assert (batch[1][0], batch[2][0], batch[3][0]) == one[1:4]
        last = batch[4]["final_obs"][0] if one[2] or one[3] else batch[0][0]
        assert np.array_equal(last, one[0])
        if one[2] or one[3]:
            break


def test_observations_are_new_arrays_in_every_step():
    for observation in ("local", "grid"):
        env = WildfireVectorEnv(2, simulation=TINY, observation=observation)
        first, _ = env.reset(seed=0)
        kept = first.copy()
        second = env.step(np.array([6, 7]))[0]
        third = env.step(np.array([8, 9]))[0]
        assert not np.shares_memory(first, second) and not np.shares_memory(second, third)
        assert np.array_equal(first, kept)


def test_last_infos_are_laid_out_as_gymnasium_does_it():
    options = {"simulation": TINY, "max_steps": 7}
    ours = WildfireVectorEnv(2, **options)
    theirs = SyncVectorEnv([lambda: WildfireEnv(**options)] * 2, autoreset_mode="SameStep")
    ours.reset(seed=5), theirs.reset(seed=5)
    for _ in range(7):
        (obs, *_, infos), (_, *_, expected) = ours.step(np.array([6, 0])), theirs.step(np.array([6, 0]))
    assert infos.keys() == expected.keys()
    assert np.array_equal(infos["_final_info"], expected["_final_info"])
    for mine, other in zip(infos["final_obs"], expected["final_obs"], strict=True):
        assert np.array_equal(mine, other)
    mine, other = infos["final_info"]["metrics"], expected["final_info"]["metrics"]
    assert mine.keys() == other.keys()
    for name in mine:
        assert np.array_equal(mine[name], other[name]), name
    assert not np.array_equal(infos["final_obs"][0], obs[0]), "a new episode has begun"


def test_the_sampler_reads_metrics_and_last_observations():
    vector = GymVector(WildfireVectorEnv(3, simulation=TINY, max_steps=5))
    vector.reset(seed=2)
    for _ in range(5):
        moment = vector.step(np.zeros(3, np.int64))
    assert moment.ended.tolist() == [0, 1, 2]
    assert moment.final_obs.shape == moment.obs.shape
    finished = vector.take_finished()
    assert finished.lengths == [5, 5, 5]
    assert {
        "burned",
        "burned_share",
        "saved_share",
        "saved_area",
        "lines",
        "endangered_steps",
    } <= finished.env.keys()
    assert {"contained", "fire_updates"} <= finished.env.keys()
    assert finished.env["fire_updates"] == [2.0, 2.0, 2.0]


def test_no_intervention_saves_nothing_and_the_fire_ends_by_itself():
    env = WildfireEnv(simulation=TINY)
    env.reset(seed=4)
    total, over = 0.0, False
    while not over:
        _, reward, terminated, truncated, info = env.step(0)
        total, over = total + reward, terminated or truncated
    assert terminated and not truncated
    assert total == 0.0 and info["metrics"]["saved_share"] == 0.0
    assert info["metrics"]["burned_share"] == 1.0 and info["metrics"]["contained"] == 0.0


def test_an_episode_ends_with_the_runtime_and_is_cut_off_by_max_steps():
    short = deepcopy(TINY) | {"simulation": {"update_rate": 3, "runtime": "9m"}}
    cases = (
        ({"simulation": short}, 13, (True, False)),
        ({"simulation": TINY, "max_steps": 6}, 6, (False, True)),
    )
    for options, steps, last in cases:
        env = WildfireEnv(**options)
        env.reset(seed=0)
        ends = [env.step(0)[2:4] for _ in range(steps)]
        assert ends == [(False, False)] * (steps - 1) + [last]


def test_a_limit_from_outside_is_kept():
    env = gym.make_vec(WILDFIRE, 2, "vector_entry_point", simulation=TINY, max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(np.zeros(2, int))[3].all() for _ in range(3)] == [False, False, True]


def test_the_fire_goes_on_at_the_first_step_and_then_at_every_agent_speed():
    env = WildfireEnv(simulation=TINY, agent_speed=3)
    env.reset(seed=0)
    updates = []
    for _ in range(7):
        env.step(0)
        updates.append(int(env.episodes.sim.updates[0]))
    assert updates == [1, 1, 1, 2, 2, 2, 3]


def test_fires_differ_between_episodes_unless_deterministic():
    for deterministic in (False, True):
        env = WildfireEnv(simulation=TINY, deterministic=deterministic)
        starts, agents = set(), set()
        env.reset(seed=0)
        for _ in range(4):
            starts.add(env.episodes.starts[0])
            agents.add((int(env.episodes.crew.x[0, 0]), int(env.episodes.crew.y[0, 0])))
            env.reset()
        assert (len(starts) == 1) == deterministic
        assert len(agents) > 1, "agents start elsewhere in any case"


@pytest.mark.parametrize(
    "options", [{}, {"observation": "grid"}, {"num_agents": 3}, {"action_space_cls": "MultiDiscrete"}]
)
def test_gymnasium_has_nothing_to_say_against_it(options):
    check_env(gym.make(WILDFIRE, simulation=TINY, **options).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("landscape", [TINY, WINDY], ids=["shared", "varied"])
@pytest.mark.parametrize("observation", ["local", "grid"])
def test_a_saved_vector_goes_on_identically(landscape, observation):
    attributes = ["fire_map", "bench_fire_map", "bench_fire_map_final", "wind_direction"]
    shown = {"attributes": attributes} if observation == "grid" else {"observation": "local"}
    env = WildfireVectorEnv(3, simulation=landscape, max_steps=20, **shown)
    env.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(9):
        env.step(rng.integers(10, size=3))
    copy = pickle.loads(pickle.dumps(env))
    for _ in range(30):
        actions = rng.integers(10, size=3)
        mine, other = env.step(actions), copy.step(actions)
        assert all(np.array_equal(a, b) for a, b in zip(mine[:4], other[:4], strict=True))
    assert why_not_pickled(env) == ""


def test_stored_fires_are_played_in_turn_and_their_curves_are_not_simulated_again():
    fires = ScenarioSet.generate(TINY, 5, seed=3)
    env = WildfireVectorEnv(2, simulation=TINY, scenarios=fires, scenario_order="in_turn", max_steps=2)
    env.reset(seed=0)
    starts = []
    for _ in range(6):
        starts += [start.cells for start in env.episodes.starts]
        env.step(np.zeros(2, int)), env.step(np.zeros(2, int))
    order = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert starts == [fires[index].ignitions for index in order]
    assert env.episodes.benchmarks._simulator is None
    one = env.episodes.benchmarks.of([env.episodes.starts[0]], [None])[0]
    fresh = WildfireVectorEnv(1, simulation=TINY).episodes.benchmarks.of([env.episodes.starts[0]], [None])[0]
    assert np.array_equal(one.curve, fresh.curve)


def test_fires_of_other_settings_are_refused():
    fires = ScenarioSet.generate(TINY, 2)
    with pytest.raises(RayfishError, match="made for other settings"):
        WildfireVectorEnv(1, simulation="small", scenarios=fires)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"movments": ["up"]}, "did you mean movements"),
        ({"movements": ["up", "dwon"]}, "did you mean down"),
        ({"interactions": ["firelin"]}, "did you mean fireline"),
        ({"reward": "area_save"}, "did you mean area_saved"),
        ({"crop": 10}, "crop=11"),
        ({"agent_speed": 0}, "whole number of at least 1"),
        ({"production": "dozers"}, "did you mean dozer"),
        ({"agent_initialization_method": "manual"}, r"one \[x, y\] for each agent"),
        ({"num_agents": 2, "initial_agent_positions": [0, 64]}, r"one \[x, y\] for each agent"),
        ({"initial_agent_positions": [[1.7, 2]]}, r"one \[x, y\] for each agent"),
        ({"endangered": "false"}, "true or false"),
        ({"simulation": "smal"}, "did you mean small"),
        ({"scenarios": {"count": "many"}}, "whole number"),
        ({"benchmark": False}, "benchmark=true"),
        (
            {"observation": "grid", "reward": "simple", "benchmark": False, "attributes": ["bench_fire_map"]},
            "bench",
        ),
    ],
)
def test_mistakes_in_options_are_said_with_the_next_step(options, message):
    with pytest.raises(RayfishError) as error:
        WildfireVectorEnv(1, **({"simulation": TINY} | options))
    assert re.search(message, str(error.value))


def test_an_agent_outside_the_map_is_refused():
    with pytest.raises(RayfishError, match="outside the map"):
        WildfireEnv(simulation=TINY, agent_initialization_method="manual", initial_agent_positions=[[16, 0]])


def test_it_can_be_watched():
    env = WildfireEnv(simulation=TINY, render_mode="rgb_array", num_agents=2)
    env.reset(seed=0)
    first = env.render()
    for _ in range(9):
        env.step(np.array([6, 8]))
    later = env.render()
    assert first.dtype == np.uint8 and first.shape == later.shape and not np.array_equal(first, later)
    vector = WildfireVectorEnv(2, simulation=TINY, render_mode="rgb_array")
    vector.reset(seed=0)
    assert len(vector.render()) == 2


SPOTTING = deepcopy(TINY)
SPOTTING["fire"]["spotting"] = {"probability": 0.2}
SERIES = TINY | {"wind": {"function": "series", "series": [[0, 3, 70], [30, 6, 180], [60, 2, 270]]}}


@pytest.mark.parametrize(
    "options",
    [{"simulation": SPOTTING}, {"simulation": SERIES}, {"simulation": TINY, "physics": "simfire"}],
    ids=["embers", "changing wind", "simfire"],
)
def test_embers_changing_wind_and_simfires_physics_depend_on_the_seed_alone(options):
    options = options | {"max_steps": 40}
    many, alone = played(3, 50, [3, 4, 5], options), played(1, 50, [5], options)
    for together, single in zip(many, alone, strict=True):
        assert np.array_equal(together[:, 2:3], single)


def test_the_wind_that_is_seen_changes_with_the_series():
    env = WildfireEnv(simulation=SERIES, agent_speed=1)
    env.reset(seed=0)
    seen = [env.episodes.seen.wind[0].copy()]
    for _ in range(12):
        env.step(0)
        seen.append(env.episodes.seen.wind[0].copy())
    assert seen[1].tolist() == seen[9].tolist() and seen[1][0] > 0
    assert seen[11] == pytest.approx([0, 6 * 88], abs=1e-6)


def test_a_wind_that_changed_is_the_first_again_in_the_next_episode():
    env = WildfireEnv(simulation=SERIES | {"randomize": ["ignition", "fuel"]}, agent_speed=1)
    first, _ = env.reset(seed=0)
    for _ in range(15):
        env.step(0)
    again, _ = env.reset(seed=0)
    assert np.array_equal(first, again)


def test_a_grid_shows_the_wind_of_now():
    env = WildfireEnv(
        simulation=SERIES, agent_speed=1, observation="grid", attributes=["wind_speed", "wind_direction"],
        normalized_attributes=[],
    )  # fmt: skip
    obs, _ = env.reset(seed=0)
    assert obs[0, 0].tolist() == [3, 70]
    for _ in range(11):
        obs, *_ = env.step(0)
    assert obs[5, 5].tolist() == [6, 180]
    assert env.reset(seed=0)[0][0, 0].tolist() == [3, 70]


def test_an_episode_that_is_cut_off_is_compared_with_the_benchmark_at_that_time():
    env = WildfireEnv(simulation=TINY, max_steps=30)
    env.reset(seed=1)
    total, over = 0.0, False
    rng = np.random.default_rng(0)
    while not over:
        _, reward, _, over, info = env.step(rng.integers(10))
        total += reward
    assert info["metrics"]["saved_share"] == pytest.approx(total)
    assert info["metrics"]["lines"] > 0


def test_a_fire_of_a_set_with_embers_is_the_one_that_was_filtered():
    fires = ScenarioSet.generate(SPOTTING, 6, where="percent_burned > 10")
    env = WildfireVectorEnv(6, simulation=SPOTTING, scenarios=fires, scenario_order="in_turn")
    env.reset(seed=0)
    assert env.episodes._bench_at(env.episodes.bench_length).tolist() == [one.burned for one in fires]
    assert len({one.embers for one in fires}) == 6


@pytest.mark.parametrize("attributes", [["bench_fire_map_final"], ["bench_fire_map_final", "bench_fire_map"]])
def test_the_last_map_of_the_benchmark_shows_what_still_burns_at_the_end(attributes):
    short = TINY | {"simulation": {"update_rate": 3, "runtime": "30m"}}
    env = WildfireEnv(simulation=short, observation="grid", attributes=attributes, normalized_attributes=[])
    obs, _ = env.reset(seed=2)
    assert set(np.unique(obs[..., 0])) == {0, 1, 2}


def test_deterministic_means_one_fire_of_a_set_too():
    fires = ScenarioSet.generate(TINY, 6)
    env = WildfireVectorEnv(4, simulation=TINY, scenarios=fires, deterministic=True)
    env.reset(seed=5)
    assert {start.cells for start in env.episodes.starts} == {fires[0].ignitions}


def test_an_ignition_that_is_not_drawn_stays_where_it_is():
    env = WildfireVectorEnv(4, simulation=TINY | {"randomize": ["wind"]})
    env.reset(seed=5)
    assert len({start.cells for start in env.episodes.starts}) == 1


def test_observations_are_within_their_space():
    env = WildfireEnv(simulation="small", coarse=6)
    obs, _ = env.reset(seed=0)
    over = False
    while not over:
        assert env.observation_space.contains(obs)
        obs, _, over, _, _ = env.step(0)


def test_agents_stand_above_all_codes_also_where_they_cannot_build():
    env = WildfireEnv(simulation=TINY, observation="grid", interactions=["none"])
    obs, _ = env.reset(seed=0)
    assert env.options.first_agent_id == 3
    for _ in range(30):
        obs, *_ = env.step(0)
        assert env.observation_space.contains(obs)


def test_simharness_words_are_understood():
    env = WildfireEnv(
        simulation=TINY, action_space_cls=gym.spaces.MultiDiscrete, reward="AreaSavedPropRewardV2",
        initial_agent_positions=[[3, 4]],
    )  # fmt: skip
    env.reset(seed=0)
    assert env.options.reward == "area_saved_v2" and env.options.agent_initialization_method == "manual"
    assert isinstance(env.action_space, gym.spaces.MultiDiscrete)
    assert (env.episodes.crew.x[0, 0], env.episodes.crew.y[0, 0]) == (3, 4)


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(RayfishError, match="before the first reset"):
        WildfireVectorEnv(2, simulation=TINY).step([0, 0])


@pytest.mark.parametrize("given", [{"attributes": ["fire_map"]}, {"normalized_attributes": []}])
def test_channels_that_are_named_are_seen(given):
    """Attributes were ignored without a word while the observation was the default, local."""
    assert len(WildfireEnv(simulation=TINY, **given).observation_space.shape) == 3
    with pytest.raises(RayfishError, match="observation is local"):
        WildfireEnv(simulation=TINY, observation="local", **given)
