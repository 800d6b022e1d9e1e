"""Rates, headings and flames against the USFS Behave engine (pyrothermel) and against published numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire.fire import fuels, rothermel
from rayfish.worlds.wildfire.fire.fuels import BURNABLE
from rayfish.worlds.wildfire.fire.rothermel import surface_fire

DRY = (0.06, 0.07, 0.08, 0.6, 0.6)
CLOSE = {"rtol": 1e-6, "atol": 1e-9}


@pytest.fixture(scope="module")
def engine() -> ModuleType:
    return pytest.importorskip(
        "pyrothermel",
        reason="pyrothermel, the USFS Behave engine, cannot be imported",
        exc_type=ImportError,
    )


@pytest.fixture(scope="module")
def behave(engine: ModuleType) -> Callable[..., Any]:
    """A run of Behave: wind from and aspect in degrees from North, slope as rise per run."""
    units = engine.UnitsPreset.us_standard()
    units.spread_rate_units = engine.units.SpeedUnits.FeetPerMinute

    def run(number: int, moistures: Any, mph: float, slope: float, wind_from: float, aspect: float) -> Any:
        return engine.PyrothermelRun(
            engine.FuelModel.from_existing(int(number), units),
            engine.MoistureScenario(*map(float, moistures)),
            float(mph),
            units_preset=units,
            wind_input_mode="direct_midflame",
            wind_direction=float(wind_from),
            slope=math.degrees(math.atan(slope)),
            aspect=float(aspect),
        )

    return run


def draw(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Fuel models (each at least `count // 53` times), moistures [count, 5], winds, slopes."""
    rng = np.random.default_rng(seed)
    numbers = np.resize(np.array(BURNABLE), count)
    dead = rng.uniform(0.02, 0.30, (count, 3))
    live = rng.uniform(0.20, 2.00, (count, 2))
    return numbers, np.hstack([dead, live]), rng.uniform(0, 25, count), rng.uniform(0.01, 1.2, count)


def heads(cases: list[Any]) -> np.ndarray:
    """Rate, flame length and intensity of Behave's runs [cases, 3]."""
    found = [case.run_surface_fire_in_direction_of_max_spread() for case in cases]
    return np.array([[one["spread_rate"], one["flame_length"], one["fireline_intensity"]] for one in found])


def ours(fire: rothermel.SurfaceFire) -> np.ndarray:
    return np.column_stack([fire.spread_rate_ft_min, fire.flame_length_ft, fire.intensity_btu_ft_s])


def bearing(x: float, y: float) -> float:
    """Degrees clockwise from North of a vector on the grid, y downwards."""
    return math.degrees(math.atan2(x, -y)) % 360


def rate_toward(rate: float, ellipse: float, cosine: float) -> float:
    return 1 / rothermel.time_across(1.0, rate * (1 - ellipse), ellipse, cosine)


def toward(degrees: float) -> tuple[float, float]:
    return math.sin(math.radians(degrees)), -math.cos(math.radians(degrees))


@pytest.mark.parametrize(
    ("model", "mph", "slope", "rate"),
    [
        (1, 5, 0, 103.28),
        (2, 5, 0, 44.77),
        (3, 5, 0, 129.57),
        (4, 5, 0, 118.59),
        (5, 5, 0, 40.72),
        (8, 5, 0, 2.23),
        (10, 5, 0, 12.73),
        (13, 5, 0, 17.66),
        (1, 0, 0, 4.605),
        (4, 0, 0, 6.473),
        (4, 10, 0, 306.44),
        (4, 0, 0.3, 22.79),
    ],
)
def test_known_rates(model: int, mph: float, slope: float, rate: float) -> None:
    found = surface_fire(model, *DRY, mph, slope).spread_rate_ft_min
    assert isinstance(found, float)
    assert found == pytest.approx(rate, abs=0.006)


def test_level_ground_agrees_with_behave(behave: Callable[..., Any]) -> None:
    numbers, moistures, winds, _ = draw(477, seed=1)
    expected = heads([behave(n, m, w, 0.0, 0, 0) for n, m, w in zip(numbers, moistures, winds, strict=True)])
    assert (expected[:, 0] > 0).sum() > 300, "most of the cases should burn"
    np.testing.assert_allclose(ours(surface_fire(numbers, *moistures.T, winds, 0.0)), expected, **CLOSE)


def test_wind_limit_is_behaves_and_can_be_lifted(behave: Callable[..., Any]) -> None:
    numbers, moistures, winds, _ = draw(318, seed=2)
    limited = surface_fire(numbers, *moistures.T, winds, 0.0)
    free = surface_fire(numbers, *moistures.T, winds, 0.0, wind_limit=False)
    over = winds * 88 > 0.9 * limited.reaction_intensity
    assert 20 < over.sum() < 300
    expected = heads([behave(n, m, w, 0.0, 0, 0) for n, m, w in zip(numbers, moistures, winds, strict=True)])
    np.testing.assert_allclose(ours(limited)[over], expected[over], **CLOSE)
    np.testing.assert_allclose(ours(free)[~over], expected[~over], **CLOSE)
    burning = over & (limited.spread_rate_ft_min > 0)
    assert (free.spread_rate_ft_min > limited.spread_rate_ft_min)[burning].all()
    np.testing.assert_allclose(free.effective_wind_mph[burning], winds[burning])
    # At the limit the fire spreads as in a wind of 0.9 I_R, where limit and no limit are the same.
    at_limit = 0.9 * limited.reaction_intensity[burning] / 88
    again = surface_fire(numbers[burning], *moistures[burning].T, at_limit, 0.0, wind_limit=False)
    np.testing.assert_allclose(again.spread_rate_ft_min, limited.spread_rate_ft_min[burning], rtol=1e-9)


def test_without_limit_the_one_class_formula_holds_in_strong_wind() -> None:
    sav, depth, load, extinction, moisture, mph = 3500.0, 1.0, 0.034, 0.12, 0.05, 40.0
    packing_ratio = load / depth / 32
    packing = packing_ratio / (3.348 * sav**-0.8189)
    a, ratio = 133 * sav**-0.7913, moisture / extinction
    velocity = sav**1.5 / (495 + 0.0594 * sav**1.5) * packing**a * math.exp(a * (1 - packing))
    damping = (1 - 2.59 * ratio + 5.11 * ratio**2 - 3.52 * ratio**3) * 0.174 * 0.01**-0.19
    intensity = velocity * load * (1 - 0.0555) * 8000 * damping
    flux = math.exp((0.792 + 0.681 * sav**0.5) * (packing_ratio + 0.1)) / (192 + 0.2595 * sav)
    c, b, e = 7.47 * math.exp(-0.133 * sav**0.55), 0.02526 * sav**0.54, 0.715 * math.exp(-3.59e-4 * sav)
    wind = c * (88 * mph) ** b * packing**-e
    rate = intensity * flux * (1 + wind) / (load / depth * math.exp(-138 / sav) * (250 + 1116 * moisture))
    fire = surface_fire(1, moisture, 0.9, 0.9, 0.9, 0.9, mph, 0.0, wind_limit=False)
    assert fire.spread_rate_ft_min == pytest.approx(rate)
    assert fire.heat_per_unit_area == pytest.approx(intensity * 384 / sav)


@pytest.mark.parametrize(("wind_from", "sign"), [(180, 1.0), (0, -1.0)], ids=["upslope", "downslope"])
def test_wind_along_the_slope_agrees_with_behave(
    behave: Callable[..., Any], wind_from: float, sign: float
) -> None:
    numbers, moistures, winds, slopes = draw(318, seed=3)
    cases = zip(numbers, moistures, winds, slopes, strict=True)
    expected = heads([behave(n, m, w, s, wind_from, 180) for n, m, w, s in cases])
    np.testing.assert_allclose(
        ours(surface_fire(numbers, *moistures.T, winds, sign * slopes)), expected, **CLOSE
    )


def test_wind_across_the_slope_agrees_with_behave_in_every_direction(behave: Callable[..., Any]) -> None:
    numbers, moistures, winds, slopes = draw(318, seed=4)
    rng = np.random.default_rng(5)
    table, burning = fuels.table(), 0
    for i in range(len(numbers)):
        wind_from, aspect, off = rng.uniform(0, 360, 3)
        run = behave(numbers[i], moistures[i], winds[i], slopes[i], wind_from, aspect)
        expected = run.run_surface_fire_in_direction_of_max_spread()
        bed = rothermel.base(table[numbers[i]], *moistures[i])
        up_x, up_y = (slopes[i] * part for part in toward(aspect + 180))
        rate, x, y, ellipse, _ = rothermel.head(
            *bed[:5], winds[i], *toward(wind_from + 180), up_x, up_y, True
        )
        np.testing.assert_allclose(rate, expected["spread_rate"], **CLOSE)
        if rate == 0.0:
            continue
        burning += 1
        turn = (bearing(x, y) - expected["direction"] + 180) % 360 - 180
        # Behave turns headings less than half a degree off upslope into upslope.
        snapped = abs((expected["direction"] - aspect) % 360 - 180) < 1e-9
        assert abs(turn) < (0.5 if snapped else 1e-6)
        aside = run.run_surface_fire_in_direction_of_interest(expected["direction"] + off)
        there = rate_toward(rate, ellipse, math.cos(math.radians(off)))
        intensity = rothermel.fireline_intensity(bed[5], there)
        np.testing.assert_allclose(
            [there, intensity, rothermel.flame_length(intensity)],
            [aside["spread_rate"], aside["fireline_intensity"], aside["flame_length"]],
            **CLOSE,
        )
    assert burning > 150


def test_steep_slope_in_fuel_near_extinction_turns_the_heading_as_in_behave(
    behave: Callable[..., Any],
) -> None:
    bed = rothermel.base(fuels.table()[1], 0.1195, *DRY[1:])
    limit, phi_slope = 0.9 * bed[1], bed[4]
    assert phi_slope > limit, "the case should reach the cap on the slope coefficient"
    rate, x, y, _, _ = rothermel.head(*bed[:5], 2.0, 1.0, 0.0, 0.0, -1.0, True)
    run = behave(1, (0.1195, *DRY[1:]), 2.0, 1.0, 270, 180)
    expected = run.run_surface_fire_in_direction_of_max_spread()
    assert rate == pytest.approx(expected["spread_rate"])
    assert bearing(x, y) == pytest.approx(expected["direction"])


def test_fire_heads_uphill_without_wind() -> None:
    bed = rothermel.base(fuels.table()[4], *DRY)
    rate, x, y, ellipse, effective = rothermel.head(*bed[:5], 0.0, 1.0, 0.0, 0.0, -0.3, True)
    assert (x, y) == (0.0, -1.0), "the ground rises toward the top of the map"
    assert rate == pytest.approx(22.785, abs=0.01)
    assert 0 < ellipse < 1 and effective > 0
    assert rate_toward(rate, ellipse, -1.0) < rate_toward(rate, ellipse, 0.0) < rate


def test_still_air_on_level_ground_gives_a_circle() -> None:
    bed = rothermel.base(fuels.table()[1], *DRY)
    rate, x, y, ellipse, effective = rothermel.head(*bed[:5], 0.0, 0.0, 0.0, 0.0, 0.0, True)
    assert (rate, x, y, ellipse, effective) == (bed[0], 1.0, 0.0, 0.0, 0.0)
    assert rate_toward(rate, ellipse, -1.0) == rate


def test_the_ellipse_is_never_longer_than_eight_widths() -> None:
    assert rothermel.eccentricity(30.0) == rothermel.eccentricity(60.0) == pytest.approx(math.sqrt(63) / 8)


def test_herbs_of_dynamic_models_cure_as_they_dry() -> None:
    assert rothermel.cured_fraction(0.29) == rothermel.cured_fraction(0.30) == 1.0
    assert rothermel.cured_fraction(0.75) == pytest.approx(0.5005)
    assert rothermel.cured_fraction(1.21) == 0.0
    green, cured = surface_fire("GR2", 0.06, 0.07, 0.08, [1.3, 0.3], 0.6, 5, 0).spread_rate_ft_min
    assert cured > 10 * green


@pytest.mark.parametrize("model", [91, 99, -9999, "NB8"])
def test_ground_without_fuel_does_not_burn(model: int | str) -> None:
    fire = surface_fire(model, *DRY, 10, 0.5)
    assert (fire.spread_rate_ft_min, fire.flame_length_ft, fire.intensity_btu_ft_s) == (0.0, 0.0, 0.0)


def test_fuel_wetter_than_extinction_does_not_burn() -> None:
    fire = surface_fire(1, 0.12, 0.12, 0.12, 1.0, 1.0, 10, 0.5)
    assert (fire.spread_rate_ft_min, fire.flame_length_ft, fire.effective_wind_mph) == (0.0, 0.0, 0.0)


def test_inputs_broadcast() -> None:
    winds, models = np.array([0.0, 5.0, 10.0]), np.array([[1], [4]])
    fire = surface_fire(models, *DRY, winds, 0.1)
    assert fire.spread_rate_ft_min.shape == fire.flame_length_ft.shape == fire.eccentricity.shape == (2, 3)
    assert fire.spread_rate_ft_min[1, 2] == surface_fire(4, *DRY, 10.0, 0.1).spread_rate_ft_min


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"m1h": 6}, "write 0.06 for 6 %"),
        ({"m_herb": float("nan")}, "m_herb is nan"),
        ({"midflame_mph": -1}, "midflame_mph is -1"),
        ({"slope": float("inf")}, "slope is inf"),
        ({"fuel_model": 14}, "no fuel model 14"),
    ],
)
def test_impossible_inputs_are_named(changed: dict[str, float], words: str) -> None:
    names = ("m1h", "m10h", "m100h", "m_herb", "m_woody")
    given = {"fuel_model": 1, **dict(zip(names, DRY, strict=True)), "midflame_mph": 5, "slope": 0}
    with pytest.raises(RayfishError) as error:
        surface_fire(**{**given, **changed})
    assert words in str(error.value)
