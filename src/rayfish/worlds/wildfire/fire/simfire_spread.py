"""SimFire's fire manager, update by update: what `physics: simfire` does.

The list of burning cells is kept in SimFire's order (by update of ignition, then row and column), because
of several burning neighbours the last one written decides. A cell may stand in it twice: a line on a burning
cell makes it a target again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rayfish.worlds.wildfire.fire.codes import ATTENUATION_FT as _FEET
from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING, FIRELINE, NEIGHBOURS

DX = tuple(dx for dx, _ in NEIGHBOURS)
DY = tuple(dy for _, dy in NEIGHBOURS)
ATTENUATION = tuple(_FEET[code] for code in sorted(_FEET))
LENGTH, UPDATES, QUIT = range(3)


class SimFires(NamedTuple):
    """The state of N fires over C cells each.

    :param fire_map: uint8 [N, C] codes
    :param amounts: float64 [N, C] feet burned into each cell
    :param spread: float64 [N, C] feet of this update; zero between updates
    :param marked: uint8 [N, C] whether a cell is a target of this update; zero between updates
    :param cells: int32 [N, 2C or more] the burning cells, in SimFire's order; see `roomier`
    :param ages: int32, likewise, their ages
    :param targets: int32 [N, C] list of the targets of an update
    :param clock: int32 [N, 3] length of the list, updates, whether it is over
    :param elapsed: float64 [N] minutes, added up update by update as SimFire does
    """

    fire_map: Any
    amounts: Any
    spread: Any
    marked: Any
    cells: Any
    ages: Any
    targets: Any
    clock: Any
    elapsed: Any


def new_sim_fires(number: int, cells: int) -> SimFires:
    """N maps without fire."""
    return SimFires(
        np.zeros((number, cells), np.uint8),
        np.zeros((number, cells)),
        np.zeros((number, cells)),
        np.zeros((number, cells), np.uint8),
        np.zeros((number, 2 * cells), np.int32),
        np.zeros((number, 2 * cells), np.int32),
        np.zeros((number, cells), np.int32),
        np.zeros((number, 3), np.int32),
        np.zeros(number),
    )


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
def aim(fires: SimFires, n: int, rates: Any, minutes: float, width: int, stride: int) -> int:
    """The feet of this update into every target: the last burning neighbour's. Gives how many targets."""
    fire_map, spread, marked, found = fires.fire_map[n], fires.spread[n], fires.marked[n], 0
    height = fire_map.shape[0] // width
    for place in range(fires.clock[n, LENGTH]):
        cell = fires.cells[n, place]
        x, y = cell % width, cell // width
        for d in range(0, 8, stride):
            tx, ty = x + DX[d], y + DY[d]
            if tx < 0 or ty < 0 or tx >= width or ty >= height:
                continue
            target = ty * width + tx
            if fire_map[target] == BURNING or fire_map[target] == BURNED:
                continue
            spread[target] = rates[target, d] * minutes
            if not marked[target]:
                marked[target] = 1
                fires.targets[n, found] = target
                found += 1
    return found


@njit(cache=True)
def attenuate(fires: SimFires, n: int, attenuation: Any, stops: bool) -> None:
    """Lines: every one on the map takes its feet away, or nothing passes any of them."""
    fire_map, spread = fires.fire_map[n], fires.spread[n]
    for cell in range(fire_map.shape[0]):
        code = fire_map[cell]
        if code < FIRELINE:
            continue
        if stops:
            spread[cell] = 0.0
        elif fires.marked[n, cell]:
            spread[cell] -= attenuation[code - FIRELINE]
        else:  # an untouched line gathers debt, update after update
            fires.amounts[n, cell] -= attenuation[code - FIRELINE]


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
def step(
    fires: SimFires,
    n: int,
    rates: Any,
    width: int,
    stride: int,
    duration: int,
    minutes: float,
    runtime: float,
    cell_ft: float,
    stops: bool,
    with_lines: bool,
) -> bool:
    """One update of one fire; gives whether it goes on (SimFire's RUNNING, else QUIT)."""
    clock = fires.clock[n]
    expire(fires, n, duration)
    if clock[LENGTH] == 0 or minutes > runtime or fires.elapsed[n] > runtime:
        clock[QUIT] = 1
        return False
    clock[UPDATES] += 1
    found = aim(fires, n, rates, minutes, width, stride)
    if found == 0:
        return True
    if with_lines:
        attenuate(fires, n, ATTENUATION, stops)
    settle(fires, n, found, cell_ft)
    fires.elapsed[n] += minutes
    return True


@njit(cache=True)
def run(
    fires: SimFires,
    chosen: Any,
    updates: int,
    table: Any,
    table_of: Any,
    width: int,
    stride: int,
    duration: int,
    minutes: float,
    runtime: float,
    cell_ft: float,
    stops: bool,
    with_lines: Any,
) -> None:
    """Up to so many updates of the chosen fires, until SimFire would quit.

    Quitting ends the call, not the fire: what burns past the runtime is an update older after each call.
    """
    for n in chosen:
        for _ in range(updates):
            if not step(
                fires,
                n,
                table[table_of[n]],
                width,
                stride,
                duration,
                minutes,
                runtime,
                cell_ft,
                stops,
                with_lines[n],
            ):
                break
