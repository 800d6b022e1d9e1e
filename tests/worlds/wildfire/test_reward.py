"""Rewards on hand-made steps, and over whole episodes; the benchmark fire behind them."""

from __future__ import annotations

import numpy as np
import pytest

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire import Simulator, WildfireEnv, WildfireVectorEnv
from rayfish.worlds.wildfire.env import reward
from rayfish.worlds.wildfire.env.options import SMALL, Options
from rayfish.worlds.wildfire.env.reward import Step
from rayfish.worlds.wildfire.fire import benchmark
from rayfish.worlds.wildfire.fire.benchmark import Benchmarks, Start
from tests.worlds.wildfire.test_act import FLAT, RIGHT, UP, env_at


def a_step(**changed):
    """One episode: B = 100 after T = 10 updates; at update 3 b went from 20 to 30 and d from 12 to 16."""
    given = {
        "updated": True,
        "updates": 3,
        "damaged": 16,
        "damaged_before": 12,
        "damaged_step_before": 15,
        "benchmark": 30,
        "benchmark_before": 20,
        "benchmark_final": 100,
        "benchmark_length": 10,
        "burning": 5,
        "lines": 1,
        "endangered": 0,
        "ended": False,
        "truncated": False,
        "last": 0.25,
        **changed,
    }
    arrays = {name: np.array([value]) for name, value in given.items()}
    return Step(**arrays, cells=400, agents=2, agent_speed=4)


@pytest.mark.parametrize(
    ("name", "changed", "expected"),
    [
        ("simple", {}, -5 / 400),
        ("simple", {"updated": False}, 0.0),
        ("area_saved", {}, (10 - 4) / 100),
        ("area_saved", {"ended": True}, (10 - 4 + 70) / 100),
        ("area_saved", {"updates": 10, "benchmark": 100, "benchmark_before": 96, "ended": True}, 0.0),
        ("area_saved", {"updates": 12, "benchmark": 100, "benchmark_before": 100}, -4 / 100),
        ("area_saved", {"updated": False}, 0.25 + 1 / 8 / 100),
        ("area_saved", {"updated": False, "damaged": 100}, 0.25),
        ("area_saved_v2", {}, (10 - 4) / 100),
        ("area_saved_v2", {"damaged": 40}, 0.0),
        ("area_saved_v2", {"ended": True}, (10 - 4 + 70) / 100),
        ("area_saved_v2", {"ended": True, "damaged": 120}, 0.0),
        ("area_saved_v2", {"updates": 12, "benchmark": 100, "benchmark_before": 100}, -4 / 100),
        ("area_saved_v2", {"updates": 12, "damaged": 101, "damaged_before": 97, "benchmark": 100}, 0.0),
        ("area_saved_v2", {"updated": False, "damaged": 101}, 0.25 - 1 / 8 / 100),
        ("saved", {}, (10 - 1) / 100),
        ("saved", {"updated": False}, -1 / 100),
        ("saved", {"ended": True}, (10 - 1 + 70) / 100),
    ],
)
def test_rewards_of_hand_made_steps(name, changed, expected):
    found = reward.load(Options(reward=name))(a_step(**changed))
    assert found.tolist() == pytest.approx([expected], abs=1e-12)


def corner_env(name, **options):
    """The fire starts in the corner (8, 5); the agent beside it can shut it in with a few lines."""
    env = WildfireEnv(
        simulation=FLAT,
        reward=name,
        agent_initialization_method="manual",
        initial_agent_positions=[[6, 5]],
        agent_speed=8,
        **options,
    )
    env.reset(seed=0)
    return env


def close_corner(env):
    rewards, over, info = [], False, {}
    for action in [5 + UP, 5 + UP, 5 + RIGHT, 5 + RIGHT, 5, *[0] * 400]:
        _, gained, terminated, truncated, info = env.step(action)
        rewards.append(gained)
        over = terminated or truncated
        if over:
            break
    assert over
    return np.array(rewards), info["metrics"]


def test_containment_pays_what_the_benchmark_would_still_have_burned_divided_by_all_of_it():
    env = corner_env("area_saved")
    rewards, figures = close_corner(env)
    assert figures["contained"] == 1.0 and figures["lines"] == 5
    assert figures["burned"] == 4.0, "the corner of 2 x 2 cells"
    curve = env.episodes.curves[0]
    length, final = int(env.episodes.bench_length[0]), 54
    ended = int(figures["fire_updates"])
    assert curve[length] == final and ended < length
    growth = curve[ended] - curve[ended - 1]
    assert rewards[-1] == pytest.approx((growth - 0 + final - curve[ended]) / final)
    assert figures["saved_share"] == pytest.approx((final - 9) / final)
    assert figures["saved_area"] == pytest.approx((final - 9) / 54)


def test_saved_adds_up_to_the_saved_share_whatever_is_done():
    for seed in range(4):
        env = WildfireVectorEnv(4, simulation=FLAT, agent_speed=2)
        env.reset(seed=seed)
        rng, total, done = np.random.default_rng(seed), np.zeros(4), np.zeros(4, bool)
        while not done.all():
            _, rewards, terminated, truncated, infos = env.step(rng.integers(10, size=4))
            total += np.where(done, 0, rewards)
            over = (terminated | truncated) & ~done
            if over.any():
                share = infos["final_info"]["metrics"]["saved_share"]
                assert total[over] == pytest.approx(share[over], abs=1e-12)
            done |= over
    assert close_corner(corner_env("saved"))[0].sum() == pytest.approx(45 / 54)


def test_between_updates_the_last_reward_is_given_again():
    env = corner_env("area_saved")
    rewards = [env.step(0)[1] for _ in range(16)]
    assert rewards[:8] == [rewards[0]] * 8 and rewards[8:] == [rewards[8]] * 8
    assert all(gained == 0.0 for gained in rewards), "without intervention the fire is the benchmark's"


def by_lines(step):
    """A reward of one's own."""
    return step.lines - 0.5 * step.burning / step.cells


def test_a_reward_of_ones_own_by_import_path_and_by_file(tmp_path):
    (tmp_path / "mine.py").write_text("def mine(step):\n    return 2.0 * step.lines\n")
    for name, expected in ((f"{__name__}:by_lines", 1 - 0.5 / 54), (f"{tmp_path / 'mine.py'}:mine", 2.0)):
        env = env_at((3, 3), reward=name)
        assert env.step(5)[1] == pytest.approx(expected)


def test_a_reward_that_is_none_is_said_so():
    with pytest.raises(RayfishError, match="no_such"):
        env_at((3, 3), reward=f"{__name__}:no_such")
    env = env_at((3, 3), reward=lambda step: [1.0, 2.0])
    with pytest.raises(RayfishError, match="shape"):
        env.step(0)


def test_the_benchmark_is_simulated_once_per_start(monkeypatch):
    made = []
    monkeypatch.setattr(
        benchmark,
        "begin",
        lambda sim, fires, starts, lands: made.extend(starts) or begun(sim, fires, starts, lands),
    )
    env = WildfireEnv(simulation=FLAT, max_steps=1)
    for _ in range(5):
        env.reset(seed=0)
    assert len(made) == 6, "five times the episode's own fire, once the benchmark"


begun = benchmark.begin


@pytest.mark.parametrize("physics", ["behave", "simfire"])
def test_benchmark_curves_are_those_of_a_simulation_update_by_update(physics):
    whole = SMALL | {"simulation": {"update_rate": 4, "runtime": "24h"}}
    settings = WildfireEnv(simulation=whole, physics=physics).episodes.settings
    cells = ((20, 9), (3, 30))
    for maps in ("none", "last", "all"):
        found = Benchmarks(settings, maps).of([Start(None, (cell,)) for cell in cells], [None, None])
        sim = Simulator(settings, 2, seed=0)
        sim.reset(ignitions=[[cell] for cell in cells])
        for update in range(max(one.length for one in found) + 1):
            damaged = 1024 - sim.counts()[:, 0]
            for fire, one in enumerate(found):
                assert one.curve[min(update, one.length)] == damaged[fire]
                if maps == "all":
                    assert np.array_equal(one.map_at(update), sim.fire_map[fire].ravel())
            sim.run(1)
        for fire, one in enumerate(found):
            assert not (sim.fire_map[fire] == 1).any()
            if maps != "none":
                assert np.array_equal(one.map_at(one.length), sim.fire_map[fire].ravel())


def test_without_a_benchmark_nothing_is_compared():
    env = corner_env("simple", benchmark=False)
    _, figures = close_corner(env)
    assert "saved_share" not in figures and figures["burned"] == 4.0
