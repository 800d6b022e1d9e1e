"""What agents do: decoding, lines before movements, the map's edge, the time that lines take."""

from __future__ import annotations

import numpy as np
import pytest

from rayfish.worlds.wildfire import WildfireEnv
from rayfish.worlds.wildfire.env import act
from rayfish.worlds.wildfire.env.act import Decoder
from rayfish.worlds.wildfire.env.options import Options
from rayfish.worlds.wildfire.fire.codes import BURNING, FIRELINE, SCRATCHLINE, UNBURNED

FLAT = {
    "area": {"screen_size": [6, 9], "pixel_scale": 66},
    "simulation": {"update_rate": 1, "runtime": "24h"},
    "mitigation": {"ros_attenuation": False},
    "terrain": {
        "topography": {"functional": {"function": "flat"}},
        "fuel": {"functional": {"function": "uniform", "uniform": {"model": 5}}},
    },
    "wind": {"simple": {"speed": 2, "direction": 90}},
    "fire": {"fire_initial_position": {"type": "static", "static": {"position": [8, 5]}}},
}
UP, DOWN, LEFT, RIGHT = 1, 2, 3, 4


def env_at(*positions, **options):
    env = WildfireEnv(
        simulation=FLAT,
        num_agents=len(positions),
        agent_initialization_method="manual",
        initial_agent_positions=positions,
        **options,
    )
    env.reset(seed=0)
    return env


def place_of(env, agent=0):
    return int(env.episodes.crew.x[0, agent]), int(env.episodes.crew.y[0, agent])


def test_discrete_actions_are_movement_plus_movements_times_interaction():
    decode = Decoder(Options(movements=["up", "left", "none"], interactions=["none", "wetline", "fireline"]))
    dx, dy, codes = decode(np.arange(9))
    assert dx[:, 0].tolist() == [0, -1, 0] * 3
    assert dy[:, 0].tolist() == [-1, 0, 0] * 3
    assert codes[:, 0].tolist() == [0, 0, 0, 5, 5, 5, 3, 3, 3]


@pytest.mark.parametrize("kind", ["Discrete", "MultiDiscrete"])
@pytest.mark.parametrize("agents", [1, 3])
def test_encoding_is_the_inverse_of_decoding(kind, agents):
    options = Options(action_space_cls=kind, num_agents=agents)
    decode = Decoder(options)
    rng = np.random.default_rng(0)
    move, what = rng.integers(5, size=(7, agents)), rng.integers(2, size=(7, agents))
    dx, dy, codes = decode(decode.encode(move, what))
    assert np.array_equal(codes, np.where(what, FIRELINE, 0))
    assert np.array_equal(dx, np.array([0, 0, 0, -1, 1])[move])
    assert np.array_equal(dy, np.array([0, -1, 1, 0, 0])[move])


def test_multi_discrete_is_movement_then_interaction():
    env = env_at((3, 3), action_space_cls="MultiDiscrete")
    env.step(np.array([RIGHT, 1]))
    assert place_of(env) == (4, 3)
    assert env.episodes.sim.fire_map[0, 3, 3] == FIRELINE


def test_the_line_is_left_on_the_cell_before_the_agent_moves():
    env = env_at((3, 3))
    env.step(5 + UP)
    codes = env.episodes.sim.fire_map[0]
    assert place_of(env) == (3, 2)
    assert codes[3, 3] == FIRELINE and codes[2, 3] == UNBURNED


def test_an_agent_cannot_leave_the_map():
    corner = env_at((0, 0))
    for action in (UP, LEFT):
        corner.step(action)
        assert place_of(corner) == (0, 0)
    other = env_at((8, 5))
    for action in (DOWN, RIGHT):
        other.step(action)
        assert place_of(other) == (8, 5)


def test_lines_go_on_unburned_cells_only():
    env = env_at((8, 5))
    env.step(5)
    assert env.episodes.sim.fire_map[0, 5, 8] == BURNING
    assert env.episodes.lines[0] == 0


def test_a_line_is_not_replaced_by_another():
    env = env_at((3, 3), interactions=["none", "fireline", "scratchline"])
    env.step(5), env.step(10)
    assert env.episodes.sim.fire_map[0, 3, 3] == FIRELINE
    assert env.episodes.lines[0] == 1


def test_two_agents_on_a_cell_build_one_line():
    env = env_at((3, 3), (3, 3), interactions=["none", "scratchline"])
    env.step(np.array([5, 5]))
    assert env.episodes.sim.fire_map[0, 3, 3] == SCRATCHLINE
    assert env.episodes.lines[0] == 1
    assert env.episodes.crew.placed[0].tolist() == [True, False]


def test_a_line_takes_as_long_as_its_resource_needs_in_the_fuel():
    # Fuel model 5: 20 persons x 0.7 chains per hour; a cell is one chain wide, a step a quarter of a minute.
    steps = act.steps_per_line("hand_crew", 66.0, 0.25)
    assert steps[5] == int(np.ceil(60 / 14 / 0.25)) == 18
    assert steps[4] > steps[5] > steps[1]
    assert act.steps_per_line("dozer", 66.0, 0.25)[5] == 3
    assert act.steps_per_line(None, 66.0, 0.25).max() == 1
    assert steps[142] == steps[5] and steps[99] == 1


def test_an_agent_stays_until_its_line_is_finished():
    env = env_at((3, 3), production="dozer")
    for _ in range(2):
        env.step(5 + UP)
        assert place_of(env) == (3, 3) and env.episodes.sim.fire_map[0, 3, 3] == UNBURNED
    env.step(5 + UP)
    assert place_of(env) == (3, 2) and env.episodes.sim.fire_map[0, 3, 3] == FIRELINE


def test_work_that_is_left_is_lost():
    env = env_at((3, 3), production="dozer")
    for action in (5, 5, LEFT, RIGHT, 5, 5):
        env.step(action)
    assert env.episodes.sim.fire_map[0, 3, 3] == UNBURNED
    env.step(5)
    assert env.episodes.sim.fire_map[0, 3, 3] == FIRELINE


def test_agents_in_or_beside_flames_are_counted_and_lost_only_when_asked():
    far, near = env_at((1, 1)), env_at((7, 5))
    for env in (far, near):
        env.step(0)
    assert far.episodes.endangered[0] == 0 and near.episodes.endangered[0] == 1
    for endangered in (False, True):
        env = env_at((8, 5), endangered=endangered)
        env.step(0)
        env.step(UP)
        assert env.episodes.crew.lost[0, 0] == endangered
        assert place_of(env) == ((8, 5) if endangered else (8, 4))


def test_agents_start_on_different_unburned_cells():
    env = WildfireEnv(simulation=FLAT, num_agents=8)
    for seed in range(20):
        env.reset(seed=seed)
        crew = env.episodes.crew
        cells = set(zip(crew.x[0].tolist(), crew.y[0].tolist(), strict=True))
        assert len(cells) == 8 and (8, 5) not in cells
