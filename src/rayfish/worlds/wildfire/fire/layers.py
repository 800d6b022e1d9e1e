"""Landscapes: elevation, fuels, wind and moisture of every cell, made from settings and chance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rayfish.errors import EnvironmentFault
from rayfish.worlds.wildfire.fire import fuels, noise
from rayfish.worlds.wildfire.fire.codes import MPH
from rayfish.worlds.wildfire.fire.sections import (
    MOISTURES,
    Environment,
    PerlinTerrain,
    Settings,
    SeveralPositions,
    Shape,
    WindNoise,
)

WATER, ROAD, CHAPARRAL = 98, 91, 4
"""Fuel models of lakes and rivers, of roads, and of what SimFire calls chaparral."""

_HILLS = {"behave": 32.0, "simfire": 1.0}
"""Cells per unit of noise when the settings do not say: SimFire has no scale, which makes white noise."""

_SIMFIRE_FUELS = {
    1: (0.0340, 1.0, 0.12, 3500.0),
    2: (0.0918, 1.0, 0.15, 2784.0),
    3: (0.1377, 2.5, 0.25, 1500.0),
    4: (0.2296, 6.0, 0.20, 1739.0),
    5: (0.0459, 2.0, 0.20, 1683.0),
    6: (0.0688, 2.5, 0.25, 1564.0),
    7: (0.0459, 2.5, 0.40, 1552.0),
    8: (0.0688, 0.2, 0.30, 1889.0),
    9: (0.1331, 0.2, 0.25, 2484.0),
    10: (0.1377, 1.0, 0.25, 1764.0),
    11: (0.0688, 1.0, 0.15, 1182.0),
    12: (0.1836, 2.3, 0.20, 1145.0),
    13: (0.3214, 3.0, 0.25, 1159.0),
}
_SIMFIRE_BARE = (0.0, 1.0, 1.0, 1.0)
_FUEL_LAYERS = ("w_0", "delta", "M_x", "sigma")
_CHAPARRAL_RANGES = ((0.0, 1.0), (0.2, 6.0), (0.12, 1.0), (1.0, 3500.0))
"""From where to where SimFire draws w_0, delta, M_x and sigma for its chaparral."""


class LandscapeFault(EnvironmentFault):
    """A landscape cannot be made from these settings."""


@dataclass(frozen=True, eq=False)
class Landscape:
    """What a fire burns on; arrays are [rows, columns] (row 0 in the North) and shared: copy to write."""

    elevation: NDArray[np.float64]  # feet
    fuel: NDArray[np.int16]  # numbers of fuel models, int16; roads and water are among them
    # fuel load, lb/ft^2, as SimFire has it (one size of fuel); so are the next three
    w_0: NDArray[np.float64]
    delta: NDArray[np.float64]  # depth of the fuel, ft
    M_x: NDArray[np.float64]  # moisture of extinction
    sigma: NDArray[np.float64]  # surface-to-volume ratio of the fuel, 1/ft
    # ft/min as given, before `wind.adjustment_factor`; of a series, its first wind
    wind_speed: NDArray[np.float64]
    wind_direction: NDArray[np.float64]  # degrees clockwise from North, toward which the wind blows
    # fractions, by m1h, m10h, m100h, herb, woody; each one number or [rows, columns]
    moisture: dict[str, Any]
    # three arrays, (from which minute on, mph, degrees), or None
    wind_series: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None = None

    def burnable(self, physics: str) -> NDArray[np.bool_]:
        """The cells that have something to burn."""
        if physics == "simfire":
            return np.asarray(self.w_0 > 0)
        return _burnable()[self.fuel]


def make(settings: Settings, rng: np.random.Generator) -> Landscape:
    """A landscape: what has a seed is as the seed says, what has none or is in `randomize` comes from `rng`.

    :raises LandscapeFault: the settings ask for data that is not there
    """
    return Landscape(
        elevation=_elevation(settings, rng),
        **_fuel(settings, rng),
        **_wind(settings, rng),
        moisture=_moisture(settings, rng),
    )


def of_seed(settings: Settings, seed: int) -> Landscape:
    """The landscape of a seed."""
    return make(settings, np.random.default_rng(seed))


def redraw(settings: Settings, landscape: Landscape, rng: np.random.Generator) -> Landscape:
    """The landscape of another episode: what is in `randomize` is drawn again, all else shared."""
    drawn = settings.randomize or ()
    parts: dict[str, Any] = {}
    if "elevation" in drawn:
        parts["elevation"] = _elevation(settings, rng)
    if "fuel" in drawn:
        parts |= _fuel(settings, rng)
    if "wind" in drawn:
        parts |= _wind(settings, rng)
    if "moisture" in drawn:
        parts["moisture"] = _moisture(settings, rng)
    return replace(landscape, **parts)


def drawn(settings: Settings) -> tuple[str, ...]:
    """The layers that come from chance: those in `randomize`, and those made by a function without a seed."""
    topography, fuel, wind = settings.terrain.topography, settings.terrain.fuel, settings.wind
    hills, ground = topography.functional, fuel.functional
    unseeded = {
        "elevation": (topography.type, hills.function) == ("functional", "perlin")
        and hills.perlin.seed is None,
        "fuel": fuel.type == "functional"
        and (
            (ground.function == "patches" and ground.patches.seed is None)
            or (
                ground.function == "chaparral"
                and ground.chaparral.seed is None
                and settings.simulation.physics == "simfire"
            )
        ),
        "wind": wind.function == "perlin" and None in (wind.perlin.speed.seed, wind.perlin.direction.seed),
        "moisture": False,
    }
    return tuple(name for name, alone in unseeded.items() if alone or name in (settings.randomize or ()))


def ignition(settings: Settings, landscape: Landscape, rng: np.random.Generator) -> list[tuple[int, int]]:
    """The cells (column, row) where a fire starts; drawn ones are always cells that burn.

    :raises LandscapeFault: nothing burns, or the settings leave the start to something else
    """
    position = settings.fire.fire_initial_position
    rows, columns = settings.area.screen_size
    physics = settings.simulation.physics
    if position.type == "static":
        return [position.static.position or (columns // 2, rows // 2)]
    if position.type == "scenario":
        from rayfish.worlds.wildfire.fire import scenarios

        return scenarios.drawn_start(settings, rng)
    if position.type == "historical":
        raise _needs_data("fire.fire_initial_position", position.type)
    burnable = landscape.burnable(physics)
    if not burnable.any():
        raise LandscapeFault(
            "no cell of the landscape can burn", "give it a fuel model that burns, such as 4"
        )
    seed = position.random.seed if position.type == "random" else position.several.seed
    if seed is not None and "ignition" not in (settings.randomize or ()):
        rng = np.random.default_rng(seed)
    if position.type == "several":
        return _apart(burnable, position.several, rng)
    while True:
        x, y = int(rng.integers(columns)), int(rng.integers(rows))  # SimFire's order
        if burnable[y, x] or physics == "simfire":
            return [(x, y)]


def _apart(
    burnable: NDArray[np.bool_], several: SeveralPositions, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Cells that burn, at least `spacing` apart."""
    found: list[tuple[int, int]] = []
    ys, xs = np.nonzero(burnable)
    for place in rng.permutation(len(xs)):
        x, y = int(xs[place]), int(ys[place])
        if all(math.hypot(x - other[0], y - other[1]) >= several.spacing for other in found):
            found.append((x, y))
            if len(found) == several.count:
                return found
    raise LandscapeFault(
        f"only {len(found)} of {several.count} fires fit on the map {several.spacing:g} cells apart",
        "lower fire.fire_initial_position.several.count or spacing",
    )


def _seed(settings: Settings, layer: str, seed: int | None) -> int | None:
    """The seed of a layer; None when it is to be drawn."""
    return None if layer in (settings.randomize or ()) else seed


def _noise(
    settings: Settings, seed: int | None, kind: PerlinTerrain | WindNoise, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Noise between `range_min` and `range_max`."""
    if seed is None:
        offset = noise.random_offset(rng)
    elif settings.simulation.physics == "simfire":
        offset = (float(seed), float(seed))
    else:
        offset = noise.offset_of(seed)
    unit = noise.grid(
        settings.area.screen_size,
        scale=kind.scale or _HILLS[settings.simulation.physics],
        octaves=kind.octaves,
        persistence=kind.persistence,
        lacunarity=kind.lacunarity,
        offset=offset,
    )
    return (unit + 1) / 2 * (kind.range_max - kind.range_min) + kind.range_min


def _elevation(settings: Settings, rng: np.random.Generator) -> NDArray[np.float64]:
    rows, columns = shape = settings.area.screen_size
    topography = settings.terrain.topography
    if topography.array is not None and topography.type in ("array", "geotiff"):
        return topography.array.astype(np.float64)
    if topography.type != "functional":
        raise _needs_data("terrain.topography", topography.type)
    kind = topography.functional
    if kind.function == "flat":
        return np.zeros(shape)
    if kind.function == "perlin":
        return _noise(settings, _seed(settings, "elevation", kind.perlin.seed), kind.perlin, rng)
    hill = kind.gaussian
    middle = (hill.mu_x, hill.mu_y)
    if "elevation" in (settings.randomize or ()):
        middle = (rng.uniform(0, columns), rng.uniform(0, rows))
    across = (np.arange(columns) - middle[0]) ** 2 / (4 * hill.sigma_x**2)
    down = (np.arange(rows) - middle[1]) ** 2 / (4 * hill.sigma_y**2)
    # math.exp, not np.exp: they differ in the last bit, and SimFire's is this one.
    fall = [math.exp(-value) for value in (across[None, :] + down[:, None]).ravel()]
    return hill.amplitude * np.array(fall).reshape(shape)


def _fuel(settings: Settings, rng: np.random.Generator) -> dict[str, Any]:
    """The map of fuel models, and SimFire's four layers."""
    fuel, shape = settings.terrain.fuel, settings.area.screen_size
    physics, function = settings.simulation.physics, fuel.functional.function
    if fuel.array is not None and fuel.type in ("array", "landfire"):
        numbers = fuel.array.astype(np.int16)
    elif fuel.type != "functional":
        raise _needs_data("terrain.fuel", fuel.type)
    elif function == "patches":
        numbers = _patches(settings, rng)
    else:
        numbers = np.full(
            shape, CHAPARRAL if function == "chaparral" else fuel.functional.uniform.model, np.int16
        )
    touched = np.zeros(shape, dtype=bool)
    terrain = settings.terrain
    for shapes, model in ((fuel.edits, None), (terrain.water, WATER), (terrain.roads, ROAD)):
        for one in shapes:
            ys, xs = _cells(one, shape)
            numbers[ys, xs] = one.model if model is None else model
            touched[ys, xs] = True
    simfire = [column[numbers] for column in _simfire_table().T]
    if physics == "simfire":
        _check_simfire(numbers)
        if fuel.type == "functional" and function == "chaparral":
            drawn = _chaparral(_seed(settings, "fuel", fuel.functional.chaparral.seed), shape, rng)
            simfire = [np.where(touched, known, new) for known, new in zip(simfire, drawn, strict=True)]
    return {"fuel": numbers, **dict(zip(_FUEL_LAYERS, simfire, strict=True))}


def _patches(settings: Settings, rng: np.random.Generator) -> NDArray[np.int16]:
    """Each fuel model has a noise of its own, and a cell the model whose noise is highest there."""
    patches = settings.terrain.fuel.functional.patches
    seed = _seed(settings, "fuel", patches.seed)
    source = rng if seed is None else np.random.default_rng(seed)
    heights = [
        noise.grid(
            settings.area.screen_size, scale=patches.scale, octaves=2, offset=noise.random_offset(source)
        )
        for _ in patches.models
    ]
    return np.array(patches.models, np.int16)[np.argmax(heights, axis=0)]


def _chaparral(
    seed: int | None, shape: tuple[int, int], rng: np.random.Generator
) -> list[NDArray[np.float64]]:
    """SimFire's fuels: it seeds again before every number, so a seed gives one fuel for the whole map."""
    if seed is None:
        return [rng.uniform(low, high, size=shape) for low, high in _CHAPARRAL_RANGES]
    share = np.random.RandomState(seed).random_sample()
    return [np.full(shape, low + (high - low) * share) for low, high in _CHAPARRAL_RANGES]


def _check_simfire(numbers: NDArray[np.int16]) -> None:
    beyond = numbers[numbers > 100]
    if beyond.size:
        model = fuels.find(int(beyond[0]))
        raise LandscapeFault(
            f"terrain.fuel has {model.number} ({model.code}); physics simfire knows only Anderson's 1 to 13",
            "use FBFM13 fuels, or physics behave",
        )


@cache
def _simfire_table() -> NDArray[np.float64]:
    """w_0, delta, M_x, sigma by fuel model; Scott and Burgan's as their one-hour fuel has them."""
    rows = np.full((256, len(_FUEL_LAYERS)), np.nan)
    table = fuels.table()
    for number, model in fuels.FUEL_MODELS.items():
        if number in _SIMFIRE_FUELS:
            rows[number] = _SIMFIRE_FUELS[number]
        elif not model.burnable:
            rows[model.number] = _SIMFIRE_BARE
        else:
            rows[number] = table[number][[fuels.W1H, fuels.DEPTH, fuels.EXTINCTION, fuels.SAV1H]]
    return rows


@cache
def _burnable() -> NDArray[np.bool_]:
    """Whether a fuel model burns, by number."""
    found = np.zeros(256, dtype=bool)
    found[list(fuels.BURNABLE)] = True
    return found


def _wind(settings: Settings, rng: np.random.Generator) -> dict[str, Any]:
    """Speed, direction and series of the wind."""
    wind, shape = settings.wind, settings.area.screen_size
    if wind.function == "cfd":
        raise LandscapeFault(
            "wind.function is cfd, SimFire's flow solver, whose result depends on the speed of the machine",
            "use simple, perlin or series; wind.simple.speed and direction may also be arrays or .npy files",
        )
    if wind.function == "perlin":
        found = []
        for part, unit in ((wind.perlin.speed, MPH), (wind.perlin.direction, 1.0)):
            seed = _seed(settings, "wind", part.seed)
            if settings.simulation.physics == "simfire":
                # SimFire's order of operations: the range in ft/min first, and 32-bit values at the end.
                low, high = part.range_min * unit, part.range_max * unit
                above = _noise(settings, seed, replace(part, range_min=0.0, range_max=2.0), rng)
                values = (above * (high - low) / 2 + low).astype(np.float32).astype(np.float64)
            else:
                values = _noise(settings, seed, part, rng) * unit
            found.append(values)
        return {"wind_speed": found[0], "wind_direction": found[1], "wind_series": None}
    factor, turn = 1.0, 0.0
    if "wind" in (settings.randomize or ()):
        factor, turn = rng.uniform(*wind.random.speed_factor), rng.uniform(*wind.random.turn)
    if wind.function == "series":
        minutes, series_mph, towards = np.array(wind.series, dtype=np.float64).T
        series = (minutes, series_mph * factor, _turned(towards, turn))
        speed, direction = series[1][0], series[2][0]
    else:
        series = None
        speed, direction = np.asarray(wind.simple.speed) * factor, _turned(wind.simple.direction, turn)
    return {
        "wind_speed": np.full(shape, speed * MPH),
        "wind_direction": np.full(shape, direction, dtype=np.float64),
        "wind_series": series,
    }


def _turned(degrees: Any, turn: float) -> Any:
    """Directions turned by an angle; left as they are written when it is 0."""
    return (np.asarray(degrees) + turn) % 360 if turn else np.asarray(degrees)


def _moisture(settings: Settings, rng: np.random.Generator) -> dict[str, Any]:
    environment = settings.environment
    given = environment.moisture
    live = {"herb": environment.live_herb, "woody": environment.live_woody}
    if isinstance(given, Mapping):
        # A dead class that is not given is as moist as the next finer one.
        found: dict[str, Any] = {**live, **given}
        found.setdefault("m1h", Environment().moisture)
        found.setdefault("m10h", found["m1h"])
        found.setdefault("m100h", found["m10h"])
    else:
        found = {"m1h": given, "m10h": given, "m100h": given, **live}
    if "moisture" in (settings.randomize or ()):
        factor = float(rng.uniform(*environment.random.factor))
        found |= {name: found[name] * factor for name in ("m1h", "m10h", "m100h")}
    return {name: found[name] for name in MOISTURES}


def _cells(shape: Shape, size: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the cells of a road, lake or edit, as far as they are on the map."""
    if shape.box:
        x0, y0, x1, y1 = shape.box
        ys, xs = (part.ravel() for part in np.mgrid[y0 : y1 + 1, x0 : x1 + 1])
    else:
        reach = range(-((shape.width - 1) // 2), shape.width // 2 + 1) if shape.line else range(1)
        walked = [
            (x + dx, y + dy) for x, y in shape.cells or _walk(shape.line) for dx in reach for dy in reach
        ]
        xs, ys = np.array(walked).T
    on = (xs >= 0) & (ys >= 0) & (xs < size[1]) & (ys < size[0])
    return ys[on], xs[on]


def _walk(corners: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int]]:
    """Cells from corner to corner by their sides, never by a tip: fire would slip through there."""
    x, y = corners[0]
    yield x, y
    for to_x, to_y in corners[1:]:
        across, down = abs(to_x - x), abs(to_y - y)
        step_x, step_y = (1 if to_x > x else -1), (1 if to_y > y else -1)
        gone_x = gone_y = 0
        while gone_x < across or gone_y < down:
            if (1 + 2 * gone_x) * down < (1 + 2 * gone_y) * across:
                x, gone_x = x + step_x, gone_x + 1
            else:
                y, gone_y = y + step_y, gone_y + 1
            yield x, y


def _needs_data(where: str, kind: str) -> LandscapeFault:
    """SimFire's layers from the network or from a collection of fires, which are not fetched here."""
    source = "LANDFIRE over the network" if kind == "operational" else "a folder of recorded fires (BurnMD)"
    if where == "fire.fire_initial_position":
        return LandscapeFault(
            f"{where}.type is {kind}: SimFire takes it from {source}",
            "set type: static and static.position: [x, y]",
        )
    what = "type: geotiff" if where == "terrain.topography" else "type: landfire"
    return LandscapeFault(
        f"{where}.type is {kind}: SimFire takes it from {source}, and nothing is fetched here",
        f"download the raster (landfire.gov) and set {where}.{what} with path: FILE.tif, "
        "or type: array with an array or the path of a .npy file",
    )
