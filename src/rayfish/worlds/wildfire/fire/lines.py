"""Control lines put on a burning map (physics `behave`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from rayfish.worlds.wildfire.fire.codes import BURNING
from rayfish.worlds.wildfire.fire.spread import (
    COOLING,
    FRINGE,
    NEVER,
    NOW,
    STEPS_X,
    STEPS_Y,
    TICK_BITS,
    Fires,
    beside,
    crossing,
)


@njit(cache=True)
def place(
    fires: Fires,
    chosen: Any,
    cells: Any,
    codes: Any,
    held: Any,
    table: Any,
    table_of: Any,
    width: int,
    stride: int,
) -> None:
    """Puts a line on each of the cells, which do not burn; fire that was coming slows down or stays out.

    :param chosen: int [K] the fire of each cell
    :param held: int32 [K] the rate of spread that each line takes away
    """
    for k in range(cells.shape[0]):
        n, cell = chosen[k], cells[k]
        costs = table[table_of[n]]
        code, before = fires.fire_map[n, cell], fires.held[n, cell]
        fires.counts[n, code] -= 1
        fires.counts[n, codes[k]] += 1
        fires.fire_map[n, cell], fires.held[n, cell] = codes[k], held[k]
        comes = _come(fires, n, cell, code, before, costs, width, stride)
        if comes < NEVER and fires.arrival[n, cell] == NEVER:
            fires.fringe[n, fires.clock[n, FRINGE]] = cell
            fires.clock[n, FRINGE] += 1
        elif comes == NEVER and fires.arrival[n, cell] < NEVER:
            _leave_fringe(fires, n, cell)
        fires.arrival[n, cell] = comes


@njit(cache=True)
def _come(fires: Fires, n: int, cell: int, code: int, held: int, costs: Any, width: int, stride: int) -> int:
    """When fire comes to a cell now; burning neighbours that cannot enter it any more stop waiting for it.

    :param code: what was there before the line, with what it held
    """
    clock, comes = fires.clock[n], NEVER
    now = np.int64(clock[NOW]) << TICK_BITS
    y = cell // width
    x = cell - y * width
    for d in range(0, 8, stride):
        sx, sy = x - beside(STEPS_X, d), y - beside(STEPS_Y, d)
        if sx < 0 or sy < 0 or sx >= width or sy * width >= fires.fire_map.shape[1]:
            continue
        source = sy * width + sx
        if fires.fire_map[n, source] != BURNING:
            continue
        cost = np.int64(costs[cell, d])
        could = crossing(cost, code, np.int64(held), d) < NEVER
        takes = crossing(cost, fires.fire_map[n, cell], np.int64(fires.held[n, cell]), d)
        if takes < NEVER:
            comes = min(comes, max(now, fires.arrival[n, source] + takes))
            if not could:  # a better line gave way to a worse one
                fires.waits[n, source] += 1
        elif could:
            fires.waits[n, source] -= 1
            if fires.waits[n, source] == 0:
                fires.cooling[n, clock[COOLING]] = source
                clock[COOLING] += 1
    return comes


@njit(cache=True)
def _leave_fringe(fires: Fires, n: int, cell: int) -> None:
    fringe, last = fires.fringe[n], fires.clock[n, FRINGE] - 1
    for place_ in range(last + 1):
        if fringe[place_] == cell:
            fringe[place_] = fringe[last]
            fires.clock[n, FRINGE] = last
            return
