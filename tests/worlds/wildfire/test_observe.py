"""What agents see: the parts of a local observation, and SimHarness's channels."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from rayfish.worlds.wildfire import WildfireEnv, WildfireVectorEnv
from rayfish.worlds.wildfire.env import observe
from rayfish.worlds.wildfire.env.options import BOUNDS, Options
from tests.worlds.wildfire.test_act import DOWN, FLAT, LEFT, RIGHT, env_at


def parts(env, obs, agent=0):
    rows = obs.reshape(env.options.num_agents, -1)
    return {name: rows[agent, part] for name, part in observe.layout(env.options).items()}


def test_the_layout_covers_the_observation_without_a_gap():
    for options in (Options(), Options(num_agents=4, crop=5, coarse=3)):
        slices = list(observe.layout(options).values())
        assert slices[0].start == 0 and slices[-1].stop == observe.size_of(options)
        assert all(a.stop == b.start for a, b in pairwise(slices))
    assert observe.layout(Options())["crop"].stop == 4 * 11 * 11


def test_the_crop_shows_fire_lines_and_the_edge_around_the_agent():
    env = env_at((7, 4), crop=5)
    obs, *_ = env.step(5 + LEFT)  # a line at (7, 4), the agent goes to (6, 4); the fire is at (8, 5)
    burning, burned, line, barrier = parts(env, obs)["crop"].reshape(4, 5, 5)
    assert np.argwhere(burning).tolist() == [[3, 4]]
    assert np.argwhere(line).tolist() == [[2, 3]]
    assert burned.sum() == 0
    assert barrier.tolist() == [[0] * 5] * 4 + [[1] * 5], "row 6 is beyond the map"


def test_the_crop_shows_ground_that_does_not_burn():
    lake = FLAT | {"terrain": FLAT["terrain"] | {"water": [{"box": [2, 0, 2, 5]}]}}
    env = WildfireEnv(
        simulation=lake, agent_initialization_method="manual", initial_agent_positions=[[3, 3]], crop=3
    )
    barrier = parts(env, env.reset(seed=0)[0])["crop"].reshape(4, 3, 3)[3]
    assert barrier.tolist() == [[1, 0, 0]] * 3


def test_the_coarse_map_has_shares_of_blocks_and_the_agents_own():
    env = env_at((3, 3), coarse=3)
    obs, *_ = env.step(5 + RIGHT)
    burning, burned, line, agent = parts(env, obs)["coarse"].reshape(4, 3, 3)
    assert burning[2, 2] == pytest.approx(1 / 6) and burning.sum() == burning[2, 2]
    assert line[1, 1] == pytest.approx(1 / 6) and line.sum() == line[1, 1]
    assert burned.sum() == 0
    assert np.argwhere(agent).tolist() == [[1, 1]]


def test_figures_point_to_the_fire_and_tell_the_wind_and_the_phase():
    env = env_at((4, 2))
    obs, _ = env.reset(seed=0)
    seen = {name: float(part[0]) for name, part in parts(env, obs).items() if part.size == 1}
    assert (seen["x"], seen["y"]) == pytest.approx((0.0, -0.2))
    assert (seen["nearest_dx"], seen["nearest_dy"]) == pytest.approx((4 / 9, 3 / 6))
    assert (seen["nearest_towards_x"], seen["nearest_towards_y"]) == pytest.approx((0.8, 0.6))
    assert seen["nearest_distance"] == pytest.approx(5 / np.hypot(9, 6))
    assert seen["head_dx"] == pytest.approx(4 / 9)
    assert (seen["wind_x"], seen["wind_y"]) == pytest.approx((2 / 30, 0), abs=1e-6)
    assert seen["burning"] == pytest.approx(1 / 54) and seen["damaged"] == pytest.approx(1 / 54)
    assert seen["alive"] == 1.0 and seen["phase"] == 0.0
    phases = [float(parts(env, env.step(0)[0])["phase"][0]) for _ in range(4)]
    assert phases == [0.25, 0.5, 0.75, 0.0]


def test_the_head_is_the_burning_cell_farthest_downwind_with_ground_to_burn():
    wide = FLAT | {"fire": {"fire_initial_position": {"type": "static", "static": {"position": [2, 2]}}}}
    env = WildfireEnv(simulation=wide)
    env.reset(seed=0)
    for _ in range(4 * 20):
        env.step(0)
        codes, head = env.episodes.sim.fire_map[0], int(env.episodes.seen.head[0])
        y, x = divmod(head, 9)
        burning = np.argwhere(codes == 1)
        assert codes[y, x] == 1
        spreading = [
            (row, column)
            for row, column in burning
            if any(
                0 <= row + dy < 6 and 0 <= column + dx < 9 and codes[row + dy, column + dx] == 0
                for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0))
            )
        ]
        assert x == max(column for _, column in spreading or burning.tolist())


def test_every_agent_knows_who_it_is_and_where_the_others_are():
    env = env_at((1, 1), (3, 1), (1, 4))
    obs, _ = env.reset(seed=0)
    for agent in range(3):
        assert parts(env, obs, agent)["id"].tolist() == np.eye(3)[agent].tolist()
    assert parts(env, obs, 1)["others"].tolist() == pytest.approx([-2 / 9, 0, -2 / 9, 3 / 6])


def test_surveys_kept_up_by_lines_are_those_of_the_map():
    env = WildfireVectorEnv(6, simulation=FLAT, num_agents=2, agent_speed=5)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(60):
        env.step(rng.integers(10, size=(6, 2)))
        for n, codes in enumerate(env.episodes.fire_map):
            assert np.array_equal(env.episodes.seen.counts[n], np.bincount(codes, minlength=6))
            assert env.episodes.seen.left[n] == (codes == 0).sum()


def test_observations_stay_in_their_space():
    for options in ({}, {"num_agents": 2}, {"observation": "grid", "attributes": ["fire_map", *BOUNDS]}):
        env = WildfireVectorEnv(4, simulation="small", **options)
        obs, _ = env.reset(seed=0)
        rng = np.random.default_rng(0)
        for _ in range(60):
            assert env.observation_space.contains(obs)
            obs = env.step(rng.integers(10, size=env.action_space.shape))[0]


def test_the_grid_shows_agents_by_their_numbers_from_the_reset_on():
    env = env_at((1, 1), (3, 4), observation="grid", attributes=["fire_map"], normalized_attributes=[])
    obs, _ = env.reset(seed=0)
    assert obs.shape == (6, 9, 1)
    assert obs[1, 1, 0] == 4 and obs[4, 3, 0] == 5, "above the code of a fireline"
    assert obs[5, 8, 0] == 1 and (obs == 0).sum() == 51
    obs, *_ = env.step(np.array([5 + DOWN, 0]))
    assert obs[1, 1, 0] == 3 and obs[2, 1, 0] == 4


def test_normalised_channels_are_so_at_reset_and_after_it_in_the_right_units():
    attributes = ["fire_map", "wind_speed", "wind_direction", "elevation", "w_0", "bench_fire_map"]
    options = {"observation": "grid", "attributes": attributes}
    env = env_at((1, 1), **options, normalized_attributes=attributes)
    first, _ = env.reset(seed=0)
    later = env.step(0)[0]
    for obs in (first, later):
        assert obs[1, 1, 0] == 1.0 and obs[5, 8, 0] == pytest.approx(1 / 4)
        assert obs[0, 0, 1:5].tolist() == pytest.approx([2 / 250, 90 / 360, 282 / 11282, 0.0459])
        assert obs[5, 8, 5] == 0.5
    raw = env_at((1, 1), **options, normalized_attributes=[]).reset(seed=0)[0]
    assert raw[0, 0, 1:5].tolist() == pytest.approx([2, 90, 0, 0.0459])


def test_the_benchmark_channels_show_the_fire_without_agents():
    attributes = ["fire_map", "bench_fire_map", "bench_fire_map_final"]
    env = env_at((0, 0), observation="grid", attributes=attributes, agent_speed=1)
    obs, _ = env.reset(seed=0)
    assert (obs[..., 2] == 2).all()
    for _ in range(30):
        obs = env.step(0)[0]
        same = obs[..., 0] == obs[..., 1]
        same[0, 0] = True  # the agent stands there
        assert same.all()
