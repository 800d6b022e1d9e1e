"""Settings of a wildfire: SimFire's files as they are, our keys beside, and messages that help."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import yaml

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire import Simulator
from rayfish.worlds.wildfire.fire import readers, settings
from rayfish.worlds.wildfire.fire.readers import SettingsFault
from rayfish.worlds.wildfire.fire.settings import read
from tests.helpers import ROOT

DATA = Path(__file__).parents[2] / "data" / "wildfire"
RECORDINGS = ("gaussian_lines_stop_4way", "perlin_lines_debt", "perlin_mixed_fuel")


def recorded_config(name: str) -> dict:
    with np.load(DATA / f"{name}.npz") as recording:
        return json.loads(str(recording["config"]))


def fault_of(config: object) -> SettingsFault:
    with pytest.raises(SettingsFault) as caught:
        settings.read(config)
    assert caught.value.hint, "a fault names the next step"
    return caught.value


def test_defaults_are_the_default_landscape():
    found = settings.read()
    assert found.area.screen_size == (64, 64)
    assert (found.area.pixel_scale, found.simulation.update_rate) == (50.0, 1.0)
    assert found.simulation.physics == "behave"
    assert found.terrain.topography.functional.function == "perlin"
    assert found.terrain.fuel.functional.patches.models == (1, 2, 4, 5)
    assert (found.wind.simple.speed, found.wind.simple.direction) == (7.0, 90.0)
    assert found.environment.moisture == 0.06
    assert found.fire.fire_initial_position.type == "random"
    assert found.randomize == ("ignition",)
    assert found.fire.spotting is None


@pytest.mark.parametrize("name", RECORDINGS)
def test_simfire_files_are_read_as_they_are(name, tmp_path):
    config = recorded_config(name)
    path = tmp_path / "config.yml"
    path.write_text(yaml.safe_dump(config))
    found = settings.read(path)
    assert found.area.screen_size == (40, 40)
    assert found.simulation.runtime == 600_000
    assert found.terrain.topography.functional.perlin.seed == 827
    assert found.fire.fire_initial_position.static.position == (20, 20)
    assert found.wind.perlin.speed.range_max == 47
    assert found.randomize == (), "a static start stays where it is"
    assert settings.digest(found) == settings.digest(settings.read(config))


def test_operational_and_historical_sections_are_accepted():
    found = settings.read(
        {
            "operational": {"seed": None, "latitude": 38.4, "longitude": -115, "height": 2000, "year": 2020},
            "historical": {"path": "/data", "year": 2020, "state": "California", "fire": "Mineral"},
            "terrain": {"topography": {"type": "operational"}, "fuel": {"type": "historical"}},
        }
    )
    assert found.operational.latitude == 38.4
    assert found.historical.fire == "Mineral"


def test_keys_of_simfire_files_that_mean_nothing_are_ignored():
    config = {
        "display": {"rescale_factor": "None", "rescale_size": 225},
        "historical": {"default": True, "path": "../burnmd/BurnMD", "height": 12_000, "width": 12_000},
        "terrain": {
            "fuel": {"burn_probability": {"type": "historical", "functional": {"function": "perlin"}}}
        },
    }
    found = settings.read(config)
    assert found.display.rescale_factor is None and found.display.rescale_size == 225
    assert settings.digest(found.terrain) == settings.digest(settings.read().terrain)
    assert settings.read({"display": {"rescale_size": "None"}}).display.rescale_size is None


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("24h", 1440),
        ("1d 2h", 1560),
        ("90m", 90),
        ("15", 15),
        ("90s", 2),
        ("1.5h", 90),
        ("1w", 10080),
        (30, 30),
        ("1d2h", 1560),
        ("24H", 1440),
        ("2days", 2880),
        ("90minutes", 90),
        ("1Hour 30mins", 90),
        ("12h30", 750),
    ],
)
def test_times_are_minutes(text, minutes):
    assert readers.minutes_of(text) == minutes


@pytest.mark.parametrize("text", ["24 h", "", "soon", "5y", "2months", "-3h", "1h, 2m", True, None])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(SettingsFault, match="no time"):
        readers.minutes_of(text)


def test_runtime_of_a_file_is_a_time():
    assert settings.read({"simulation": {"runtime": "1d 2h"}}).simulation.runtime == 1560
    assert "simulation.runtime" in fault_of({"simulation": {"runtime": "soon"}}).what


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"are": {}}, "area"),
        ({"area": {"screensize": [3, 3]}}, "screen_size"),
        ({"display": {"rescale_faktor": 2}}, "rescale_factor"),
        ({"wind": {"simple": {"sped": 3}}}, "speed"),
        ({"terrain": {"fuel": {"functional": {"patches": {"model": [1]}}}}}, "models"),
        ({"terrain": {"topography": {"functional": {"function": "perlim"}}}}, "perlin"),
        ({"mitigation": {"holding_ft": {"firelines": 3}}}, "fireline"),
        ({"environment": {"moisture": {"m1": 0.1}}}, "m1h"),
        ({"randomize": ["fuels"]}, "fuel"),
        ({"terrain": {"fuel": {"functional": {"uniform": {"model": "GRR2"}}}}}, "GR2"),
    ],
)
def test_unknown_names_suggest_the_known(config, hint):
    found_hint = fault_of(config).hint
    assert found_hint.startswith("did you mean ") and hint in found_hint


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({"area": {"screen_size": [0, 4]}}, "area.screen_size"),
        ({"area": {"screen_size": [4, 4, 4]}}, "area.screen_size"),
        ({"area": {"pixel_scale": 0}}, "area.pixel_scale"),
        ({"simulation": {"update_rate": "fast"}}, "simulation.update_rate"),
        ({"simulation": {"headless": "yes"}}, "simulation.headless"),
        ({"fire": {"max_fire_duration": 2.5}}, "fire.max_fire_duration"),
        ({"fire": {"spotting": {"probability": 2}}}, "fire.spotting.probability"),
        ({"fire": {"fire_initial_position": {"static": {"position": [1]}}}}, "static.position"),
        ({"environment": {"moisture": -0.1}}, "environment.moisture"),
        ({"environment": {"moisture": [[0.1, float("nan")]]}}, "environment.moisture"),
        ({"wind": {"simple": {"speed": True}}}, "wind.simple.speed"),
        ({"wind": {"function": "series", "series": [[5, 7, 90]]}}, "wind.series"),
        ({"wind": {"function": "series", "series": [[0, 7, 90], [0, 8, 90]]}}, "wind.series"),
        ({"wind": {"function": "series", "series": [[0, 7]]}}, "wind.series"),
        ({"wind": {"function": "series"}}, "wind.series"),
        ({"wind": {"random": {"speed_factor": [2, 1]}}}, "wind.random.speed_factor"),
        ({"terrain": {"fuel": {"edits": [{"box": [0, 0, 3, 3]}]}}}, "terrain.fuel.edits[0]"),
        ({"terrain": {"fuel": {"edits": [{"cells": [[64, 0]], "model": 1}]}}}, "terrain.fuel.edits[0].cells"),
        ({"terrain": {"roads": [{"box": [3, 3, 1, 1]}]}}, "terrain.roads[0].box"),
        ({"terrain": {"water": [{"box": [70, 0, 80, 9]}]}}, "terrain.water[0].box"),
        ({"terrain": {"water": [{"box": [0, 0, 1, 1], "line": [[0, 0], [1, 1]]}]}}, "terrain.water[0]"),
        ({"terrain": {"topography": {"type": "array"}}}, "terrain.topography"),
        ({"terrain": {"topography": {"type": "array", "array": [1, 2]}}}, "terrain.topography.array"),
        ({"terrain": {"fuel": {"type": "array", "array": [[14]]}}}, "terrain.fuel"),
        ({"terrain": {"fuel": {"type": "array", "array": [[1.5]]}}}, "terrain.fuel"),
        ({"terrain": "flat"}, "terrain"),
        ([], "config"),
        ("/nowhere/config.yml", "config.yml"),
    ],
)
def test_values_that_do_not_fit_are_named(config, where):
    assert where in fault_of(config).what


def test_a_start_off_the_map_is_refused_with_the_map():
    config = {
        "area": {"screen_size": [10, 20]},
        "fire": {"fire_initial_position": {"type": "static", "static": {"position": "(12, 11)"}}},
    }
    fault = fault_of(config)
    assert "(12, 11)" in fault.what and "20 columns and 10 rows" in fault.what


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (
            {"terrain": {"topography": {"functional": {"function": "flat"}}}, "randomize": ["elevation"]},
            "elevation",
        ),
        ({"terrain": {"fuel": {"functional": {"function": "uniform"}}}, "randomize": ["fuel"]}, "fuel"),
        ({"fire": {"fire_initial_position": {"type": "static"}}, "randomize": ["ignition"]}, "ignition"),
    ],
)
def test_randomize_needs_something_to_draw(config, name):
    assert f"randomize has {name}" in fault_of(config).what


def test_maps_bring_the_area_and_must_agree(tmp_path):
    np.save(tmp_path / "hills.npy", np.arange(12.0).reshape(3, 4))
    (tmp_path / "config.yml").write_text("terrain: {topography: {type: array, path: hills.npy, units: m}}")
    found = settings.read(tmp_path / "config.yml")
    assert found.area.screen_size == (3, 4)
    assert found.terrain.topography.array[0, 1] == pytest.approx(3.28084)
    config = {
        "terrain": {
            "topography": {"type": "array", "path": tmp_path / "hills.npy"},
            "fuel": {"type": "array", "array": np.ones((4, 3), int)},
        }
    }
    assert "3x4" in fault_of(config).what and "4x3" in fault_of(config).what
    config = {"area": {"screen_size": [5, 5]}, "terrain": {"fuel": {"type": "array", "array": [[1, 1]]}}}
    assert "area.screen_size has 5x5" in fault_of(config).what
    fault = fault_of({"environment": {"moisture": np.full((3, 3), 0.1)}})
    assert "3x3" in fault.what and "64x64" in fault.what


def test_physics_can_be_overridden_also_in_settings_read_before():
    before = settings.read({"simulation": {"physics": "behave"}})
    assert settings.read(before) is before
    assert settings.read(before, physics="simfire").simulation.physics == "simfire"
    assert before.simulation.physics == "behave"
    with pytest.raises(SettingsFault, match="simfyre"):
        settings.read(before, physics="simfyre")


def test_physics_may_stand_beside_the_sections(tmp_path):
    config = {"physics": "simfire", "simulation": {"runtime": "2h"}}
    found = settings.read(config)
    assert (found.simulation.physics, found.simulation.runtime) == ("simfire", 120)
    assert config == {"physics": "simfire", "simulation": {"runtime": "2h"}}, "what was given stays as it was"
    path = tmp_path / "config.yml"
    path.write_text("physics: simfire\n")
    assert settings.read(path).simulation.physics == "simfire"
    assert settings.read({"physics": "simfire", "simulation": None}).simulation.physics == "simfire"
    assert settings.read({"physics": None}).simulation.physics == "behave"
    assert settings.read(config, physics="behave").simulation.physics == "behave"
    twice = {"physics": "simfire", "simulation": {"physics": "simfire"}}
    assert settings.read(twice).simulation.physics == "simfire"
    fault = fault_of({"physics": "simfire", "simulation": {"physics": "behave"}})
    assert "physics is 'simfire'" in fault.what and "simulation.physics is 'behave'" in fault.what
    assert "physics is 'simfyre'" in fault_of({"physics": "simfyre"}).what
    assert "simulation is 'fast'" in fault_of({"physics": "simfire", "simulation": "fast"}).what


def test_a_series_of_winds_is_refused_by_simfire():
    config = {"wind": {"function": "series", "series": [[0, 5, 90], [30, 10, 180]]}}
    assert "wind.function is series" in fault_of({**config, "physics": "simfire"}).what
    for given in (config, settings.read(config)):
        with pytest.raises(SettingsFault, match="never changes") as caught:
            settings.read(given, physics="simfire")
        assert "behave" in caught.value.hint
    steady = {"wind": {**config["wind"], "function": "simple"}, "physics": "simfire"}
    assert settings.read(steady).wind.series, "a series that is not used is no fault"


def test_holding_keeps_the_kinds_that_are_not_given():
    held = settings.read({"mitigation": {"holding_ft": {"wetline": 3}}}).mitigation.holding_ft
    assert held == {"fireline": 11.0, "scratchline": 4.0, "wetline": 3.0}


def test_digest_tells_contents_apart_and_survives_pickling():
    hills = np.zeros((5, 5))
    config = {"terrain": {"topography": {"type": "array", "array": hills}}}
    before = settings.digest(settings.read(config))
    assert settings.digest(pickle.loads(pickle.dumps(settings.read(config)))) == before
    hills[2, 2] = 1
    assert settings.digest(settings.read(config)) != before


STOCK = ROOT.parent / "shared" / "simfire-configs"


@pytest.mark.skipif(not STOCK.is_dir(), reason="SimFire's files are not here")
def test_stock_files_of_simfire_load():
    assert Simulator(STOCK / "functional_config.yml").landscape(0).elevation.shape == (225, 225)
    for name in ("operational_config.yml", "build_wind_config.yml"):
        read(STOCK / name)  # only what is burnt on needs data from the network
        with pytest.raises(RayfishError, match="LANDFIRE over the network"):
            Simulator(STOCK / name)


def test_historical_data_are_missed_only_where_they_are_used():
    historical = {"use": False, "name": "Mineral", "year": "2020", "fire_init_pos_lat": 36.1}
    assert not read({"historical": historical}).historical.use
    with pytest.raises(SettingsFault, match="use is true"):
        read({"historical": {**historical, "use": True}})


def test_the_range_of_wind_by_its_older_names():
    noise = {"speed": {"min": 7, "max": 47}, "direction": {"min": 0, "range_max": 90}}
    wind = read({"wind": {"function": "perlin", "perlin": noise}}).wind.perlin
    assert (wind.speed.range_min, wind.speed.range_max) == (7, 47)
    assert (wind.direction.range_min, wind.direction.range_max) == (0, 90)
