"""The settings of a wildfire: SimFire's configuration as it is, with Rayfish's own keys beside.

`read` takes a mapping, a YAML file or nothing and gives `Settings`, one frozen dataclass per section (see
`sections`). Maps named in it (arrays, `.npy`, GeoTIFF) are loaded here, so that making a landscape never
touches the disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from rayfish.errors import RayfishError
from rayfish.experiment.yaml_reader import explain, safe_load
from rayfish.worlds.wildfire.fire import fuels, geo, readers
from rayfish.worlds.wildfire.fire.readers import SettingsFault
from rayfish.worlds.wildfire.fire.sections import BARE, PHYSICS, Area, Fire, Settings, Shape

_FILES = (*geo.SUFFIXES, ".jsonl")


def read(
    config: Mapping[str, Any] | str | Path | Settings | None = None, physics: str | None = None
) -> Settings:
    """The settings of a wildfire; what is not given has Rayfish's default.

    :param config: a mapping, the path of a YAML file, or settings already read; None is the default
        landscape. A key `physics` beside the sections means `simulation.physics`
    :param physics: overrides what the configuration says of it
    :raises SettingsFault: an unknown key, or a value that does not fit
    """
    if not isinstance(config, Settings):
        given = _with_physics(_mapping(config))
        settings = _with_maps(readers.section(Settings, given, ""), given.get("area") or {})
        if settings.randomize is None:
            settings = replace(settings, randomize=("ignition",) if _draws_ignition(settings.fire) else ())
        _check(settings)
    else:
        settings = config
    if physics is not None:
        chosen = readers.choice(*PHYSICS)(physics, "physics")
        settings = replace(settings, simulation=replace(settings.simulation, physics=chosen))
    _check_physics(settings)
    return settings


def digest(part: Any) -> str:
    """The SHA-256 of settings, or of a part of them: the same for the same content, maps included."""
    return hashlib.sha256(json.dumps(_plain(part), sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """As JSON has it; an array by its content."""
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, np.ndarray):
        content = np.ascontiguousarray(value)
        return [str(content.dtype), list(content.shape), hashlib.sha256(content.tobytes()).hexdigest()]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _mapping(config: Mapping[str, Any] | str | Path | None) -> Mapping[str, Any]:
    """What is written, from a file when it is a path."""
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return config
    if not isinstance(config, str | Path):
        raise SettingsFault(
            f"a wildfire's config is {type(config).__name__}",
            "give a mapping, the path of a YAML file, or None",
        )
    path = Path(config).expanduser()
    if not path.is_file():
        raise SettingsFault(f"there is no file {path}", "give the path of a YAML file, or a mapping")
    try:
        text = path.read_text(encoding="utf-8")
        given = safe_load(text)
    except UnicodeDecodeError:
        raise SettingsFault(f"{path} is not UTF-8 text", "save it as UTF-8 in your editor") from None
    except yaml.YAMLError as error:
        line, what, hint = explain(error, text)
        raise SettingsFault(f"{path}:{line} cannot be read: {what}", hint) from None
    if not isinstance(given, Mapping):
        raise SettingsFault(f"{path} holds no sections", "write area:, terrain:, wind: and so on")
    return dict(_beside(given, path.parent))


def _with_physics(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """With a key `physics` beside the sections moved to where it belongs, `simulation.physics`."""
    physics, simulation = given.get("physics"), given.get("simulation")
    rest = {key: item for key, item in given.items() if key != "physics"}
    if physics is None or not isinstance(simulation, Mapping | None):
        return rest
    chosen = readers.choice(*PHYSICS)(physics, "physics")
    before = (simulation or {}).get("physics")
    if before not in (None, chosen):
        raise SettingsFault(
            f"physics is {chosen!r}, and simulation.physics is {before!r}",
            "give one of them, or the same twice",
        )
    return rest | {"simulation": {**(simulation or {}), "physics": chosen}}


def _beside(given: Any, folder: Path) -> Any:
    """With relative paths of maps and sets of scenarios that lie beside the file made whole."""
    if isinstance(given, Mapping):
        return {key: _beside(item, folder) for key, item in given.items()}
    if isinstance(given, list):
        return [_beside(item, folder) for item in given]
    if isinstance(given, str) and Path(given).suffix.lower() in _FILES and (folder / given).is_file():
        return str(folder / given)
    return given


def _with_maps(settings: Settings, area: Mapping[str, Any]) -> Settings:
    """With elevation and fuels loaded, and the area that they bring; `area` is what was written."""
    terrain = settings.terrain
    topography, fuel = terrain.topography, terrain.fuel
    rasters: dict[str, geo.Raster] = {}
    if topography.type in ("array", "geotiff"):
        raster = _raster(topography.path, topography.array, "terrain.topography")
        units = topography.units or ("m" if topography.type == "geotiff" else "ft")
        feet = geo.elevation_ft(raster, units, topography.fill, "terrain.topography")
        topography = replace(topography, array=_frozen(feet), units="ft")
        rasters["terrain.topography"] = raster
    if fuel.type in ("array", "landfire"):
        raster = _raster(fuel.path, fuel.array, "terrain.fuel")
        fuel = replace(fuel, array=_frozen(_fuel_models(raster)))
        rasters["terrain.fuel"] = raster
    if not rasters:
        return settings
    sizes = {where: raster.values.shape for where, raster in rasters.items()}
    if area.get("screen_size") is not None:
        sizes["area.screen_size"] = settings.area.screen_size
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{where} has {rows}x{columns}" for where, (rows, columns) in sizes.items())
        raise SettingsFault(
            f"maps of different sizes (rows x columns): {listed}",
            "crop the maps to the same cells, and leave area.screen_size out",
        )
    rows, columns = next(iter(sizes.values()))
    side = settings.area.pixel_scale if area.get("pixel_scale") is not None else _cell_side(rasters)
    return replace(
        settings,
        area=replace(settings.area, screen_size=(rows, columns), pixel_scale=side),
        terrain=replace(terrain, topography=topography, fuel=fuel),
    )


def _raster(path: str | None, array: NDArray[Any] | None, where: str) -> geo.Raster:
    if (path is None) == (array is None):
        found = "neither path nor array" if path is None else "both path and array"
        raise SettingsFault(f"{where} has {found}", f"give {where}.path or {where}.array")
    if path is not None:
        return geo.load(path, f"{where}.path")
    values = np.asarray(array)
    return geo.Raster(values, np.isfinite(values))


def _fuel_models(raster: geo.Raster) -> NDArray[np.int16]:
    """Numbers of fuel models; cells without data are bare ground."""
    values = np.where(raster.known, raster.values, BARE)
    if (values != np.floor(values)).any():
        raise SettingsFault("terrain.fuel has numbers that are not whole", "give numbers of fuel models")
    try:
        return fuels.as_numbers(values.astype(np.int64)).astype(np.int16)
    except RayfishError as error:
        raise SettingsFault(f"terrain.fuel: {error.what}", error.hint) from None


def _cell_side(rasters: Mapping[str, geo.Raster]) -> float:
    """Feet of a cell's side, as the files have it."""
    for where, raster in rasters.items():
        if raster.placed and raster.cell_ft is None:
            raise SettingsFault(
                f"{where} measures its cells in degrees or in an unknown unit",
                "set area.pixel_scale to a cell's side in feet, or warp the file to a projection in metres",
            )
    sides = {where: raster.cell_ft for where, raster in rasters.items() if raster.cell_ft is not None}
    if not sides:
        return Area().pixel_scale
    if max(sides.values()) > min(sides.values()) * 1.01:
        listed = ", ".join(f"{where} {side:.2f} ft" for where, side in sides.items())
        raise SettingsFault(
            f"maps with cells of different size: {listed}", "resample one of them, or set area.pixel_scale"
        )
    return next(iter(sides.values()))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _draws_ignition(fire: Fire) -> bool:
    """Whether the fire starts somewhere else each time, when nothing is said about it."""
    position = fire.fire_initial_position
    return (position.type == "random" and position.random.seed is None) or (
        position.type == "several" and position.several.seed is None
    )


def _check(settings: Settings) -> None:
    """What single values cannot tell: that they fit together.

    :raises SettingsFault: they do not
    """
    if settings.historical.use:
        raise SettingsFault(
            "historical.use is true: SimFire takes the fire from a folder of recorded ones (BurnMD), "
            "and nothing is fetched here",
            "set historical.use to false, and describe the fire in terrain and fire",
        )
    rows, columns = settings.area.screen_size
    position = settings.fire.fire_initial_position
    if position.type == "static" and position.static.position is not None:
        _inside(position.static.position, (rows, columns), "fire.fire_initial_position.static.position")
    terrain = settings.terrain
    for where, shapes in (
        ("roads", terrain.roads),
        ("water", terrain.water),
        ("fuel.edits", terrain.fuel.edits),
    ):
        for index, shape in enumerate(shapes):
            _check_shape(shape, (rows, columns), f"terrain.{where}[{index}]")
    if settings.wind.function == "series" and not settings.wind.series:
        raise SettingsFault(
            "wind.function is series, and wind.series is empty",
            "add rows [minute, mph, degrees], the first at 0",
        )
    for where, grid in _grids(settings):
        if isinstance(grid, np.ndarray) and grid.shape != (rows, columns):
            raise SettingsFault(
                f"{where} has {grid.shape[0]}x{grid.shape[1]} cells, the map {rows}x{columns}",
                "give one number, or a map of the same rows and columns",
            )
    _check_randomize(settings)


def _check_physics(settings: Settings) -> None:
    """That the physics can do what the other settings ask for.

    :raises SettingsFault: it cannot
    """
    if settings.simulation.physics == "simfire" and settings.wind.function == "series":
        raise SettingsFault(
            "wind.function is series, and the wind of physics simfire never changes",
            "set wind.function to simple or perlin, or use physics behave",
        )


def _grids(settings: Settings) -> list[tuple[str, Any]]:
    """Every value that may be a number or a map."""
    environment = settings.environment
    moisture = environment.moisture
    parts = moisture if isinstance(moisture, Mapping) else {"": moisture}
    return [
        ("wind.simple.speed", settings.wind.simple.speed),
        ("wind.simple.direction", settings.wind.simple.direction),
        ("environment.live_herb", environment.live_herb),
        ("environment.live_woody", environment.live_woody),
        *((f"environment.moisture.{key}".rstrip("."), grid) for key, grid in parts.items()),
    ]


def _inside(cell: tuple[int, int], shape: tuple[int, int], where: str) -> None:
    if not (0 <= cell[0] < shape[1] and 0 <= cell[1] < shape[0]):
        raise SettingsFault(
            f"{where}: cell ({cell[0]}, {cell[1]}) is off the map of {shape[1]} columns and {shape[0]} rows",
            f"give a column from 0 to {shape[1] - 1} and a row from 0 to {shape[0] - 1}",
        )


def _check_shape(shape: Shape, size: tuple[int, int], where: str) -> None:
    """Cells must be on the map; a box or a line may reach over its edge, but must touch it."""
    for cell in shape.cells:
        _inside(cell, size, f"{where}.cells")
    if shape.box:
        x0, y0, x1, y1 = shape.box
        if x1 < 0 or y1 < 0 or x0 >= size[1] or y0 >= size[0]:
            raise SettingsFault(
                f"{where}.box {list(shape.box)} is off the map of {size[1]} columns and {size[0]} rows",
                "give first column, first row, last column, last row",
            )


def _check_randomize(settings: Settings) -> None:
    """Whatever is to be drawn again must have something that can be drawn."""
    terrain, position = settings.terrain, settings.fire.fire_initial_position.type
    topography = terrain.topography
    hills = topography.functional.function if topography.type == "functional" else topography.type
    ground = terrain.fuel.functional.function if terrain.fuel.type == "functional" else terrain.fuel.type
    fixed = {
        "elevation": (hills, "terrain.topography", ("perlin", "gaussian"), "function: perlin or gaussian"),
        "fuel": (ground, "terrain.fuel", ("patches", "chaparral"), "function: patches"),
        "ignition": (
            position,
            "fire.fire_initial_position",
            ("random", "several", "scenario"),
            "type: random or several",
        ),
    }
    for name in settings.randomize or ():
        if name in fixed:
            kind, where, drawn, advice = fixed[name]
            if kind not in drawn:
                raise SettingsFault(
                    f"randomize has {name}, but {where} is {kind}: there is nothing to draw",
                    f"take {name} out of randomize, or set {where} to {advice}",
                )
