"""The simulator: SimFire's fires to the last bit, and fires that do what fires do."""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING, FIRELINE, SCRATCHLINE, UNBURNED, WETLINE
from rayfish.worlds.wildfire.fire.simulator import Simulator
from tests.helpers import ROOT

RECORDED = sorted((ROOT / "tests/data/wildfire").glob("*_*.npz"))
LAYERS = ("elevation", "w_0", "sigma", "delta", "M_x", "wind_speed", "wind_direction")


def field(size=41, *, model=2, mph=0.0, degrees=90.0, **more):
    """A level field of one fuel, lit in the middle; no drawing of anything."""
    config = {
        "area": {"screen_size": [size, size], "pixel_scale": 50.0},
        "simulation": {"update_rate": 1.0, "runtime": "1000h"},
        "terrain": {
            "topography": {"type": "functional", "functional": {"function": "flat"}},
            "fuel": {
                "type": "functional",
                "functional": {"function": "uniform", "uniform": {"model": model}},
            },
        },
        "fire": {
            "fire_initial_position": {"type": "static", "static": {"position": [size // 2, size // 2]}},
            "max_fire_duration": 4,
        },
        "environment": {"moisture": 0.06},
        "wind": {"function": "simple", "simple": {"speed": mph, "direction": degrees}},
    }
    for path, value in more.items():
        section, key = path.split("__")
        config[section][key] = value
    return config


def reached(fire_map):
    """Cells that fire has come to."""
    return (fire_map == BURNING) | (fire_map == BURNED)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_simfire_physics_equals_recorded_fires_at_every_update(path):
    with np.load(path) as recorded:
        config, lines = json.loads(str(recorded["config"])), recorded["lines"]
        maps, amounts = recorded["fire_maps"], recorded["burn_amounts_last"]
        layers = {name: recorded[name] for name in LAYERS}
        active = bool(recorded["active"])
    sim = Simulator(config, 2, seed=1, physics="simfire")
    for name, layer in layers.items():
        setattr(sim, name, layer)
    for update, expected in enumerate(maps[1:]):
        for fire in range(2):
            sim.place_lines(fire, [tuple(row[1:].tolist()) for row in lines if row[0] == update])
        sim.run(1)
        for fire in range(2):
            np.testing.assert_array_equal(sim.fire_map[fire], expected, f"update {update}")
    np.testing.assert_array_equal(sim.burn_amounts[0], amounts)
    assert sim.active.tolist() == [active, active]


def test_there_are_recordings():
    assert len(RECORDED) >= 3


def test_a_fire_without_wind_is_round():
    sim = Simulator(field(81), seed=1)
    sim.run(400)
    there = reached(sim.fire_map[0])
    ys, xs = np.nonzero(there)
    far = np.hypot(xs - 40, ys - 40)
    assert there.sum() > 500
    # An eight-neighbour front is an octagon: its corners are 8 % further out than its sides.
    edge = [
        far[np.abs(np.arctan2(ys - 40, xs - 40) - angle) < 0.2].max()
        for angle in (0, math.pi / 4, math.pi / 2, -math.pi / 2, -math.pi / 4)
    ]
    assert max(edge) / min(edge) < 1.12


@pytest.mark.parametrize(
    ("degrees", "x", "y"), [(90, 1, 0), (180, 0, 1), (270, -1, 0), (0, 0, -1), (135, 1, 1)]
)
def test_fire_runs_where_the_wind_blows_to(degrees, x, y):
    sim = Simulator(field(61, mph=6, degrees=degrees), seed=1)
    sim.run(20)
    ys, xs = np.nonzero(reached(sim.fire_map[0]))
    dx, dy = xs.mean() - 30, ys.mean() - 30
    assert np.dot([dx, dy], [x, y]) > 3
    assert abs(dx * y - dy * x) < 1


def test_fire_runs_uphill_faster_than_downhill():
    sim = Simulator(field(61), seed=1)
    sim.elevation = np.tile(np.arange(61) * 15.0, (61, 1))  # rises by 30 % toward the East
    sim.run(150)
    xs = np.nonzero(reached(sim.fire_map[0]))[1]
    assert xs.max() - 30 > 2 * (30 - xs.min()) > 0


def test_the_head_runs_as_fast_as_behave_says():
    from rayfish.worlds.wildfire.fire.rothermel import surface_fire

    rate = surface_fire(2, 0.06, 0.06, 0.06, 0.6, 0.6, 5.0, 0.0).spread_rate_ft_min
    sim = Simulator(field(201, mph=5), seed=1)
    minutes = 80
    sim.run(minutes)
    xs = np.nonzero(reached(sim.fire_map[0]))[1]
    assert (xs.max() - 100) * 50 == pytest.approx(rate * minutes, abs=75)


@pytest.mark.parametrize("minutes", [0.25, 0.5, 2.0, 5.0])
def test_the_size_of_a_fire_does_not_depend_on_the_time_step(minutes):
    sizes = []
    for step in (1.0, minutes):
        sim = Simulator(field(101, mph=5, simulation__update_rate=step), seed=1)
        sim.run(int(40 / step))
        sizes.append(reached(sim.fire_map[0]).sum())
    assert sizes[1] == pytest.approx(sizes[0], rel=0.08)


@pytest.mark.parametrize(("minutes", "updates"), [(20.0, 3), (60.0, 1)])
def test_fire_that_crosses_many_cells_in_an_update_runs_as_far_as_in_many_updates(minutes, updates):
    fires = []
    for step, number in ((1.0, 60), (minutes, updates)):
        config = field(9, model=1, mph=5, area__screen_size=[9, 260], area__pixel_scale=30.0)
        config["fire"]["fire_initial_position"]["static"]["position"] = [4, 4]
        config["simulation"]["update_rate"] = step
        sim = Simulator(config, seed=1)
        sim.run(number)
        fires.append(reached(sim.fire_map[0]))
    assert np.nonzero(fires[0])[1].max() == 4 + 206  # FM1 at 103.3 ft/min, for an hour, in cells of 30 ft
    assert np.nonzero(fires[1])[1].max() == 4 + 206
    assert (fires[0] != fires[1]).sum() < 10


def test_an_update_with_more_cells_than_the_clock_has_steps_for_is_refused():
    config = field(9, model=1, mph=5, area__pixel_scale=1.0, simulation__update_rate=60.0)
    with pytest.raises(RayfishError) as caught:
        Simulator(config, seed=1)
    assert "103 ft/min" in caught.value.what and "cells of 1 ft" in caught.value.what
    assert "update of 60 min" in caught.value.what
    lower = caught.value.hint.removeprefix("lower simulation.update_rate to ").split(" min")[0]
    config["simulation"]["update_rate"] = float(lower)
    assert Simulator(config, seed=1).run(1).shape == (1,)


def test_a_fire_that_outlasts_its_clock_is_an_error_and_no_early_end():
    config = field(9, model=1, mph=5, simulation__runtime="100000h", fire__max_fire_duration=10**6)
    config["simulation"]["update_rate"] = 500.0
    sim = Simulator(config, seed=1)
    with pytest.raises(RayfishError, match="still burns after 507 updates of 500 min") as caught:
        sim.run(10**6)
    sim.reset()
    assert sim.run(400).all()
    config["simulation"]["runtime"] = caught.value.hint.removeprefix("set simulation.runtime to ").split()[0]
    in_time = Simulator(config, seed=1)
    assert not in_time.run(10**6).any() and in_time.updates[0] == 507


def test_ground_that_makes_the_clock_too_full_is_an_error_and_not_an_overflow():
    config = field(9, model=10, simulation__runtime="100000h", fire__max_fire_duration=10**6)
    config["simulation"]["update_rate"] = 300.0
    sim = Simulator(config, seed=1)
    sim.run(3000)
    sim.fuel, sim.wind_speed = np.full((9, 9), 1), np.full((9, 9), 8 * 88.0)
    with pytest.raises(RayfishError, match="all that its clock counts"):
        sim.run(1)
    sim.reset()
    assert sim.updates[0] == 0 and sim.run(2).all()


@pytest.mark.parametrize(
    ("rate", "runtime", "updates"),
    [(0.1, "2m", 21), (0.3, "3m", 11), (0.7, "2m", 3), (1.0, "2m", 3), (3, "2m", 1)],
)
def test_fractional_updates_fill_the_runtime(rate, runtime, updates):
    sim = Simulator(field(9, simulation__update_rate=rate, simulation__runtime=runtime), seed=1)
    sim.run(1000)
    assert sim.updates[0] == updates and not sim.active[0]


def test_a_run_may_be_given_as_a_time():
    for rate, text, updates in ((1.0, "2h", 120), (0.5, "1h 1m", 122), (7.0, "1h", 9)):
        sim = Simulator(field(9, simulation__update_rate=rate, fire__max_fire_duration=10**4), seed=1)
        sim.run(text)
        assert sim.updates[0] == updates
    with pytest.raises(RayfishError, match="no time"):
        sim.run("a while")


def test_a_cell_burns_at_least_its_duration_and_then_is_burned():
    sim = Simulator(field(21, mph=8), seed=1)
    seen = np.zeros((21, 21), int)
    while sim.active[0]:
        sim.run(1)
        seen += sim.fire_map[0] == BURNING
    assert (sim.fire_map == BURNED).all()
    assert seen.min() >= 4


def test_whatever_does_not_burn_stops_fire():
    sim = Simulator(field(31, mph=8), seed=1)
    fuel = np.full((31, 31), 2)
    fuel[:, 20] = 98
    sim.fuel = fuel
    sim.run(5000)
    assert (sim.fire_map[0][:, 20:] == UNBURNED).all() and (sim.fire_map[0][:, :20] == BURNED).all()
    assert not sim.active[0]


def test_a_line_holds_flames_it_is_made_for_and_no_larger_ones():
    ends = {}
    for mph in (2, 12):
        sim = Simulator(field(31, mph=mph), seed=1)
        sim.place_lines(0, [(22, y, SCRATCHLINE) for y in range(31)])
        sim.run(5000)
        ends[mph] = (sim.fire_map[0][:, 23:] == BURNED).any()
    assert (
        Simulator(field(31, mph=2)).flame_length_ft().max()
        < 4
        < Simulator(field(31, mph=12)).flame_length_ft().min()
    )
    assert ends == {2: False, 12: True}


def test_lines_hold_always_without_attenuation():
    config = field(31, mph=15)
    config["mitigation"] = {"ros_attenuation": False}
    sim = Simulator(config, seed=1)
    sim.place_lines(0, [(22, y, "wetline") for y in range(31)])
    sim.run(5000)
    assert (sim.fire_map[0][:, 23:] == UNBURNED).all()
    assert (sim.fire_map[0][:, 22] == WETLINE).all()


def test_lines_are_placed_on_unburned_ground_only():
    sim = Simulator(field(21), seed=1)
    assert sim.place_lines(0, [(10, 10, FIRELINE), (3, 3, FIRELINE)]) == 1
    assert sim.fire_map[0, 10, 10] == BURNING and sim.fire_map[0, 3, 3] == FIRELINE
    assert sim.counts()[0].tolist() == [439, 1, 0, 1, 0, 0]


def test_counts_are_those_of_the_map():
    sim = Simulator(None, 5, seed=2)
    sim.place(np.arange(5), np.full(5, 3), np.arange(5), np.full(5, FIRELINE))
    for _ in range(10):
        sim.run(9)
        for fire in range(5):
            assert (
                sim.counts()[fire].tolist() == np.bincount(sim.fire_map[fire].ravel(), minlength=6).tolist()
            )


def test_fires_do_not_touch_each_other():
    together = Simulator(field(31, mph=5), 3, seed=1)
    together.reset(ignitions=[[(3, 3)], [(15, 15)], [(28, 4)]])
    together.place_lines(1, [(20, y, FIRELINE) for y in range(31)])
    together.run(40)
    alone = Simulator(field(31, mph=5), 1, seed=9)
    alone.reset(ignitions=[[(28, 4)]])
    alone.run(40)
    np.testing.assert_array_equal(together.fire_map[2], alone.fire_map[0])


def test_updates_can_be_cut_into_calls_in_any_way():
    whole, parts = (Simulator(None, 4, seed=5) for _ in range(2))
    whole.run(60)
    for part in (1, 2, 30, 27):
        parts.run(part)
    np.testing.assert_array_equal(whole.fire_map, parts.fire_map)


def test_ground_that_changes_under_a_fire_changes_its_speed_and_not_its_clock():
    sim = Simulator(field(61, model=10, mph=5), seed=1)
    sim.run(60)
    before = reached(sim.fire_map[0]).sum()
    sim.fuel = np.full((61, 61), 1)  # grass: more than a cell a minute, so that an update takes several steps
    assert sim.updates[0] == 60 and reached(sim.fire_map[0]).sum() == before
    sim.run(10)
    assert sim.updates[0] == 70 and reached(sim.fire_map[0]).sum() > 4 * before


def test_only_the_chosen_fires_run():
    sim = Simulator(field(31, mph=5), 3, seed=1)
    sim.run(10, fires=[1])
    assert sim.updates.tolist() == [0, 10, 0]
    sim.run(5, fires=np.array([True, False, True]))
    assert sim.updates.tolist() == [5, 10, 5]


def test_time_is_over_after_the_runtime():
    sim = Simulator(field(41, simulation__runtime="20m"), seed=1)
    sim.run(500)
    assert not sim.active[0] and sim.minutes[0] == 21  # as SimFire: until the time is more than the runtime


def test_embers_start_fires_ahead_the_same_way_however_time_is_cut():
    config = field(81, mph=12, fire__spotting={"probability": 0.3, "distance_ft": 800})
    sims = [Simulator(config, 2, seed=3) for _ in range(2)]
    sims[0].run(8)
    for _ in range(8):
        sims[1].run(1)
    np.testing.assert_array_equal(sims[0].fire_map, sims[1].fire_map)
    without = Simulator(field(81, mph=12), 2, seed=3)
    without.run(8)
    assert reached(sims[0].fire_map[0]).sum() > reached(without.fire_map[0]).sum()
    assert (sims[0].fire_map[0] != sims[0].fire_map[1]).any(), "both fires drew the same embers"


def test_wind_that_turns_turns_the_fire():
    config = field(61)
    config["wind"] = {"function": "series", "series": [[0, 6, 90], [15, 6, 180]]}
    sim, steady = Simulator(config, seed=1), Simulator(field(61, mph=6), seed=1)
    sim.run(15), steady.run(15)
    np.testing.assert_array_equal(sim.fire_map, steady.fire_map)
    sim.run(15), steady.run(15)
    south = [np.nonzero(reached(s.fire_map[0]))[0].max() for s in (sim, steady)]
    assert south[0] > south[1] + 4


def test_wind_that_is_set_takes_the_place_of_a_series():
    config = field(41)
    config["wind"] = {"function": "series", "series": [[0, 6, 90], [10, 6, 180], [20, 6, 270]]}
    sim, steady = Simulator(config, 2, seed=1), Simulator(field(41, mph=6), 2, seed=1)
    sim.wind_speed = np.full((41, 41), 6 * 88.0)
    sim.run(30), steady.run(30)
    np.testing.assert_array_equal(sim.fire_map, steady.fire_map)
    late = Simulator(config, 2, seed=1)
    late.run(25)
    late.wind_direction = np.zeros((2, 41, 41))
    north = [np.nonzero(reached(late.fire_map[0]))[0].min()]
    late.run(8)
    north.append(np.nonzero(reached(late.fire_map[0]))[0].min())
    assert north[1] < north[0] - 3 and late.updates.tolist() == [33, 33]


def test_a_series_that_is_drawn_again_comes_back_at_reset():
    config = field(41)
    config["wind"] = {"function": "series", "series": [[0, 6, 90], [10, 6, 180]]}
    config["randomize"] = ["wind"]
    sims = [Simulator(config, 2, seed=1) for _ in range(2)]
    sims[0].wind_speed = np.full((41, 41), 99.0)
    for sim in sims:
        sim.run(3)
        sim.reset(seed=5)
        sim.run(25)
    np.testing.assert_array_equal(sims[0].fire_map, sims[1].fire_map)


def test_layers_that_are_set_stay_when_others_are_drawn_again():
    sim = Simulator({"randomize": ["elevation", "wind"]}, 3, seed=4)
    sim.fuel = np.full((64, 64), 1)
    own = np.stack([np.full((64, 64), 0.1 * fire) for fire in range(3)])
    sim.w_0 = own
    before = sim.elevation
    sim.reset()
    assert (sim.fuel == 1).all() and (sim.elevation != before).any()
    np.testing.assert_array_equal(sim.w_0, own)
    again = Simulator({"randomize": ["elevation", "wind"]}, 3, seed=5)
    again.set_state(pickle.loads(pickle.dumps(sim.state())))
    for each in (sim, again):
        each.reset([2])
    np.testing.assert_array_equal(again.w_0, own)
    np.testing.assert_array_equal(again.elevation, sim.elevation)
    assert Simulator({"randomize": ["elevation"]}, 2, seed=4).state()["bases"] is None


def test_fuels_may_be_set_by_number_or_code():
    sim = Simulator(field(9), seed=1)
    sim.fuel = np.full((9, 9), 4.0)
    assert sim.fuel.dtype == np.int16 and (sim.fuel == 4).all()
    sim.fuel = np.full((9, 9), "GR2")
    assert (sim.fuel == 102).all()


def test_a_snapshot_goes_on_as_if_nothing_had_happened():
    sim = Simulator({"randomize": ["elevation", "wind", "ignition"]}, 3, seed=4)
    sim.run(12)
    kept = pickle.loads(pickle.dumps(sim.state()))
    sim.run(20)
    sim.reset([1])
    sim.run(5)
    again = Simulator({"randomize": ["elevation", "wind", "ignition"]}, 3, seed=99)
    again.set_state(kept)
    again.run(20)
    again.reset([1])
    again.run(5)
    np.testing.assert_array_equal(sim.fire_map, again.fire_map)
    np.testing.assert_array_equal(sim.elevation, again.elevation)


def test_the_seed_decides_what_is_drawn():
    a, b, c = (Simulator({"randomize": ["elevation", "ignition"]}, 2, seed=seed) for seed in (1, 1, 2))
    assert a.ignitions == b.ignitions
    np.testing.assert_array_equal(a.elevation, b.elevation)
    assert (a.elevation != c.elevation).any() and (a.elevation[0] != a.elevation[1]).any()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda sim: sim.place_lines(0, [(31, 0, FIRELINE)]), "(31, 0) is outside the map"),
        (lambda sim: sim.place_lines(0, [(1, 0, 7)]), "no kind of line 7"),
        (lambda sim: setattr(sim, "elevation", np.zeros((3, 3))), "elevation has the shape (3, 3)"),
        (lambda sim: setattr(sim, "fuel", np.full((31, 31), 14)), "there is no fuel model 14"),
        (lambda sim: setattr(sim, "fuel", np.full((31, 31), -9999)), "fuel has -9999, which means no data"),
        (lambda sim: setattr(sim, "fuel", np.full((31, 31), 1.5)), "not whole"),
        (lambda sim: setattr(sim, "fuel", np.full((31, 31), np.nan)), "not whole"),
        (lambda sim: sim.place_lines(0, [(1, 0, "moat")]), "no kind of line 'moat'"),
        (lambda sim: sim.reset(ignitions=[[]]), "without a burning cell"),
        (lambda sim: Simulator(None, 0), "num_fires is 0"),
        (lambda sim: Simulator(field(9), physics="simfire").spread_rate(), "of the physics behave"),
    ],
)
def test_a_mistake_gets_a_sentence(wrong, said):
    sim = Simulator(field(31), seed=1)
    with pytest.raises(RayfishError) as caught:
        wrong(sim)
    assert said in caught.value.what


def test_the_gpus_loop_makes_the_same_fires():
    """On numba's CUDA simulator, thread by thread; on a real GPU by `benchmarks/wildfire.py --gpu`."""
    script = """
from rayfish.worlds.wildfire.fire import cuda
from rayfish.worlds.wildfire.fire.simulator import Simulator
cuda.THREADS = 16
config = {"area": {"screen_size": [9, 11]}, "terrain": {"fuel": {"functional": {
    "function": "patches", "patches": {"models": [1, 2, 5, 10], "scale": 4}}}}}
on_cpu, other = Simulator(config, 2, seed=3), Simulator(config, 2, seed=3)
for sim in (on_cpu, other):
    sim.place_lines(0, [(x, 3, 4) for x in range(8)])
on_gpu = cuda.CudaFires(other)
for updates in (1, 3, 5):
    on_cpu.run(updates)
    on_gpu.run(updates)
    on_gpu.copy_back()
    assert (on_cpu.fire_map == other.fire_map).all(), updates
    assert (on_cpu.counts() == other.counts()).all(), updates
other.run(4), on_cpu.run(4)
assert (on_cpu.fire_map == other.fire_map).all() and on_cpu.counts()[0, 2] > 5
"""
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
