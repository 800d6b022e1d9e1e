"""The spread of many fires, cell by cell: what one step does, control lines, embers (physics `behave`).

Fire arrives in a cell from that burning neighbour whose front crosses it first: `arrival` holds the earliest
time known, and what a cell costs to cross in each of eight directions comes from a table. A step ignites what
is due, and every new burning cell makes offers to its neighbours; so a fire costs work where its front is,
and nothing elsewhere. Times are whole numbers (TICKS to a step), so that neither the order of cells nor the
machine nor the device makes a difference. No cell is crossed in less than a step: what ignites in a step can
only bring fire to others in a later one.

A cell stays BURNING while `waits` is above zero (ground beside it that its front still has to cross) and for
the duration of the settings; then it is BURNED.

Chance (embers) comes from a hash of the fire's seed, the update and the cell, never from a generator with a
state: the same seed gives the same fire, in whatever order cells are visited and however updates are cut into
calls.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING, FIRELINE, NEIGHBOURS, UNBURNED

TICK_BITS = 11
TICKS = 1 << TICK_BITS
NEVER = 1 << 30
STEPS = NEVER // TICKS - 1
"""The steps that the clock of a fire can count."""

SPEED = 1 << 40
"""SPEED // cost is a rate of spread: what a line holds is given in this unit."""

HOLDS_ALL = 1 << 30
DX = tuple(dx for dx, _ in NEIGHBOURS)
DY = tuple(dy for _, dy in NEIGHBOURS)
# Two bits per direction: a table that stays in a register, on a GPU too.
STEPS_X = sum((dx + 1) << (2 * d) for d, dx in enumerate(DX))
STEPS_Y = sum((dy + 1) << (2 * d) for d, dy in enumerate(DY))
DIAGONAL_SHARE = 46341  # 1/sqrt(2) in 1/65536: what a line holds is per foot, and diagonals are longer
FRINGE, COOLING, NOW = range(3)
STILL_MPH = 1.0  # below this no ember is carried anywhere
USUAL_MPH = 10.0  # the wind at which an ember flies the distance of the settings, on average


class Fires(NamedTuple):
    """The state of N fires over C cells each."""

    fire_map: Any  # uint8 [N, C] codes
    arrival: Any  # int32 [N, C] when fire comes (unburned) or came; NEVER where nothing burns beside
    held: Any  # int32 [N, C] the rate of spread that a line on the cell takes away
    waits: Any  # uint8 [N, C] how many neighbours a burning cell's front still has to cross
    fringe: Any  # int32 [N, C] list of the cells that fire is coming to
    cooling: Any  # int32 [N, C] list of the burning cells that wait for nothing
    clock: Any  # int32 [N, 3] lengths of the two lists, and the step
    counts: Any  # int32 [N, 6] cells of each code


class Carried(NamedTuple):
    """How embers fly (spotting): burning cells throw them downwind, some start fires ahead of the front."""

    probability: float  # that a cell which ignites throws one that starts a fire where it lands on fuel
    cells: float  # mean distance in cells in a wind of 10 mph; proportional to the wind, exponentially spread
    angle: float  # how far at most they stray from the wind's direction, radians


def new_fires(number: int, cells: int) -> Fires:
    """N maps without fire."""

    def array(kind: type, last: int = cells) -> np.ndarray:
        return np.zeros((number, last), kind)

    fires = Fires(
        array(np.uint8), array(np.int32), array(np.int32), array(np.uint8), array(np.int32), array(np.int32),
        array(np.int32, 3), array(np.int32, 6),
    )  # fmt: skip
    fires.arrival[:] = NEVER
    fires.counts[:, 0] = cells
    return fires


@njit(cache=True)
def beside(steps: int, direction: int) -> int:
    """-1, 0 or 1: how a direction moves along x (`STEPS_X`) or y (`STEPS_Y`)."""
    return ((steps >> (2 * direction)) & 3) - 1


@njit(cache=True)
def crossing(cost: int, code: int, held: int, direction: int) -> int:
    """Ticks to cross a cell, after a line on it has taken its part of the speed; NEVER if it holds."""
    if code < FIRELINE or cost >= NEVER:
        return cost
    if held >= HOLDS_ALL:
        return NEVER
    if direction & 1:
        held = (held * DIAGONAL_SHARE) >> 16
    rate = SPEED // cost - held
    return min(NEVER, SPEED // rate) if rate > 0 else NEVER


@njit(cache=True)
def spread_from(fires: Fires, n: int, cell: int, code: int, costs: Any, width: int, stride: int) -> None:
    """A cell that has just ignited (it was `code` before) offers fire to its neighbours."""
    fire_map, arrival, held, waits = fires.fire_map[n], fires.arrival[n], fires.held[n], fires.waits[n]
    clock, height = fires.clock[n], fire_map.shape[0] // width
    y = cell // width
    x = cell - y * width
    begun, own, found = np.int64(arrival[cell]), np.int64(held[cell]), 0
    for d in range(0, 8, stride):
        tx, ty = x + beside(STEPS_X, d), y + beside(STEPS_Y, d)
        if tx < 0 or ty < 0 or tx >= width or ty >= height:
            continue
        target = ty * width + tx
        there = fire_map[target]
        if there == BURNED:
            continue
        if there == BURNING:  # it waited for this cell, if fire could come from there
            back = (d + 4) & 7
            if crossing(np.int64(costs[cell, back]), code, own, back) < NEVER:
                waits[target] -= 1
                if waits[target] == 0:
                    fires.cooling[n, clock[COOLING]] = target
                    clock[COOLING] += 1
            continue
        cost = crossing(np.int64(costs[target, d]), there, np.int64(held[target]), d)
        if cost >= NEVER:
            continue
        found += 1
        if begun + cost < arrival[target]:
            if arrival[target] == NEVER:
                fires.fringe[n, clock[FRINGE]] = target
                clock[FRINGE] += 1
            arrival[target] = begun + cost
    waits[cell] = found
    if found == 0:
        fires.cooling[n, clock[COOLING]] = cell
        clock[COOLING] += 1


@njit(cache=True)
def ignite(fires: Fires, n: int, cell: int, time: int, costs: Any, width: int, stride: int) -> None:
    """A cell begins to burn."""
    code, counts = fires.fire_map[n, cell], fires.counts[n]
    counts[code] -= 1
    counts[BURNING] += 1
    fires.fire_map[n, cell] = BURNING
    fires.arrival[n, cell] = time
    spread_from(fires, n, cell, code, costs, width, stride)


@njit(cache=True)
def arrive(fires: Fires, n: int, costs: Any, width: int, stride: int) -> None:
    """What fire has come to by the end of this step ignites."""
    arrival, fringe, clock = fires.arrival[n], fires.fringe[n], fires.clock[n]
    due, size, kept = clock[NOW] << TICK_BITS, clock[FRINGE], 0
    for place in range(size):
        cell = fringe[place]
        if arrival[cell] <= due:
            ignite(fires, n, cell, arrival[cell], costs, width, stride)
        else:
            fringe[kept] = cell
            kept += 1
    for place in range(size, clock[FRINGE]):  # what was added meanwhile
        fringe[kept] = fringe[place]
        kept += 1
    clock[FRINGE] = kept


@njit(cache=True)
def burn_out(fires: Fires, n: int, duration: int) -> None:
    """Cells that have burned long enough, with nothing left to cross, are burned."""
    cooling, arrival, clock, counts = fires.cooling[n], fires.arrival[n], fires.clock[n], fires.counts[n]
    before, kept = (clock[NOW] - duration) << TICK_BITS, 0
    for place in range(clock[COOLING]):
        cell = cooling[place]
        if arrival[cell] <= before:
            fires.fire_map[n, cell] = BURNED
            counts[BURNING] -= 1
            counts[BURNED] += 1
        else:
            cooling[kept] = cell
            kept += 1
    clock[COOLING] = kept


@njit(cache=True)
def step(fires: Fires, n: int, costs: Any, width: int, stride: int, duration: int) -> None:
    """One step of one fire."""
    fires.clock[n, NOW] += 1
    arrive(fires, n, costs, width, stride)
    burn_out(fires, n, duration)


@njit(cache=True)
def start(fires: Fires, n: int, cells: Any, costs: Any, width: int, stride: int) -> None:
    """A map without lines and fire, then the first burning cells."""
    fires.fire_map[n], fires.arrival[n], fires.held[n], fires.waits[n] = 0, NEVER, 0, 0
    fires.clock[n], fires.counts[n] = 0, 0
    fires.counts[n, 0] = fires.fire_map.shape[1]
    for cell in cells:
        ignite(fires, n, cell, 0, costs, width, stride)


@njit(cache=True)
def look_again(fires: Fires, n: int, costs: Any, since: Any, starts: Any, width: int, stride: int) -> None:
    """All offers again: lines were placed, or the wind has changed.

    What a front has crossed of a cell so far it keeps, at the speeds of the winds it had.

    :param costs: of the wind that blows now
    :param since: [S, C, 8] costs of the winds until now, the last one now
    :param starts: [S] the step at which each of them began
    """
    fire_map, arrival, held, waits = fires.fire_map[n], fires.arrival[n], fires.held[n], fires.waits[n]
    clock, cells = fires.clock[n], fires.fire_map.shape[1]
    height, now = cells // width, np.int64(clock[NOW]) << TICK_BITS
    clock[FRINGE], clock[COOLING] = 0, 0
    for cell in range(cells):
        if fire_map[cell] == BURNING:
            waits[cell] = 0
        elif fire_map[cell] != BURNED:
            arrival[cell] = NEVER
    for cell in range(cells):
        if fire_map[cell] != BURNING:
            continue
        y = cell // width
        x = cell - y * width
        for d in range(0, 8, stride):
            tx, ty = x + beside(STEPS_X, d), y + beside(STEPS_Y, d)
            if tx < 0 or ty < 0 or tx >= width or ty >= height:
                continue
            target = ty * width + tx
            code = fire_map[target]
            if code == BURNING or code == BURNED:
                continue
            cost = crossing(np.int64(costs[target, d]), code, np.int64(held[target]), d)
            if cost >= NEVER:
                continue
            waits[cell] += 1
            crossed = 0.0
            for part in range(starts.shape[0]):
                first = max(np.int64(starts[part]) << TICK_BITS, np.int64(arrival[cell]))
                last = np.int64(starts[part + 1]) << TICK_BITS if part + 1 < starts.shape[0] else now
                speed = crossing(np.int64(since[part, target, d]), code, np.int64(held[target]), d)
                if last > first and speed < NEVER:
                    crossed += (last - first) / speed
            comes = now + np.int64(max(0.0, 1.0 - crossed) * cost)
            if comes < arrival[target]:
                if arrival[target] == NEVER:
                    fires.fringe[n, clock[FRINGE]] = target
                    clock[FRINGE] += 1
                arrival[target] = comes
        if waits[cell] == 0:
            fires.cooling[n, clock[COOLING]] = cell
            clock[COOLING] += 1


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
    """Up to so many updates of the chosen fires, until each is out or its time is over.

    :param limit: int [N] the last update each fire may make
    :param table: int32 [T, C, 8] costs
    :param table_of: int [N] which of them holds for a fire
    :param substeps: int [T] steps that make up one update
    :param wind: [T, C, 2] midflame mph toward x and y; [T, 0, 2] where there are no embers
    :param seeds: uint64 [N] of the embers
    """
    for n in chosen:
        parts, clock = substeps[table_of[n]], fires.clock[n]
        costs, blowing = table[table_of[n]], wind[table_of[n]]
        for _ in range(updates):
            if clock[FRINGE] + clock[COOLING] == 0 or clock[NOW] >= limit[n] * parts:
                break
            for _ in range(parts):
                step(fires, n, costs, width, stride, duration * parts)
                if carried.probability > 0.0:
                    throw(fires, n, costs, blowing, width, seeds[n], carried)


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


@njit(cache=True)
def crossed_share(fires: Fires, n: int, costs: Any, width: int, stride: int, shares: Any) -> None:
    """How far fire has come into each cell, 0 to 1, in the wind that blows now."""
    fire_map, arrival, clock = fires.fire_map[n], fires.arrival[n], fires.clock[n]
    cells = fire_map.shape[0]
    now = np.int64(clock[NOW]) << TICK_BITS
    for cell in range(cells):
        shares[cell] = 1.0 if fire_map[cell] == BURNING or fire_map[cell] == BURNED else 0.0
    for place in range(clock[FRINGE]):
        cell = fires.fringe[n, place]
        y = cell // width
        x = cell - y * width
        for d in range(0, 8, stride):
            sx, sy = x - beside(STEPS_X, d), y - beside(STEPS_Y, d)
            if sx < 0 or sy < 0 or sx >= width or sy * width >= cells:
                continue
            source = sy * width + sx
            if fire_map[source] == BURNING:
                held = np.int64(fires.held[n, cell])
                cost = crossing(np.int64(costs[cell, d]), fire_map[cell], held, d)
                if cost < NEVER:
                    shares[cell] = max(shares[cell], min(1.0, (now - arrival[source]) / cost))
