"""The sections of a wildfire's settings, with SimFire's names: what each key means, its unit and default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated, Any

from numpy.typing import NDArray

from rayfish.worlds.wildfire.fire import codes
from rayfish.worlds.wildfire.fire import readers as r

PHYSICS = ("behave", "simfire")

RANDOMIZE = ("elevation", "fuel", "wind", "moisture", "ignition")
"""What can be drawn again for each episode."""

MOISTURES = ("m1h", "m10h", "m100h", "herb", "woody")
"""Dead fuel that dries within 1, 10 and 100 hours, live herbs, live woody fuel."""


@dataclass(frozen=True)
class Area:
    """The map."""

    # rows and columns; a map from a file or an array brings its own
    screen_size: Annotated[tuple[int, int], r.size] = (64, 64)
    pixel_scale: r.AboveZero = 50.0  # side of a cell in feet; when not given, a GeoTIFF brings its own


def _rescale(given: Any, where: str) -> int | None:
    """A whole number or nothing; SimFire's files also write the word "None"."""
    return None if given is None or str(given).lower() == "none" else r.whole(given, where)


@dataclass(frozen=True)
class Display:
    """SimFire's sizes on the screen; kept, but pictures here are scaled by themselves."""

    fire_size: int = 2
    control_line_size: int = 2
    agent_size: int = 4
    rescale_factor: Annotated[int | None, _rescale] = None
    rescale_size: Annotated[int | None, _rescale] = None


@dataclass(frozen=True)
class Simulation:
    """Time and the model of spread."""

    update_rate: r.AboveZero = 1.0  # minutes of fire time per update
    # minutes until the simulation ends; written as "24h", "1d 2h", "90m"
    runtime: Annotated[int, r.runtime] = 1440
    # `behave` (as the USFS engine) or `simfire` (as SimFire 2.0.1, with its faults)
    physics: Annotated[str, r.choice(*PHYSICS)] = "behave"
    headless: bool = True  # SimFire's; it and those below change nothing here
    draw_spread_graph: bool = False
    record: bool = False
    save_data: bool = False
    data_type: Annotated[str, r.as_is] = "npy"
    sf_home: Annotated[str, r.as_is] = ""


def _held() -> dict[str, float]:
    return {name: codes.HOLDING_FT[code] for name, code in codes.LINES.items()}


def _holding(given: Any, where: str) -> dict[str, float]:
    """Feet by kind of line; kinds that are not given keep their default."""
    if not isinstance(given, Mapping):
        raise r.SettingsFault(f"{where} is {given!r}", "write it like {fireline: 11, wetline: 8}")
    r.known_keys(given, codes.LINES, where)
    return _held() | {key: r.number(item, f"{where}.{key}", low=0) for key, item in given.items()}


@dataclass(frozen=True)
class Mitigation:
    """Control lines."""

    ros_attenuation: bool = True  # lines slow fire down and can be crossed; when false they stop it always
    # flame lengths in feet that a fireline, scratchline or wetline holds (physics `behave`)
    holding_ft: Annotated[dict[str, float], _holding] = field(default_factory=_held)


def _unused(name: str, doc: str, keys: str, **others: tuple[Any, Any]) -> Any:
    """A section of SimFire's files whose keys are known and kept, but change nothing here."""
    entries = [*((key, *rest) for key, rest in others.items()), *((key, Any, None) for key in keys.split())]
    return make_dataclass(name, entries, frozen=True, namespace={"__doc__": doc, "__module__": __name__})


Operational = _unused(
    "Operational",
    "Where SimFire would fetch LANDFIRE's layers.",
    "seed latitude longitude height width resolution year",
)
Historical = _unused(
    "Historical",
    "Where SimFire would look for a recorded fire; `use` is older SimFire's switch: true is refused.",
    "name fire_init_pos_lat fire_init_pos_long default path year state fire height width",
    use=(bool, False),
)
CfdWind = _unused(
    "CfdWind",
    "SimFire's flow solver, which runs by the wall clock and makes wrong steps.",
    "time_to_train result_accuracy iterations scale timestep_dt diffusion viscosity speed direction",
)


@dataclass(frozen=True)
class PerlinTerrain:
    """Hills of simplex noise, in feet from `range_min` to `range_max`."""

    octaves: r.Count = 3
    persistence: float = 0.5
    lacunarity: float = 2.0
    seed: r.Seed = 827  # which hills; null draws them
    range_min: float = 0.0
    range_max: float = 600.0
    # cells per unit of noise, about the width of a hill; by default 32, and SimFire's 1 (white noise) in
    # physics `simfire`
    scale: Annotated[float | None, r.maybe(r.above_zero)] = None


@dataclass(frozen=True)
class GaussianTerrain:
    """One hill of `amplitude` feet at column `mu_x`, row `mu_y`; widths `sigma_x`, `sigma_y` in cells."""

    amplitude: float = 500.0
    mu_x: float = 32.0
    mu_y: float = 32.0
    sigma_x: r.AboveZero = 16.0
    sigma_y: r.AboveZero = 16.0


@dataclass(frozen=True)
class TopographyFunction:
    """Which function makes the elevation."""

    function: Annotated[str, r.choice("perlin", "gaussian", "flat")] = "perlin"
    perlin: PerlinTerrain = field(default_factory=PerlinTerrain)
    gaussian: GaussianTerrain = field(default_factory=GaussianTerrain)
    flat: Any = None


@dataclass(frozen=True, eq=False)
class Topography:
    """Elevation."""

    # by a function, from an array, or from a GeoTIFF
    type: Annotated[str, r.choice("functional", "array", "geotiff", "operational", "historical")] = (
        "functional"
    )
    functional: TopographyFunction = field(default_factory=TopographyFunction)
    path: r.Path = None  # the file (`geotiff`, or `.npy` for `array`)
    # elevation [rows, columns]; in feet once read
    array: Annotated[NDArray[Any] | None, r.maybe(r.array)] = None
    # what the map is measured in, ft or m; by default a GeoTIFF has metres, an array feet
    units: Annotated[str | None, r.maybe(r.choice("ft", "m"))] = None
    fill: r.MaybeFloat = None  # feet for cells of a GeoTIFF without data


@dataclass(frozen=True)
class Chaparral:
    """Fuel model 4; in physics `simfire` what SimFire calls so: random fuel, without a seed in each cell."""

    seed: r.Seed = None


@dataclass(frozen=True)
class UniformFuel:
    """One fuel model everywhere."""

    model: Annotated[int, r.model] = 4


@dataclass(frozen=True)
class FuelPatches:
    """Patches of several fuel models, about `scale` cells wide; seed null draws them."""

    models: Annotated[tuple[int, ...], r.models] = (1, 2, 4, 5)
    scale: r.AboveZero = 24.0
    seed: r.Seed = 1113


@dataclass(frozen=True)
class FuelFunction:
    """Which function makes the fuels."""

    function: Annotated[str, r.choice("uniform", "patches", "chaparral")] = "patches"
    chaparral: Chaparral = field(default_factory=Chaparral)
    uniform: UniformFuel = field(default_factory=UniformFuel)
    patches: FuelPatches = field(default_factory=FuelPatches)


BARE = 99
"""The fuel model of bare ground."""


@dataclass(frozen=True)
class Shape:
    """Some cells of the map: one of `box`, `cells`, `line`."""

    box: tuple[int, int, int, int] | None = None  # first column, first row, last column, last row
    cells: tuple[tuple[int, int], ...] = ()  # columns and rows, one by one
    # corners of a line; it is closed against fire that spreads diagonally
    line: tuple[tuple[int, int], ...] = ()
    width: int = 1  # cells across a line
    model: int = BARE  # fuel model to put there (for edits)


def _shape_of(given: Any, where: str) -> Shape:
    """One road, lake or edit; a bare list of points is a line."""
    parts = dict(given) if isinstance(given, Mapping) else {"line": given}
    readers: dict[str, r.Reader] = {
        "box": lambda item, at: tuple(r.whole(number, at) for number in r.items(item, at, "[0, 0, 9, 9]")),
        "cells": r.points,
        "line": r.points,
        "width": partial(r.whole, low=1),
        "model": r.model,
    }
    r.known_keys(parts, readers, where)
    shape = Shape(**{key: readers[key](item, f"{where}.{key}") for key, item in parts.items()})
    if sum(bool(part) for part in (shape.box, shape.cells, shape.line)) != 1:
        raise r.SettingsFault(f"{where} has {', '.join(parts) or 'nothing'}", "give one of box, cells, line")
    if shape.box and (len(shape.box) != 4 or shape.box[0] > shape.box[2] or shape.box[1] > shape.box[3]):
        raise r.SettingsFault(
            f"{where}.box is {list(shape.box)}", "give first column, first row, last column, last row"
        )
    return shape


def _shapes(given: Any, where: str) -> tuple[Shape, ...]:
    found = [] if given is None else r.items(given, where, "[{box: [0, 0, 9, 9]}]")
    return tuple(_shape_of(item, f"{where}[{index}]") for index, item in enumerate(found))


def _edits(given: Any, where: str) -> tuple[Shape, ...]:
    for index, item in enumerate(given or ()):
        if not isinstance(item, Mapping) or "model" not in item:
            raise r.SettingsFault(
                f"{where}[{index}] names no model", "write it like {box: [0, 0, 9, 9], model: 1}"
            )
    return _shapes(given, where)


@dataclass(frozen=True, eq=False)
class Fuel:
    """Fuels."""

    # by a function, from an array of fuel-model numbers, or from LANDFIRE (FBFM13, FBFM40)
    type: Annotated[str, r.choice("functional", "array", "landfire", "operational", "historical")] = (
        "functional"
    )
    functional: FuelFunction = field(default_factory=FuelFunction)
    path: r.Path = None  # the file, GeoTIFF or `.npy`
    array: Annotated[NDArray[Any] | None, r.maybe(r.array)] = None  # fuel-model numbers [rows, columns]
    # cells that get another fuel model afterwards (fuel breaks)
    edits: Annotated[tuple[Shape, ...], _edits] = ()
    burn_probability: Annotated[None, r.ignored] = None  # in SimFire's files, used nowhere


@dataclass(frozen=True)
class Terrain:
    """Elevation, fuels, and what does not burn."""

    topography: Topography = field(default_factory=Topography)
    fuel: Fuel = field(default_factory=Fuel)
    roads: Annotated[tuple[Shape, ...], _shapes] = ()
    water: Annotated[tuple[Shape, ...], _shapes] = ()


@dataclass(frozen=True)
class StaticPosition:
    """The cell where the fire starts, (column, row); None is the middle."""

    position: Annotated[tuple[int, int] | None, r.maybe(r.point)] = None


@dataclass(frozen=True)
class RandomPosition:
    """A cell drawn by a seed; null draws it from the simulator's."""

    seed: r.Seed = None


@dataclass(frozen=True)
class SeveralPositions:
    """Several cells at once, at least `spacing` cells apart."""

    count: r.Count = 2
    spacing: r.NotNegative = 8.0
    seed: r.Seed = None


@dataclass(frozen=True)
class ScenarioPositions:
    """Fires of a stored set of scenarios."""

    path: r.Path = None


@dataclass(frozen=True)
class FirePosition:
    """Where fires start."""

    type: Annotated[str, r.choice("static", "random", "several", "scenario", "historical")] = "random"
    static: StaticPosition = field(default_factory=StaticPosition)
    random: RandomPosition = field(default_factory=RandomPosition)
    several: SeveralPositions = field(default_factory=SeveralPositions)
    scenario: ScenarioPositions = field(default_factory=ScenarioPositions)


@dataclass(frozen=True)
class Spotting:
    """Embers that carry fire ahead, downwind."""

    # that a cell, as it catches fire, throws an ember that can start another fire
    probability: Annotated[float, partial(r.number, low=0, high=1)] = 0.01
    # how far embers fly on average in a wind of 10 mph; twice as far in twice the wind
    distance_ft: r.AboveZero = 300.0
    spread_degrees: r.NotNegative = 15.0  # how far at most their direction strays from the wind's


@dataclass(frozen=True)
class Fire:
    """How fires start and last."""

    fire_initial_position: FirePosition = field(default_factory=FirePosition)
    max_fire_duration: r.Count = 4  # updates that a cell burns (at least, in physics `behave`)
    diagonal_spread: bool = True  # fire spreads to eight neighbours, else to four
    # embers that start fires ahead of the front; null is none (physics `behave`)
    spotting: Annotated[Spotting | None, r.maybe(partial(r.section, Spotting))] = None


def _series(given: Any, where: str) -> tuple[tuple[float, float, float], ...]:
    """Rows of (minute, mph, degrees), from minute 0 on."""
    rows = [r.items(row, where, "[0, 7, 90]") for row in r.items(given, where, "[[0, 7, 90], [60, 12, 120]]")]
    if any(len(row) != 3 for row in rows):
        raise r.SettingsFault(f"{where} has a row without three numbers", "write rows [minute, mph, degrees]")
    found = [
        (r.number(row[0], where, low=0), r.number(row[1], where, low=0), r.number(row[2], where))
        for row in rows
    ]
    minutes = [row[0] for row in found]
    if minutes and (minutes[0] != 0 or any(a >= b for a, b in pairwise(minutes))):
        raise r.SettingsFault(f"{where} has the minutes {minutes}", "start at minute 0 and go on upwards")
    return tuple(found)


@dataclass(frozen=True, eq=False)
class SimpleWind:
    """The same wind all the time: miles per hour, and the degrees it blows toward (90 is East); each one
    number, an array [rows, columns] or the path of one.
    """

    speed: r.GridNotNegative = 7.0
    direction: Annotated[r.Grid, r.grid] = 90.0


@dataclass(frozen=True)
class WindNoise:
    """Simplex noise from `range_min` to `range_max`; `scale` cells per unit of noise; seed null draws it."""

    seed: r.Seed = None
    scale: r.AboveZero = 400.0
    octaves: r.Count = 3
    persistence: float = 0.7
    lacunarity: float = 2.0
    range_min: float = 0.0
    range_max: float = 10.0


def _wind_noise(given: Any, where: str) -> WindNoise:
    """Noise; SimFire 1 and SimHarness's files call its range `min` and `max`."""
    if isinstance(given, Mapping):
        given = {_RANGE.get(key, key) if _RANGE.get(key) not in given else key: given[key] for key in given}
    found: WindNoise = r.section(WindNoise, given, where)
    return found


_RANGE = {"min": "range_min", "max": "range_max"}


@dataclass(frozen=True)
class PerlinWind:
    """Wind that differs from place to place: `speed` in miles per hour, `direction` in degrees."""

    speed: Annotated[WindNoise, _wind_noise] = field(default_factory=WindNoise)
    direction: Annotated[WindNoise, _wind_noise] = field(default_factory=WindNoise)


@dataclass(frozen=True)
class RandomWind:
    """How wind is drawn again (`randomize: [wind]`): speeds times a factor, directions turned by
    an angle; perlin wind gets other noise instead.
    """

    speed_factor: Annotated[tuple[float, float], partial(r.between, low=0)] = (0.5, 1.5)
    turn: Annotated[tuple[float, float], r.between] = (-180.0, 180.0)


@dataclass(frozen=True)
class Wind:
    """Wind; directions are those it blows toward, clockwise from North."""

    function: Annotated[str, r.choice("simple", "perlin", "cfd", "series")] = "simple"
    simple: SimpleWind = field(default_factory=SimpleWind)
    perlin: PerlinWind = field(default_factory=PerlinWind)
    cfd: Annotated[Any, partial(r.section, CfdWind)] = field(default_factory=CfdWind)
    # rows [minute, mph, degrees], each valid from its minute on (physics `behave`)
    series: Annotated[tuple[tuple[float, float, float], ...], r.maybe(_series)] = ()
    # midflame wind over the wind given; 1 when midflame wind is given, about 0.4 for wind measured at 20 ft
    # over open shrubs (physics `behave`)
    adjustment_factor: r.AboveZero = 1.0
    limit: bool = True  # Rothermel's limit on the wind that still speeds a fire up (physics `behave`)
    random: RandomWind = field(default_factory=RandomWind)


def _moisture(given: Any, where: str) -> Any:
    """One moisture for all dead fuel, or one for each class."""
    if isinstance(given, Mapping):
        r.known_keys(given, dict.fromkeys(MOISTURES), where)
        return {key: r.grid(item, f"{where}.{key}", low=0) for key, item in given.items()}
    return r.grid(given, where, low=0)


@dataclass(frozen=True)
class RandomMoisture:
    """How moisture is drawn again (`randomize: [moisture]`): that of dead fuel times one factor."""

    factor: Annotated[tuple[float, float], partial(r.between, low=0)] = (0.5, 1.5)


@dataclass(frozen=True, eq=False)
class Environment:
    """Weather in the fuel; moistures are fractions of the dry weight."""

    # of all dead fuel (a number, an array, the path of one), or a mapping of m1h, m10h, m100h, herb, woody to
    # such
    moisture: Annotated[r.Grid | Mapping[str, r.Grid], _moisture] = 0.06
    live_herb: r.GridNotNegative = 0.6  # of live herbs, where the mapping does not say it
    live_woody: r.GridNotNegative = 0.6  # of live woody fuel, likewise
    random: RandomMoisture = field(default_factory=RandomMoisture)


@dataclass(frozen=True, eq=False)
class Settings:
    """All settings of a wildfire."""

    area: Area = field(default_factory=Area)
    display: Display = field(default_factory=Display)
    simulation: Simulation = field(default_factory=Simulation)
    mitigation: Mitigation = field(default_factory=Mitigation)
    operational: Annotated[Any, partial(r.section, Operational)] = field(default_factory=Operational)
    historical: Annotated[Any, partial(r.section, Historical)] = field(default_factory=Historical)
    terrain: Terrain = field(default_factory=Terrain)
    fire: Fire = field(default_factory=Fire)
    environment: Environment = field(default_factory=Environment)
    wind: Wind = field(default_factory=Wind)
    # what is drawn again for each episode: elevation, fuel, wind, moisture, ignition
    randomize: Annotated[tuple[str, ...] | None, r.maybe(r.choices(*RANDOMIZE))] = None
