"""Spotting: burning cells throw embers downwind, some of which start fires ahead of the front.

Chance comes from a hash of the fire's seed, the update and the cell, never from a generator with a state: the
same seed gives the same fire, in whatever order cells are visited and however updates are cut into calls.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rayfish.worlds.wildfire.fire.codes import BURNING, UNBURNED
from rayfish.worlds.wildfire.fire.spread import COOLING, FRINGE, NEVER, NOW, TICK_BITS, Fires, step

STILL_MPH = 1.0  # below this no ember is carried anywhere
USUAL_MPH = 10.0  # the wind at which an ember flies the distance of the settings, on average


class Carried(NamedTuple):
    """How embers fly.

    :param probability: that a cell which ignites throws one that starts a fire where it lands on fuel
    :param cells: mean distance in cells in a wind of 10 mph; proportional to the wind, exponentially spread
    :param angle: how far at most they stray from the wind's direction, radians
    """

    probability: float
    cells: float
    angle: float


@njit(cache=True)
def chance(seed: int, update: int, cell: int, which: int) -> float:
    """A number in [0, 1) that only these four decide (SplitMix64)."""
    mixed = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(update * 4 + which + 1)
    mixed ^= np.uint64(cell + 1) * np.uint64(0xD1B54A32D192ED03)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.float64(mixed >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True)
def throw(fires: Fires, n: int, costs: Any, wind: Any, width: int, seed: int, carried: Carried) -> None:
    """The cells that ignited in this step throw their embers; where one lands, fire starts in the next."""
    now, cells = fires.clock[n, NOW], fires.fire_map.shape[1]
    due, height = np.int64(now) << TICK_BITS, cells // width
    for cell in range(cells):
        if fires.fire_map[n, cell] != BURNING or fires.arrival[n, cell] <= (now - 1) << TICK_BITS:
            continue
        mph = math.hypot(wind[cell, 0], wind[cell, 1])
        if mph < STILL_MPH or chance(seed, now, cell, 0) >= carried.probability:
            continue
        far = -math.log(1.0 - chance(seed, now, cell, 1)) * carried.cells * mph / USUAL_MPH
        turn = (2.0 * chance(seed, now, cell, 2) - 1.0) * carried.angle
        along = math.atan2(wind[cell, 1], wind[cell, 0]) + turn
        x = cell % width + round(far * math.cos(along))
        y = cell // width + round(far * math.sin(along))
        if x < 0 or y < 0 or x >= width or y >= height:
            continue
        target = y * width + x
        if fires.fire_map[n, target] == UNBURNED and costs[target].min() < NEVER:
            if fires.arrival[n, target] == NEVER:
                fires.fringe[n, fires.clock[n, FRINGE]] = target
                fires.clock[n, FRINGE] += 1
            fires.arrival[n, target] = min(fires.arrival[n, target], due + 1)


@njit(cache=True)
def run(
    fires: Fires,
    chosen: Any,
    updates: int,
    limit: Any,
    table: Any,
    table_of: Any,
    substeps: Any,
    width: int,
    stride: int,
    duration: int,
    wind: Any,
    seeds: Any,
    carried: Carried,
) -> None:
    """As `spread.run`, with embers; `wind` is [T, C, 2], midflame mph toward x and y."""
    for n in chosen:
        parts, clock = substeps[table_of[n]], fires.clock[n]
        costs, blowing = table[table_of[n]], wind[table_of[n]]
        for _ in range(updates):
            if clock[FRINGE] + clock[COOLING] == 0 or clock[NOW] >= limit[n] * parts:
                break
            for _ in range(parts):
                step(fires, n, costs, width, stride, duration * parts)
                throw(fires, n, costs, blowing, width, seeds[n], carried)
