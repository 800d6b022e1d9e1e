from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire.fire import fuels
from rayfish.worlds.wildfire.fire.fuels import BURNABLE, FUEL_MODELS


def test_anderson_and_scott_burgan_burn_and_nothing_else() -> None:
    assert len(BURNABLE) == 53
    assert [number for number in BURNABLE if number < 100] == list(range(1, 14))
    for number in (91, 92, 93, 98, 99, *fuels.NO_DATA):
        assert not FUEL_MODELS[number].burnable


def test_every_model_is_behaves_own() -> None:
    pyrothermel = pytest.importorskip(
        "pyrothermel",
        reason="pyrothermel, the USFS Behave engine, cannot be imported",
        exc_type=ImportError,
    )
    units = pyrothermel.UnitsPreset.us_standard()
    units.loading_units = pyrothermel.units.LoadingUnits.PoundsPerSquareFoot
    for number in BURNABLE:
        ours, theirs = FUEL_MODELS[number], pyrothermel.FuelModel.from_existing(number, units)
        assert ours.code == theirs.code
        pairs = [
            (ours.depth_ft, theirs.fuel_bed_depth),
            (ours.extinction, theirs.moisture_of_extinction_dead),
            (ours.w1h, theirs.fuel_load_one_hour),
            (ours.w10h, theirs.fuel_load_ten_hour),
            (ours.w100h, theirs.fuel_load_hundred_hour),
            (ours.herb, theirs.fuel_load_live_herbaceous),
            (ours.woody, theirs.fuel_load_live_woody),
            (ours.sav1h, theirs.savr_one_hour),
            (ours.heat, theirs.heat_of_combustion_dead),
            (ours.heat, theirs.heat_of_combustion_live),
        ]
        # A ratio counts only where its class has a load.
        pairs += [(ours.sav_herb, theirs.savr_live_herbaceous)] if ours.herb else []
        pairs += [(ours.sav_woody, theirs.savr_live_woody)] if ours.woody else []
        np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-6, err_msg=ours.code)
        assert ours.dynamic == (theirs.is_dynamic and ours.herb > 0)


def test_table_has_a_row_per_number_in_the_order_of_its_columns() -> None:
    table = fuels.table()
    model = FUEL_MODELS[106]
    row = table[106]
    assert row[fuels.DEPTH] == model.depth_ft == 1.5
    assert row[fuels.W_HERB] == model.herb == pytest.approx(3.4 * 2000 / 43560)
    assert row[fuels.SAV1H] == model.sav1h == 2200
    assert row[fuels.HEAT] == model.heat == 9000
    assert row[fuels.DYNAMIC] == 1.0
    assert table[99, fuels.W1H : fuels.W_WOODY + 1].sum() == 0.0
    known = {number for number in FUEL_MODELS if 0 <= number < 256}
    assert set(np.flatnonzero(~np.isnan(table).any(axis=1))) == known


def test_numbers_and_codes_mean_the_same_and_no_data_is_bare_ground() -> None:
    assert fuels.as_numbers([["FM4", "gr2"], ["NB9", "SB4"]]).tolist() == [[4, 102], [99, 204]]
    assert fuels.as_numbers(np.array([4, -9999, -32768, 32767, 102])).tolist() == [4, 99, 99, 99, 102]
    assert fuels.as_numbers(7).shape == ()


@pytest.mark.parametrize(
    ("model", "next_step"), [("GR22", "did you mean GR2"), (14, "nearest is 13"), (205, "nearest is 204")]
)
def test_unknown_model_names_its_neighbour(model: int | str, next_step: str) -> None:
    with pytest.raises(RayfishError, match=f"no fuel model .*{model}") as error:
        fuels.find(model)
    assert next_step in error.value.hint


def test_models_cannot_be_changed_by_accident() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FUEL_MODELS[1].depth_ft = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        FUEL_MODELS[1] = FUEL_MODELS[2]  # type: ignore[index]
