"""Maps from files: GeoTIFF with its cell size and gaps, NumPy arrays, and what they cannot be."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from rayfish.errors import MissingExtra
from rayfish.worlds.wildfire.fire import geo, layers, settings
from rayfish.worlds.wildfire.fire.readers import SettingsFault

rasterio = pytest.importorskip("rasterio")

ALBERS, DEGREES, STATE_PLANE_FEET = "EPSG:5070", "EPSG:4326", "EPSG:2229"


def write(path, values, *, crs=ALBERS, side=30.0, nodata=None, height=None):
    transform = rasterio.transform.Affine(side, 0, 1000, 0, -(height or side), 2000)
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=values.shape[1],
        height=values.shape[0],
        count=1,
        dtype=values.dtype,
        crs=crs,
        transform=transform,
        nodata=nodata,
    ) as file:
        file.write(values, 1)
    return str(path)


def config(elevation=None, fuel=None, **more):
    terrain = {}
    if elevation:
        terrain["topography"] = {"type": "geotiff", "path": elevation, **more.pop("topography", {})}
    if fuel:
        terrain["fuel"] = {"type": "landfire", "path": fuel}
    return {"terrain": terrain, **more}


@pytest.fixture
def hills(tmp_path):
    return write(tmp_path / "hills.tif", np.arange(20, dtype=np.int16).reshape(4, 5))


@pytest.fixture
def fbfm(tmp_path):
    codes = np.array(
        [[1, 2, 3, 4, 13], [91, 92, 93, 98, 99], [101, 122, 145, 165, 204], [-9999, 32767, 8, 8, 8]]
    )
    return write(tmp_path / "fbfm.tif", codes.astype(np.int16), nodata=32767)


def test_a_geotiff_brings_shape_cell_size_and_feet(hills):
    found = settings.read(config(hills))
    assert found.area.screen_size == (4, 5)
    assert found.area.pixel_scale == pytest.approx(30 / 0.3048)
    landscape = layers.make(found, np.random.default_rng(0))
    assert landscape.elevation[1, 2] == pytest.approx(7 * 3.28084)


def test_units_and_area_override_the_file(hills):
    found = settings.read(config(hills, topography={"units": "ft"}, area={"pixel_scale": 98}))
    assert found.area.pixel_scale == 98
    assert layers.make(found, np.random.default_rng(0)).elevation[1, 2] == 7


def test_landfire_codes_are_taken_as_they_are(hills, fbfm):
    fuel = layers.make(settings.read(config(hills, fbfm)), np.random.default_rng(0)).fuel
    assert fuel[0].tolist() == [1, 2, 3, 4, 13]
    assert fuel[1].tolist() == [91, 92, 93, 98, 99]
    assert fuel[2].tolist() == [101, 122, 145, 165, 204]
    assert fuel[3, :2].tolist() == [99, 99], "no data is bare ground"


def test_cells_in_feet_stay_feet(tmp_path):
    path = write(tmp_path / "feet.tif", np.zeros((2, 2), np.float32), crs=STATE_PLANE_FEET, side=100.0)
    assert settings.read(config(path)).area.pixel_scale == pytest.approx(100, rel=1e-4)


def test_degrees_need_a_cell_size(tmp_path):
    path = write(tmp_path / "degrees.tif", np.zeros((2, 2), np.float32), crs=DEGREES, side=0.001)
    with pytest.raises(SettingsFault, match="degrees") as caught:
        settings.read(config(path))
    assert "area.pixel_scale" in caught.value.hint
    assert settings.read(config(path, area={"pixel_scale": 300})).area.pixel_scale == 300


def test_elevation_without_data_is_refused_or_filled(tmp_path):
    values = np.array([[5.0, -9999.0], [7.0, np.nan]], np.float32)
    path = write(tmp_path / "gaps.tif", values, nodata=-9999.0)
    with pytest.raises(geo.MapFault, match="2 of 4 cells") as caught:
        settings.read(config(path))
    assert "fill" in caught.value.hint
    filled = settings.read(config(path, topography={"fill": 3.0, "units": "ft"})).terrain.topography.array
    assert filled.tolist() == [[5, 3], [7, 3]]


def test_maps_of_different_cells_are_refused(tmp_path, hills):
    coarse = write(tmp_path / "coarse.tif", np.ones((4, 5), np.int16), side=90.0)
    with pytest.raises(SettingsFault, match=r"98\.43.*295\.28"):
        settings.read(config(hills, coarse))


def test_oblong_cells_and_upside_down_maps_are_refused(tmp_path):
    oblong = write(tmp_path / "oblong.tif", np.ones((2, 2), np.int16), height=60.0)
    with pytest.raises(geo.MapFault, match="30 by 60"):
        settings.read(config(oblong))
    turned = write(tmp_path / "turned.tif", np.ones((2, 2), np.int16), height=-30.0)
    with pytest.raises(geo.MapFault, match="turned"):
        settings.read(config(turned))


def test_files_that_are_no_maps_are_named(tmp_path):
    (tmp_path / "text.tif").write_text("no raster")
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "map.png").write_bytes(b"")
    np.save(tmp_path / "deep.npy", np.zeros((2, 2, 2)))
    for name, message in {
        "text.tif": "cannot be read",
        "text.npy": "cannot be read",
        "map.png": "no map",
        "deep.npy": r"shape \(2, 2, 2\)",
        "nothing.tif": "no file",
    }.items():
        with pytest.raises(geo.MapFault, match=message):
            settings.read(config(str(tmp_path / name)))


def test_without_rasterio_the_extra_is_named(hills, monkeypatch):
    imported = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "rasterio":
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match="rasterio") as caught:
        settings.read(config(hills))
    assert caught.value.hint == "pip install 'rayfish[geo]'"
