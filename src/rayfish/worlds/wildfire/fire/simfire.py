"""Fires by the physics `simfire`: the rates of spread and the fire manager of SimFire 2.0.1.

SimFire's defects are kept on purpose (downhill counts as uphill, off-wind directions get a cosine of the
wind, no limit to the wind), so that a SimFire study can be continued; `physics: behave` has none of them.
Rates are computed mostly in float32, in SimFire's order of operations, so that they are equal to the last
bit.

The list of burning cells is kept in SimFire's order (by update of ignition, then row and column), because
of several burning neighbours the last one written decides. A cell may stand in it twice: a line on a burning
cell makes it a target again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rayfish.worlds.wildfire.fire.codes import ATTENUATION_FT, BURNED, BURNING, FIRELINE, NEIGHBOURS
from rayfish.worlds.wildfire.fire.layers import Landscape
from rayfish.worlds.wildfire.fire.settings import Settings
from rayfish.worlds.wildfire.fire.spread import DX, DY
from rayfish.worlds.wildfire.fire.tables import gradient

ATTENUATION = tuple(ATTENUATION_FT[code] for code in sorted(ATTENUATION_FT))
LENGTH, UPDATES, QUIT = range(3)

HEAT, MINERAL, SILICA_FREE, DENSITY = (np.float32(value) for value in (8000, 0.0555, 0.01, 32))
"""SimFire's fuel particles: BTU/lb, total and effective mineral content, lb/ft^3."""


def rates(landscape: Any, cell_ft: float, moisture: float) -> np.ndarray:
    """Feet per minute into each cell, by the direction fire travels in: float64 [H*W, 8]."""
    along_y, along_x = gradient(landscape.elevation.astype(np.float64), cell_ft)
    steepness = np.hypot(along_x, along_y).astype(np.float32)
    downhill = np.arctan2(along_y, along_x + 0.000001).astype(np.float32)
    fuel = [np.asarray(getattr(landscape, name), np.float32) for name in ("w_0", "delta", "M_x", "sigma")]
    wind = [np.asarray(getattr(landscape, name), np.float32) for name in ("wind_speed", "wind_direction")]
    with np.errstate(all="ignore"):  # SimFire's random fuels give NaN, which then never burn
        found = [
            _towards(dx, dy, fuel, wind, steepness, downhill, np.float32(moisture)) for dx, dy in NEIGHBOURS
        ]
    return np.ascontiguousarray(np.stack([part.ravel() for part in found], axis=1))


def _towards(
    dx: int,
    dy: int,
    fuel: list[np.ndarray],
    wind: list[np.ndarray],
    steepness: np.ndarray,
    downhill: np.ndarray,
    moisture: np.float32,
) -> np.ndarray:
    w_0, delta, m_x, sigma = fuel
    speed, direction = wind
    eta_s = min(0.174 * SILICA_FREE**-0.19, 1)
    share = np.minimum(moisture / m_x, 1)
    eta_m = 1 - 2.59 * share + 5.11 * share**2 - 3.52 * share**3
    net = w_0 * (1 - MINERAL)
    bulk = w_0 / delta
    packing = bulk / DENSITY
    best = 3.348 * sigma**-0.8189
    gamma_max = sigma**1.5 / (495 + 0.0594 * sigma**1.5)
    a = 133 * sigma**-0.7913
    gamma = gamma_max * (packing / best) ** a * np.exp(a * (1 - packing / best))
    intensity = gamma * net * HEAT * eta_m * eta_s
    xi = np.exp((0.792 + 0.681 * sigma**0.5) * (packing + 0.1)) / (192 + 0.2595 * sigma)
    c = 7.47 * np.exp(-0.133 * sigma**0.55)
    b = 0.02526 * sigma**0.54
    e = 0.715 * np.exp(-3.59e-4 * sigma)
    theta = np.float32(np.arctan2(np.float32(-dy), np.float32(dx)))
    along = speed * np.cos(np.radians(90 - direction) - theta)
    along = np.where(along < 0, np.float32(0), along)
    phi_w = c * along**b * (packing / best) ** -e
    slope = -steepness * np.cos(downhill + theta)
    sign = np.where(slope > 0, 1, -1)  # integers: what follows is float64, as in SimFire
    phi_s = 5.275 * packing**-0.3 * sign * slope**2
    epsilon = np.exp(-138 / sigma)
    q_ig = 250 + 1116 * moisture
    rate = (intensity * xi * (1 + phi_w + phi_s)) / (bulk * epsilon * q_ig)
    return np.where(w_0 > 0, np.where(rate < 0, 0.0, rate), 0.0)


class SimFires(NamedTuple):
    """The state of N fires over C cells each."""

    fire_map: Any  # uint8 [N, C] codes
    amounts: Any  # float64 [N, C] feet burned into each cell
    spread: Any  # float64 [N, C] feet of this update; zero between updates
    marked: Any  # uint8 [N, C] whether a cell is a target of this update; zero between updates
    cells: Any  # int32 [N, 2C or more] the burning cells, in SimFire's order; see `roomier`
    ages: Any  # int32, likewise, their ages
    targets: Any  # int32 [N, C] list of the targets of an update
    clock: Any  # int32 [N, 3] length of the list, updates, whether it is over
    elapsed: Any  # float64 [N] minutes, added up update by update as SimFire does


class SimRules(NamedTuple):
    """What is the same for all fires."""

    width: int  # columns of the map
    stride: int  # 1 where fire spreads to eight neighbours, 2 where to four
    duration: int  # updates that a cell burns
    minutes: float  # fire time of an update
    runtime: float  # minutes until the simulation ends
    cell_ft: float  # side of a cell
    stops: bool  # lines stop fire, they do not just slow it down


def new_sim_fires(number: int, cells: int) -> SimFires:
    """N maps without fire."""
    shapes = (cells, cells, cells, cells, 2 * cells, 2 * cells, cells, 3)
    kinds = (np.uint8, np.float64, np.float64, np.uint8, np.int32, np.int32, np.int32, np.int32)
    arrays = [np.zeros((number, last), kind) for last, kind in zip(shapes, kinds, strict=True)]
    return SimFires._make([*arrays, np.zeros(number)])


def roomier(fires: SimFires, room: int) -> SimFires:
    """With lists that hold `room` burning cells; fires whose lists are long enough are left as they are.

    A cell that does not burn can catch fire once until the next lines are placed: room for the burning cells
    of that moment and for every cell of the map is enough until then.
    """
    more = room - fires.cells.shape[1]
    if more <= 0:
        return fires
    cells, ages = (np.pad(part, ((0, 0), (0, more))) for part in (fires.cells, fires.ages))
    return fires._replace(cells=cells, ages=ages)


@njit(cache=True)
def expire(fires: SimFires, n: int, duration: int) -> None:
    """Cells of age `duration` are burned, whatever stands there; the others grow older."""
    cells, ages, kept = fires.cells[n], fires.ages[n], 0
    for place in range(fires.clock[n, LENGTH]):
        if ages[place] >= duration:
            fires.fire_map[n, cells[place]] = BURNED
        else:
            cells[kept], ages[kept] = cells[place], ages[place] + 1
            kept += 1
    fires.clock[n, LENGTH] = kept


@njit(cache=True)
def aim(fires: SimFires, n: int, rates: Any, rules: SimRules) -> int:
    """The feet of this update into every target: the last burning neighbour's. Gives how many targets."""
    fire_map, spread, marked, found = fires.fire_map[n], fires.spread[n], fires.marked[n], 0
    width, height = rules.width, fire_map.shape[0] // rules.width
    for place in range(fires.clock[n, LENGTH]):
        cell = fires.cells[n, place]
        x, y = cell % width, cell // width
        for d in range(0, 8, rules.stride):
            tx, ty = x + DX[d], y + DY[d]
            if tx < 0 or ty < 0 or tx >= width or ty >= height:
                continue
            target = ty * width + tx
            if fire_map[target] == BURNING or fire_map[target] == BURNED:
                continue
            spread[target] = rates[target, d] * rules.minutes
            if not marked[target]:
                marked[target] = 1
                fires.targets[n, found] = target
                found += 1
    return found


@njit(cache=True)
def attenuate(fires: SimFires, n: int, stops: bool) -> None:
    """Lines: every one on the map takes its feet away, or nothing passes any of them."""
    fire_map, spread = fires.fire_map[n], fires.spread[n]
    for cell in range(fire_map.shape[0]):
        code = fire_map[cell]
        if code < FIRELINE:
            continue
        if stops:
            spread[cell] = 0.0
        elif fires.marked[n, cell]:
            spread[cell] -= ATTENUATION[code - FIRELINE]
        else:  # an untouched line gathers debt, update after update
            fires.amounts[n, cell] -= ATTENUATION[code - FIRELINE]


@njit(cache=True)
def settle(fires: SimFires, n: int, found: int, cell_ft: float) -> None:
    """Feet add up; targets with more than a cell's side ignite, in the order of rows and columns."""
    targets, fresh = fires.targets[n], 0
    for place in range(found):
        target = targets[place]
        fires.amounts[n, target] += fires.spread[n, target]
        fires.spread[n, target], fires.marked[n, target] = 0.0, 0
        if fires.amounts[n, target] > cell_ft:
            targets[fresh] = target
            fresh += 1
    ordered = np.sort(targets[:fresh])
    for target in ordered:
        length = fires.clock[n, LENGTH]
        fires.fire_map[n, target] = BURNING
        fires.cells[n, length], fires.ages[n, length] = target, 0
        fires.clock[n, LENGTH] = length + 1


@njit(cache=True)
def step(fires: SimFires, n: int, rates: Any, rules: SimRules, with_lines: bool) -> bool:
    """One update of one fire; gives whether it goes on (SimFire's RUNNING, else QUIT)."""
    clock = fires.clock[n]
    expire(fires, n, rules.duration)
    if clock[LENGTH] == 0 or rules.minutes > rules.runtime or fires.elapsed[n] > rules.runtime:
        clock[QUIT] = 1
        return False
    clock[UPDATES] += 1
    found = aim(fires, n, rates, rules)
    if found == 0:
        return True
    if with_lines:
        attenuate(fires, n, rules.stops)
    settle(fires, n, found, rules.cell_ft)
    fires.elapsed[n] += rules.minutes
    return True


@njit(cache=True)
def run(
    fires: SimFires, chosen: Any, updates: int, table: Any, table_of: Any, rules: SimRules, with_lines: Any
) -> None:
    """Up to so many updates of the chosen fires, until SimFire would quit.

    Quitting ends the call, not the fire: what burns past the runtime is an update older after each call.
    """
    for n in chosen:
        for _ in range(updates):
            if not step(fires, n, table[table_of[n]], rules, with_lines[n]):
                break


class SimFire:
    """A number N of fires on maps of one shape."""

    def __init__(self, settings: Settings, number: int) -> None:
        self.settings = settings
        self.shape = settings.area.screen_size
        self.fires = new_sim_fires(number, self.shape[0] * self.shape[1])
        self._of = np.zeros(number, np.int64)
        self._rates = np.zeros((0, 0, 8))
        self._rules = SimRules(
            self.shape[1],
            1 if settings.fire.diagonal_spread else 2,
            settings.fire.max_fire_duration,
            settings.simulation.update_rate,
            float(settings.simulation.runtime),
            settings.area.pixel_scale,
            not settings.mitigation.ros_attenuation,
        )

    def set_landscapes(self, landscapes: list[Landscape], of: np.ndarray) -> None:
        """Makes the rates of all landscapes; `of` says which one each fire burns on."""
        self._of = np.asarray(of, np.int64)
        self._rates = np.stack([self._tabulate(landscape) for landscape in landscapes])

    def set_landscape(self, place: int, landscape: Landscape) -> None:
        """Another landscape in the place of one."""
        self._rates[place] = self._tabulate(landscape)

    def look_again(self, fire: int) -> None:
        """Nothing is kept between updates that depends on the ground."""

    def begin(self, fire: int, cells: np.ndarray, seed: int) -> None:
        """A map without fire, then the first burning cells; nothing is left to chance here."""
        fires = self.fires
        for array in (fires.fire_map, fires.amounts, fires.clock, fires.elapsed):
            array[fire] = 0
        fires.fire_map[fire, cells] = BURNING
        fires.cells[fire, : len(cells)] = np.sort(cells)
        fires.ages[fire, : len(cells)] = 0
        fires.clock[fire, LENGTH] = len(cells)

    def run(self, chosen: np.ndarray, updates: int) -> None:
        """So many updates of the chosen fires, or as many as SimFire makes before it quits."""
        with_lines = (self.fires.fire_map >= FIRELINE).any(axis=1)
        run(self.fires, chosen, updates, self._rates, self._of, self._rules, with_lines)

    def place(self, fires: np.ndarray, cells: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Lines wherever they are asked for, as SimFire does it: first firelines, then the other kinds."""
        for code in sorted(set(codes.tolist())):
            here = codes == code
            self.fires.fire_map[fires[here], cells[here]] = code
        longest = int(self.fires.clock[fires, LENGTH].max(initial=0))
        self.fires = roomier(self.fires, longest + self.fires.fire_map.shape[1])
        return np.ones(len(cells), bool)

    @property
    def updates(self) -> np.ndarray:
        """Updates that each fire has made."""
        return self.fires.clock[:, UPDATES]

    @property
    def active(self) -> np.ndarray:
        """SimFire's own word: false from the update on that found nothing burning, or the time over."""
        return self.fires.clock[:, QUIT] == 0

    @property
    def burn_amounts(self) -> np.ndarray:
        """Feet burned into each cell, as SimFire counts them."""
        return self.fires.amounts

    def counts(self) -> np.ndarray:
        """Cells of each code, [N, 6]."""
        return np.stack([np.bincount(fire, minlength=6) for fire in self.fires.fire_map]).astype(np.int32)

    def state(self) -> dict[str, Any]:
        """All that changes while fires burn."""
        return {name: getattr(self.fires, name).copy() for name in _KEPT}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `state`."""
        self.fires = roomier(self.fires, state["cells"].shape[1])
        for name in _KEPT:
            kept = state[name]
            part = getattr(self.fires, name)
            if name in _LISTS:
                part = part[:, : kept.shape[1]]
            part[...] = kept

    def _tabulate(self, landscape: Landscape) -> np.ndarray:
        moisture = landscape.moisture["m1h"]  # SimFire knows one moisture
        return rates(landscape, self.settings.area.pixel_scale, moisture)


_LISTS = ("cells", "ages")
_KEPT = ("fire_map", "amounts", *_LISTS, "clock", "elapsed")
