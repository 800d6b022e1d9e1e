"""Baseline policies: what they can do, in the order that is expected of them."""

from __future__ import annotations

import numpy as np
import pytest

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire import WildfireVectorEnv
from rayfish.worlds.wildfire.env import tactics
from rayfish.worlds.wildfire.env.baselines import BASELINES, make_baseline, run_baseline
from tests.worlds.wildfire.test_act import FLAT
from tests.worlds.wildfire.test_env import WINDY

LARGE_FIRES = {
    "simulation": "small",
    "scenarios": {"count": 64, "where": "percent_burned > 30", "part": "all"},
    "scenario_order": "in_turn",
}


@pytest.fixture(scope="module")
def figures():
    return {name: run_baseline(name, LARGE_FIRES, episodes=64) for name in BASELINES}


def test_nothing_saves_nothing_and_every_fire_burns_much_of_the_map(figures):
    assert (figures["nothing"]["saved_share"] == 0).all()
    assert (figures["nothing"]["burned_share"] > 0.3).all()
    assert figures["nothing"]["lines"].sum() == 0


def test_random_saves_next_to_nothing(figures):
    assert abs(figures["random"]["saved_share"].mean()) < 0.05
    assert figures["random"]["lines"].mean() > 5


def test_heuristics_save_much_and_encircling_most(figures):
    saved = {name: found["saved_share"].mean() for name, found in figures.items()}
    assert saved["line_ahead"] > 0.25
    assert 0.35 < saved["encircle"] < 0.85
    assert saved["encircle"] > saved["line_ahead"] + 0.03
    assert figures["encircle"]["contained"].mean() > 0.8


def test_returns_are_the_saved_shares(figures):
    for found in figures.values():
        assert found["return"] == pytest.approx(found["saved_share"], abs=1e-9)


def test_a_baseline_plays_the_same_episode_for_the_same_seed(figures):
    again = run_baseline("encircle", LARGE_FIRES, seeds=[5, 3])
    assert again["saved_share"].tolist() == figures["encircle"]["saved_share"][[5, 3]].tolist()


def test_a_planned_ring_is_closed_before_the_fire_is_there():
    env = WildfireVectorEnv(16, simulation="small")
    policy = make_baseline("encircle", env)
    env.reset(seed=100)
    policy.reset(env, np.arange(16))
    ends = policy._ends[:, 0].copy()
    done = np.zeros(16, bool)
    for _ in range(150):
        *_, terminated, _, infos = env.step(policy.act(env))
        first = terminated & ~done
        if first.any():
            lines = infos["final_info"]["metrics"]["lines"]
            assert (lines[first] == ends[first]).all(), "every planned cell got its line"
        done |= first
    assert done[ends > 0].any()


def test_agents_share_the_ring_and_save_more_together():
    one, four = (
        run_baseline("encircle", {"simulation": "small", "num_agents": n}, episodes=24)["saved_share"].mean()
        for n in (1, 4)
    )
    assert four > one + 0.1


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_play_on_varied_landscapes_with_any_action_space(name):
    options = {"simulation": WINDY, "action_space_cls": "MultiDiscrete", "num_agents": 2}
    found = run_baseline(name, options, episodes=6)
    assert np.isfinite(found["saved_share"]).all()
    assert (found["saved_share"] >= 0).all() or name == "random"


def test_slow_lines_are_planned_for():
    fast, slow = (
        run_baseline("encircle", {"simulation": "small", "production": kind}, episodes=12)
        for kind in (None, "engine")
    )
    assert slow["saved_share"].mean() < fast["saved_share"].mean()
    assert (slow["saved_share"] > -0.05).all(), "no more is lost than the lines that came too late"


def test_the_cells_around_a_box_are_connected_by_their_sides_and_end_at_the_edge():
    path = np.empty(100, np.int64)
    burnable = np.ones(54, bool)
    found = tactics.around(3, 2, 4, 3, burnable, 6, 9, path)
    ys, xs = np.divmod(path[:found], 9)
    assert found == 12 == len(set(path[:found].tolist()))
    steps = abs(np.diff(xs, append=xs[0])) + abs(np.diff(ys, append=ys[0]))
    assert (steps == 1).all()
    assert tactics.around(7, 4, 8, 5, burnable, 6, 9, path) == 5, "a corner needs two sides"


def test_an_unknown_baseline_is_said_with_the_nearest():
    with pytest.raises(RayfishError, match="did you mean encircle"):
        run_baseline("encircel", {"simulation": FLAT})


def test_a_plan_needs_all_movements_and_a_line():
    with pytest.raises(RayfishError, match="encircle needs the movement 'down'"):
        run_baseline("encircle", {"simulation": FLAT, "movements": ["none", "up", "left", "right"]})
    with pytest.raises(RayfishError, match="line_ahead needs the interaction 'fireline'"):
        run_baseline("line_ahead", {"simulation": FLAT, "interactions": ["none"]})
    with pytest.raises(RayfishError, match="nothing needs the interaction 'none'"):
        run_baseline("nothing", {"simulation": FLAT, "interactions": ["fireline"]})


@pytest.mark.parametrize(("physics", "strongest"), [("behave", "wetline"), ("simfire", "scratchline")])
def test_a_plan_is_built_with_the_strongest_line_of_the_physics(physics, strongest):
    env = WildfireVectorEnv(
        1, simulation=FLAT, physics=physics, interactions=["none", "wetline", "scratchline"]
    )
    policy = make_baseline("encircle", env)
    assert env.options.interactions[policy._line] == strongest
