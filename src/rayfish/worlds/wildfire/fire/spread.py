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
    seeds: Any  # uint64 [N] of the embers of each fire


class Tables(NamedTuple):
    """Landscapes in T winds, and which of these N fires burn in."""

    costs: Any  # int32 [T, C, 8] ticks to cross a cell, by the direction fire travels in
    substeps: Any  # int64 [T] steps that make up one update
    heat: Any  # float32 [T, C] BTU/ft^2 that the front releases
    wind: Any  # float64 [T, C, 2] midflame mph toward x and y; [T, 0, 2] where there are no embers
    of: Any  # int64 [N] the landscape and wind of each fire


class Rules(NamedTuple):
    """What is the same for all fires."""

    width: int  # columns of the map
    stride: int  # 1 where fire spreads to eight neighbours, 2 where to four
    duration: int  # updates that a cell burns, at least


def new_fires(number: int, cells: int) -> Fires:
    """N maps without fire."""
    kinds = (np.uint8, np.int32, np.int32, np.uint8, *[np.int32] * 4)
    sizes = (*[cells] * 6, 3, 6)
    fires = Fires(*(np.zeros((number, size), kind) for size, kind in zip(sizes, kinds, strict=True)))
    fires.arrival[:] = NEVER
    fires.counts[:, 0] = cells
    return fires


def new_tables(number: int, cells: int, embers: bool) -> Tables:
    """Tables that are still to be filled in."""
    return Tables(
        np.empty((number, cells, 8), np.int32),
        np.ones(number, np.int64),
        np.empty((number, cells), np.float32),
        np.empty((number, cells if embers else 0, 2)),
        np.zeros(0, np.int64),
    )


@njit(cache=True)
def neighbour(cell: int, direction: int, width: int, cells: int) -> int:
    """The cell beside another, or -1 outside the map."""
    y = cell // width
    x = cell - y * width + ((STEPS_X >> (2 * direction)) & 3) - 1
    y += ((STEPS_Y >> (2 * direction)) & 3) - 1
    if x < 0 or y < 0 or x >= width or y * width >= cells:
        return -1
    return y * width + x


@njit(cache=True)
def back(direction: int) -> int:
    """The opposite direction."""
    return (direction + 4) & 7


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
def expect(fires: Fires, n: int, cell: int, time: int) -> None:
    """Fire comes to a cell at a time, unless it comes earlier anyway."""
    if time < fires.arrival[n, cell]:
        if fires.arrival[n, cell] == NEVER:
            fires.fringe[n, fires.clock[n, FRINGE]] = cell
            fires.clock[n, FRINGE] += 1
        fires.arrival[n, cell] = time


@njit(cache=True)
def cool(fires: Fires, n: int, cell: int) -> None:
    """A burning cell waits for nothing any more."""
    fires.cooling[n, fires.clock[n, COOLING]] = cell
    fires.clock[n, COOLING] += 1


@njit(cache=True)
def stop_waiting(fires: Fires, n: int, cell: int) -> None:
    """A burning cell waits for one neighbour less."""
    fires.waits[n, cell] -= 1
    if fires.waits[n, cell] == 0:
        cool(fires, n, cell)


@njit(cache=True)
def spread_from(fires: Fires, n: int, cell: int, code: int, costs: Any, rules: Rules) -> None:
    """A cell that has just ignited (it was `code` before) offers fire to its neighbours."""
    fire_map, arrival, held, waits = fires.fire_map[n], fires.arrival[n], fires.held[n], fires.waits[n]
    clock, begun, own, found = fires.clock[n], np.int64(arrival[cell]), np.int64(held[cell]), 0
    width, height = rules.width, fire_map.shape[0] // rules.width
    y = cell // width
    x = cell - y * width
    for d in range(0, 8, rules.stride):
        tx, ty = x + ((STEPS_X >> (2 * d)) & 3) - 1, y + ((STEPS_Y >> (2 * d)) & 3) - 1
        if tx < 0 or ty < 0 or tx >= width or ty >= height:
            continue
        target = ty * width + tx
        there = fire_map[target]
        if there == BURNED:
            continue
        if there == BURNING:  # it waited for this cell, if fire could come from there
            if crossing(np.int64(costs[cell, back(d)]), code, own, back(d)) < NEVER:
                stop_waiting(fires, n, target)
            continue
        cost = crossing(np.int64(costs[target, d]), there, np.int64(held[target]), d)
        if cost < NEVER:
            found += 1
            if begun + cost < arrival[target]:  # `expect` and `neighbour` by hand: the hottest loop there is
                if arrival[target] == NEVER:
                    fires.fringe[n, clock[FRINGE]] = target
                    clock[FRINGE] += 1
                arrival[target] = begun + cost
    waits[cell] = found
    if found == 0:
        cool(fires, n, cell)


@njit(cache=True)
def ignite(fires: Fires, n: int, cell: int, time: int, costs: Any, rules: Rules) -> None:
    """A cell begins to burn."""
    code, counts = fires.fire_map[n, cell], fires.counts[n]
    counts[code] -= 1
    counts[BURNING] += 1
    fires.fire_map[n, cell] = BURNING
    fires.arrival[n, cell] = time
    spread_from(fires, n, cell, code, costs, rules)


@njit(cache=True)
def arrive(fires: Fires, n: int, costs: Any, rules: Rules) -> None:
    """What fire has come to by the end of this step ignites."""
    arrival, fringe, clock = fires.arrival[n], fires.fringe[n], fires.clock[n]
    due, size, kept = clock[NOW] << TICK_BITS, clock[FRINGE], 0
    for place in range(size):
        cell = fringe[place]
        if arrival[cell] <= due:
            ignite(fires, n, cell, arrival[cell], costs, rules)
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
def start(fires: Fires, n: int, cells: Any, costs: Any, rules: Rules) -> None:
    """A map without lines and fire, then the first burning cells."""
    fires.fire_map[n], fires.arrival[n], fires.held[n], fires.waits[n] = 0, NEVER, 0, 0
    fires.clock[n], fires.counts[n] = 0, 0
    fires.counts[n, 0] = fires.fire_map.shape[1]
    for cell in cells:
        ignite(fires, n, cell, 0, costs, rules)


@njit(cache=True)
def look_again(fires: Fires, n: int, since: Any, starts: Any, rules: Rules) -> None:
    """All offers again: lines were placed, or the wind has changed.

    What a front has crossed of a cell so far it keeps, at the speeds of the winds it had.

    :param since: [S, C, 8] costs of the winds until now; the last one blows now
    :param starts: [S] the step at which each of them began
    """
    fire_map, arrival, held, waits = fires.fire_map[n], fires.arrival[n], fires.held[n], fires.waits[n]
    clock, cells, costs = fires.clock[n], fires.fire_map.shape[1], since[-1]
    now = np.int64(clock[NOW]) << TICK_BITS
    clock[FRINGE], clock[COOLING] = 0, 0
    for cell in range(cells):
        if fire_map[cell] == BURNING:
            waits[cell] = 0
        elif fire_map[cell] != BURNED:
            arrival[cell] = NEVER
    for cell in range(cells):
        if fire_map[cell] != BURNING:
            continue
        for d in range(0, 8, rules.stride):
            target = neighbour(cell, d, rules.width, cells)
            if target < 0 or fire_map[target] == BURNING or fire_map[target] == BURNED:
                continue
            code = fire_map[target]
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
            expect(fires, n, target, now + np.int64(max(0.0, 1.0 - crossed) * cost))
        if waits[cell] == 0:
            cool(fires, n, cell)


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
def throw(fires: Fires, n: int, costs: Any, wind: Any, width: int, carried: Carried) -> None:
    """The cells that ignited in this step throw their embers; where one lands, fire starts in the next."""
    now, cells = fires.clock[n, NOW], fires.fire_map.shape[1]
    due, height, seed = np.int64(now) << TICK_BITS, cells // width, carried.seeds[n]
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
            expect(fires, n, target, due + 1)


@njit(cache=True)
def run(
    fires: Fires, chosen: Any, updates: int, limit: Any, tables: Tables, rules: Rules, carried: Carried
) -> None:
    """Up to so many updates of the chosen fires, until each is out or its time is over.

    :param limit: int [N] the last update each fire may make
    """
    for n in chosen:
        parts, clock = tables.substeps[tables.of[n]], fires.clock[n]
        costs, wind = tables.costs[tables.of[n]], tables.wind[tables.of[n]]
        for _ in range(updates):
            if clock[FRINGE] + clock[COOLING] == 0 or clock[NOW] >= limit[n] * parts:
                break
            for _ in range(parts):
                clock[NOW] += 1
                arrive(fires, n, costs, rules)
                burn_out(fires, n, rules.duration * parts)
                if carried.probability > 0.0:
                    throw(fires, n, costs, wind, rules.width, carried)


@njit(cache=True)
def place(fires: Fires, chosen: Any, cells: Any, codes: Any, held: Any, tables: Tables, rules: Rules) -> None:
    """Puts a line on each of the cells, which do not burn; fire that was coming slows down or stays out.

    :param chosen: int [K] the fire of each cell
    :param held: int32 [K] the rate of spread that each line takes away
    """
    for k in range(cells.shape[0]):
        n, cell = chosen[k], cells[k]
        costs = tables.costs[tables.of[n]]
        code, before = fires.fire_map[n, cell], fires.held[n, cell]
        fires.counts[n, code] -= 1
        fires.counts[n, codes[k]] += 1
        fires.fire_map[n, cell], fires.held[n, cell] = codes[k], held[k]
        comes = _come(fires, n, cell, code, before, costs, rules)
        if comes == NEVER and fires.arrival[n, cell] < NEVER:
            _leave_fringe(fires, n, cell)
        expect(fires, n, cell, comes)
        fires.arrival[n, cell] = comes  # a line makes it later


@njit(cache=True)
def _come(fires: Fires, n: int, cell: int, code: int, held: int, costs: Any, rules: Rules) -> int:
    """When fire comes to a cell now; burning neighbours that cannot enter it any more stop waiting for it.

    :param code: what was there before the line, with what it held
    """
    now, comes = np.int64(fires.clock[n, NOW]) << TICK_BITS, NEVER
    for d in range(0, 8, rules.stride):
        source = neighbour(cell, back(d), rules.width, fires.fire_map.shape[1])
        if source < 0 or fires.fire_map[n, source] != BURNING:
            continue
        cost = np.int64(costs[cell, d])
        could = crossing(cost, code, np.int64(held), d) < NEVER
        takes = crossing(cost, fires.fire_map[n, cell], np.int64(fires.held[n, cell]), d)
        if takes < NEVER:
            comes = min(comes, max(now, fires.arrival[n, source] + takes))
            if not could:  # a better line gave way to a worse one
                fires.waits[n, source] += 1
        elif could:
            stop_waiting(fires, n, source)
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
def crossed_share(fires: Fires, n: int, costs: Any, rules: Rules, shares: Any) -> None:
    """How far fire has come into each cell, 0 to 1, in the wind that blows now."""
    fire_map, arrival, clock, cells = fires.fire_map[n], fires.arrival[n], fires.clock[n], shares.shape[0]
    now = np.int64(clock[NOW]) << TICK_BITS
    for cell in range(cells):
        shares[cell] = 1.0 if fire_map[cell] == BURNING or fire_map[cell] == BURNED else 0.0
    for place in range(clock[FRINGE]):
        cell = fires.fringe[n, place]
        for d in range(0, 8, rules.stride):
            source = neighbour(cell, back(d), rules.width, cells)
            if source >= 0 and fire_map[source] == BURNING:
                held = np.int64(fires.held[n, cell])
                cost = crossing(np.int64(costs[cell, d]), fire_map[cell], held, d)
                if cost < NEVER:
                    shares[cell] = max(shares[cell], min(1.0, (now - arrival[source]) / cost))
