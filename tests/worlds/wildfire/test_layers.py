"""Landscapes: SimFire's own layers to the last bit, and ours drawn, edited and ignited as settings say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rayfish.worlds.wildfire.fire import fuels, layers, noise, settings
from rayfish.worlds.wildfire.fire.layers import LandscapeFault

DATA = Path(__file__).parents[2] / "data" / "wildfire"
SIMFIRE_LAYERS = ("w_0", "delta", "M_x", "sigma")
DETERMINED = {
    "gaussian_lines_stop_4way": ("elevation", "wind_speed", "wind_direction"),
    "perlin_lines_debt": ("elevation", "wind_speed", "wind_direction", *SIMFIRE_LAYERS),
    "perlin_mixed_fuel": ("elevation", "wind_speed", "wind_direction"),
}
"""Layers of each recording that its configuration fixes: fuels without a seed were drawn from the clock."""


def made(config=None, seed=0, physics=None):
    return layers.make(settings.read(config, physics=physics), np.random.default_rng(seed))


def fuel_config(**fuel):
    return {"area": {"screen_size": [12, 16]}, "terrain": {"fuel": fuel}}


UNIFORM = {"functional": {"function": "uniform", "uniform": {"model": 1}}}


def test_noise_equals_the_package_that_simfire_uses():
    with np.load(DATA / "snoise2.npz") as recorded:
        for place, case in enumerate(json.loads(str(recorded["cases"]))):
            base = float(case.pop("base"))
            found = noise.grid((16, 24), offset=(base, base), **case)
            np.testing.assert_array_equal(found, recorded[f"values_{place}"])


def test_noise_has_hills_as_wide_as_its_scale():
    def alike(scale):
        hills = noise.grid((64, 64), scale=scale, offset=(827, 827))
        return np.corrcoef(hills[:, :-1].ravel(), hills[:, 1:].ravel())[0, 1]

    assert abs(alike(1)) < 0.1
    assert alike(32) > 0.95


def test_large_seeds_still_give_hills():
    rough = np.diff(noise.grid((32, 32), scale=32, offset=noise.offset_of(987_654_321)))
    assert 0 < np.abs(rough).max() < 0.3
    assert noise.offset_of(827) == (827.0, 827.0)


@pytest.mark.parametrize("name", DETERMINED)
def test_simfire_layers_equal_the_recorded(name):
    with np.load(DATA / f"{name}.npz") as recorded:
        landscape = made(json.loads(str(recorded["config"])), physics="simfire")
        for layer in DETERMINED[name]:
            np.testing.assert_array_equal(getattr(landscape, layer), recorded[layer], err_msg=layer)


def test_simfire_fuels_without_a_seed_differ_from_cell_to_cell():
    landscape = made(fuel_config(functional={"function": "chaparral"}), physics="simfire")
    for layer, (low, high) in zip(SIMFIRE_LAYERS, [(0, 1), (0.2, 6), (0.12, 1), (1, 3500)], strict=True):
        values = getattr(landscape, layer)
        assert len(np.unique(values)) == values.size
        assert low <= values.min() < values.max() <= high
    again = made(fuel_config(functional={"function": "chaparral"}), physics="simfire")
    np.testing.assert_array_equal(landscape.w_0, again.w_0)


def test_chaparral_is_fuel_model_4_in_behave():
    landscape = made(fuel_config(functional={"function": "chaparral", "chaparral": {"seed": 1113}}))
    assert (landscape.fuel == 4).all()
    assert (landscape.sigma == 1739).all()


def test_simfire_presets_for_fuel_models():
    landscape = made(fuel_config(**UNIFORM, edits=[{"cells": [[0, 0]], "model": 7}]), physics="simfire")
    assert [getattr(landscape, name)[0, 0] for name in SIMFIRE_LAYERS] == [0.0459, 2.5, 0.40, 1552]
    assert [getattr(landscape, name)[5, 5] for name in SIMFIRE_LAYERS] == [0.0340, 1.0, 0.12, 3500]


def test_edits_roads_and_water_reach_simfire_fuels_too():
    config = fuel_config(functional={"function": "chaparral", "chaparral": {"seed": 1113}})
    config["terrain"]["water"] = [{"box": [2, 3, 4, 5]}]
    landscape = made(config, physics="simfire")
    assert (landscape.w_0 == 0).sum() == 9
    assert landscape.w_0[4, 3] == 0 and landscape.w_0[0, 0] == pytest.approx(0.981, abs=1e-3)


def test_simfire_refuses_fuel_models_it_does_not_know():
    with pytest.raises(LandscapeFault, match=r"102 \(GR2\)"):
        made(fuel_config(functional={"function": "uniform", "uniform": {"model": "GR2"}}), physics="simfire")


def test_default_landscape_has_its_fuels_hills_and_wind():
    landscape = made()
    assert landscape.elevation.shape == (64, 64) and landscape.fuel.dtype == np.int16
    assert 0 <= landscape.elevation.min() < 200 < 400 < landscape.elevation.max() <= 600
    numbers, cells = np.unique(landscape.fuel, return_counts=True)
    assert numbers.tolist() == [1, 2, 4, 5]
    assert cells.min() > 0.1 * landscape.fuel.size
    assert (landscape.wind_speed == 616).all() and (landscape.wind_direction == 90).all()
    assert landscape.moisture == {"m1h": 0.06, "m10h": 0.06, "m100h": 0.06, "herb": 0.6, "woody": 0.6}
    np.testing.assert_array_equal(landscape.fuel, made(seed=5).fuel, "seeds of the settings hold")


def test_every_fuel_model_has_simfire_layers():
    numbers = sorted(number for number in fuels.FUEL_MODELS if 0 < number < 256)
    landscape = made({"terrain": {"fuel": {"type": "array", "array": [numbers]}}})
    for layer in SIMFIRE_LAYERS:
        assert np.isfinite(getattr(landscape, layer)).all()
    np.testing.assert_array_equal(landscape.burnable("behave"), landscape.burnable("simfire"))
    assert landscape.burnable("behave").sum() == 53


def test_rectangular_maps_have_rows_and_columns_in_order():
    hill = {"amplitude": 100, "mu_x": 14, "mu_y": 2, "sigma_x": 2, "sigma_y": 2}
    topography = {"functional": {"function": "gaussian", "gaussian": hill}}
    landscape = made({"area": {"screen_size": [6, 20]}, "terrain": {"topography": topography}})
    assert landscape.elevation.shape == (6, 20)
    assert np.unravel_index(landscape.elevation.argmax(), (6, 20)) == (2, 14)


def test_patches_are_patches():
    fuel = made({"area": {"screen_size": [64, 64]}}).fuel
    same = (fuel[:, 1:] == fuel[:, :-1]).mean()
    assert same > 0.8


def test_a_line_leaves_no_gap_for_diagonal_spread():
    landscape = made(fuel_config(**UNIFORM) | {"area": {"screen_size": [12, 12]}})
    assert (landscape.fuel == 1).all()
    config = {"area": {"screen_size": [12, 12]}, "terrain": {"fuel": UNIFORM, "roads": [[[0, 11], [11, 0]]]}}
    road = made(config).fuel == layers.ROAD
    reached = np.zeros_like(road)
    reached[0, 0] = True
    for _ in range(200):
        around = np.pad(reached, 1)
        grown = sum(around[1 + dy : 13 + dy, 1 + dx : 13 + dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1)) > 0
        reached = grown & ~road
    assert reached[0, 0] and not reached[11, 11]


def test_wide_lines_and_boxes_are_cut_at_the_edge():
    config = fuel_config(**UNIFORM, edits=[{"line": [[0, 6], [15, 6]], "width": 3, "model": 99}])
    config["terrain"]["water"] = [{"box": [14, 10, 30, 30]}]
    fuel = made(config).fuel
    assert (fuel[5:8] == 99).all() and (fuel == 99).sum() == 48
    assert (fuel == layers.WATER).sum() == 4


def test_wind_series_and_its_first_wind():
    landscape = made({"wind": {"function": "series", "series": [[0, 5, 90], [30, 10, 180]]}})
    minutes, mph, degrees = landscape.wind_series
    assert (minutes.tolist(), mph.tolist(), degrees.tolist()) == ([0, 30], [5, 10], [90, 180])
    assert landscape.wind_speed[0, 0] == 440 and landscape.wind_direction[0, 0] == 90


def test_wind_of_noise_stays_in_its_range():
    part = {"seed": 3, "scale": 10, "octaves": 2, "persistence": 0.5, "lacunarity": 2.0}
    perlin = {
        "speed": {**part, "range_min": 2, "range_max": 12},
        "direction": {**part, "range_min": 0, "range_max": 360},
    }
    landscape = made({"wind": {"function": "perlin", "perlin": perlin}})
    assert 2 * 88 <= landscape.wind_speed.min() < landscape.wind_speed.max() <= 12 * 88
    assert 0 <= landscape.wind_direction.min() < landscape.wind_direction.max() <= 360


def test_wind_of_noise_is_that_of_simfire_to_the_last_bit():
    parts = {
        "speed": {"seed": 2345, "scale": 400, "octaves": 3, "persistence": 0.7, "lacunarity": 2.0},
        "direction": {"seed": 650, "scale": 1500, "octaves": 2, "persistence": 0.9, "lacunarity": 1.0},
    }
    ranges = {"speed": (7.3, 47.1), "direction": (0.0, 360.0)}
    perlin = {
        name: {**part, "range_min": ranges[name][0], "range_max": ranges[name][1]}
        for name, part in parts.items()
    }
    config = {"area": {"screen_size": [9, 14]}, "wind": {"function": "perlin", "perlin": perlin}}
    landscape, ours = made(config, physics="simfire"), made(config)
    for name, unit in (("speed", 88), ("direction", 1)):
        part = {key: value for key, value in parts[name].items() if key != "seed"}
        unscaled = noise.grid((9, 14), offset=(float(parts[name]["seed"]),) * 2, **part)
        low, high = (bound * unit for bound in ranges[name])
        # In Python's own numbers, one by one, as SimFire does it.
        expected = np.array([(value + 1) * (high - low) / 2 + low for value in unscaled.ravel().tolist()])
        found = getattr(landscape, f"wind_{name}")
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found.ravel(), expected.astype(np.float32))
        np.testing.assert_allclose(getattr(ours, f"wind_{name}"), found, rtol=1e-6)
        assert (getattr(ours, f"wind_{name}") != found).any(), "behave keeps 64 bits"


def test_wind_can_be_maps():
    speed = np.arange(12.0).reshape(3, 4)
    config = {"area": {"screen_size": [3, 4]}, "wind": {"simple": {"speed": speed, "direction": 45}}}
    np.testing.assert_array_equal(made(config).wind_speed, speed * 88)


def test_moistures_by_class():
    found = made({"environment": {"moisture": {"m1h": 0.04, "woody": 0.9}, "live_herb": 0.7}}).moisture
    assert found == {"m1h": 0.04, "m10h": 0.04, "m100h": 0.04, "herb": 0.7, "woody": 0.9}


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"terrain": {"topography": {"type": "operational"}}}, "geotiff"),
        ({"terrain": {"topography": {"type": "historical"}}}, "array"),
        ({"terrain": {"fuel": {"type": "operational"}}}, "landfire"),
        ({"wind": {"function": "cfd"}}, "simple"),
    ],
)
def test_layers_that_need_data_say_how_to_give_it(config, word):
    with pytest.raises(LandscapeFault) as caught:
        made(config)
    assert word in caught.value.hint


def test_redraw_changes_what_is_randomised_and_shares_the_rest():
    every = ("elevation", "fuel", "wind", "moisture")
    for name in every:
        read = settings.read({"randomize": [name]})
        first = layers.make(read, np.random.default_rng(1))
        again = layers.redraw(read, first, np.random.default_rng(2))
        differs = {
            "elevation": not np.array_equal(first.elevation, again.elevation),
            "fuel": not np.array_equal(first.fuel, again.fuel),
            "wind": not np.array_equal(first.wind_speed, again.wind_speed),
            "moisture": first.moisture != again.moisture,
        }
        assert [part for part in every if differs[part]] == [name]
        assert again.elevation is first.elevation or name == "elevation"
        repeated = layers.redraw(read, first, np.random.default_rng(2))
        np.testing.assert_array_equal(repeated.fuel, again.fuel)
        assert repeated.moisture == again.moisture


def test_randomised_layers_overrule_seeds():
    config = {"randomize": ["elevation", "fuel"]}
    assert not np.array_equal(made(config, seed=1).elevation, made(config, seed=2).elevation)
    assert not np.array_equal(made(config, seed=1).fuel, made(config, seed=2).fuel)
    np.testing.assert_array_equal(made(config, seed=1).fuel, made(config, seed=1).fuel)


def ignited(position, seed=0, **more):
    read = settings.read({"fire": {"fire_initial_position": position}, **more})
    return layers.ignition(read, layers.make(read, np.random.default_rng(0)), np.random.default_rng(seed))


def test_static_start():
    assert ignited({"type": "static", "static": {"position": "(3, 4)"}}) == [(3, 4)]
    assert ignited({"type": "static"}, area={"screen_size": [10, 20]}) == [(10, 5)]


def test_a_seeded_random_start_is_that_of_simfire():
    rng = np.random.default_rng(7)
    x, y = int(rng.integers(20)), int(rng.integers(10))
    start = {"type": "random", "random": {"seed": 7}}
    found = {ignited(start, seed, area={"screen_size": [10, 20]})[0] for seed in range(3)}
    assert found == {(x, y)}


def test_random_starts_are_drawn_on_cells_that_burn():
    fuel = np.full((8, 8), 98)
    fuel[6, 1] = fuel[2, 5] = 1
    more = {"terrain": {"fuel": {"type": "array", "array": fuel}}}
    assert {ignited({"type": "random"}, seed, **more)[0] for seed in range(30)} == {(1, 6), (5, 2)}
    more = {"terrain": {"fuel": {"type": "array", "array": np.full((8, 8), 98)}}}
    with pytest.raises(LandscapeFault, match="no cell"):
        ignited({"type": "random"}, **more)


def test_several_starts_keep_their_distance():
    start = {"type": "several", "several": {"count": 5, "spacing": 12}}
    found = ignited(start)
    assert len(found) == 5
    apart = [np.hypot(ax - bx, ay - by) for i, (ax, ay) in enumerate(found) for bx, by in found[:i]]
    assert min(apart) >= 12
    with pytest.raises(LandscapeFault, match="of 5 fires fit"):
        ignited({"type": "several", "several": {"count": 5, "spacing": 90}})
