"""Maps from files: NumPy's `.npy` and GeoTIFF (elevation, LANDFIRE's fuel models)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rayfish.errors import EnvironmentFault, MissingExtra

FEET_PER_METRE = 3.28084
"""As SimFire converts elevation."""

_RASTERS = (".tif", ".tiff")
SUFFIXES = (".npy", *_RASTERS)
"""Names of files that `load` reads end so."""

_SQUARE = 0.01
"""How much the sides of a cell may differ, as a share, before the map counts as distorted."""


class MapFault(EnvironmentFault):
    """A file with a map is missing or does not hold one."""


@dataclass(frozen=True, eq=False)
class Raster:
    """A map as it lies in a file."""

    values: NDArray[Any]  # [rows, columns], row 0 in the North; numbers as in the file
    known: NDArray[np.bool_]  # bool [rows, columns], False where the file has no data
    # side of a cell in feet; None when the file does not say it in a unit of length
    cell_ft: float | None = None
    placed: bool = False  # the file says where on Earth the map lies


def load(path: str | Path, where: str) -> Raster:
    """The map in a file; `where` is the setting that named it, for messages.

    :raises MapFault: no such file, or not one map of two dimensions
    :raises MissingExtra: a GeoTIFF, and `rasterio` is not installed
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise MapFault(f"{where}: there is no file {path}", f"check {where}")
    if path.suffix.lower() in _RASTERS:
        return _geotiff(path, where)
    if path.suffix.lower() == ".npy":
        return _numpy(path, where)
    raise MapFault(
        f"{where}: {path.name} is no map that can be read",
        "give a GeoTIFF (.tif) or an array saved by np.save",
    )


def elevation_ft(raster: Raster, units: str, fill: float | None, where: str) -> NDArray[np.float64]:
    """Elevation in feet.

    :param units: "m" or "ft", what the file holds
    :param fill: feet for cells without data; None when there must be none
    """
    factor = FEET_PER_METRE if units == "m" else 1.0
    values = raster.values.astype(np.float64) * factor
    unknown = ~raster.known
    if unknown.any():
        if fill is None:
            raise MapFault(
                f"{where}: {int(unknown.sum())} of {unknown.size} cells of the elevation have no data",
                "crop the file, or set terrain.topography.fill to the feet they shall have",
            )
        values[unknown] = fill
    return values


def _numpy(path: Path, where: str) -> Raster:
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise MapFault(f"{where}: {path.name} cannot be read: {error}", "save it again by np.save") from None
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind not in "biuf":
        shape, kind = getattr(values, "shape", "?"), getattr(values, "dtype", "?")
        raise MapFault(
            f"{where}: {path.name} holds an array of shape {shape} of {kind}",
            "save one array of numbers [rows, columns]",
        )
    return Raster(values, np.isfinite(values))


def _geotiff(path: Path, where: str) -> Raster:
    try:
        import rasterio
    except ImportError:
        raise MissingExtra("rasterio", "geo", "a GeoTIFF map") from None
    try:
        with warnings.catch_warnings(action="ignore"), rasterio.open(path) as file:
            band = file.read(1, masked=True)
            sides = abs(file.transform.a), abs(file.transform.e)
            upright = file.transform.b == 0 and file.transform.d == 0 and file.transform.e < 0
            placed, crs = not file.transform.is_identity, file.crs
    except rasterio.errors.RasterioError as error:
        raise MapFault(f"{where}: {path.name} cannot be read: {error}", "give a GeoTIFF") from None
    if placed and not upright:
        raise MapFault(
            f"{where}: {path.name} is turned: its rows do not run from North to South",
            "warp it first, for example by gdalwarp",
        )
    values = np.ma.getdata(band)
    known = ~np.ma.getmaskarray(band) & np.isfinite(values)
    return Raster(values, known, _cell_ft(path, where, sides, crs) if placed else None, placed)


def _cell_ft(path: Path, where: str, sides: tuple[float, float], crs: Any) -> float | None:
    """Side of a cell; None when the file measures in degrees or does not say in what."""
    if crs is None or not crs.is_projected:
        return None
    if abs(sides[0] - sides[1]) > _SQUARE * max(sides):
        raise MapFault(
            f"{where}: cells of {path.name} are {sides[0]:g} by {sides[1]:g} {crs.linear_units}, not square",
            "resample it to square cells, for example by gdalwarp -tr",
        )
    return float(sides[0] * crs.linear_units_factor[1] / 0.3048)
