"""The GPU's own loop over a fire: what `spread.step` does, arranged for a block of threads.

The map lies in the block's shared memory, a byte per cell (four to a word, changed by atomic operations): the
code, whether the cell ignited in this step, and how many neighbours it waits for. Earliest arrivals are found
by atomic minima. A step: sort out what is due and set it on fire, let it make offers, burn out; all threads
meet between these. Lists are kept in pairs, read from one and written to the other.
"""

from __future__ import annotations

from numba import cuda, int32, int64

from rayfish.worlds.wildfire.fire import spread
from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING, UNBURNED

FRINGE_LIST, COOLING_LIST, IGNITED_LIST, LISTS = 0, 2, 4, 5

NEVER, TICK_BITS = spread.NEVER, spread.TICK_BITS
FRINGE, COOLING, NOW = spread.FRINGE, spread.COOLING, spread.NOW

CODE, FRESH, WAIT_SHIFT = 7, 8, 4
"""A cell's byte: three bits of code, one for having ignited in this step, four for what it waits for."""

STEP, FRINGE_SIZE, COOLING_SIZE, NEW_FRINGE, NEW_COOLING, NEW_IGNITED, NEW_BURNED = range(7)
"""Counters of a block, in its shared memory."""


neighbour = cuda.jit(device=True)(spread.neighbour.py_func)
crossing = cuda.jit(device=True)(spread.crossing.py_func)


@cuda.jit(device=True)
def read(words, cell):
    """The byte of a cell."""
    return (words[cell >> 2] >> ((cell & 3) * 8)) & 255


@cuda.jit(device=True)
def change(words, cell, bits):
    """Flips bits of a cell."""
    cuda.atomic.xor(words, cell >> 2, int32(bits << ((cell & 3) * 8)))


@cuda.jit(device=True)
def append(lists, counter, sizes, cell):
    """Adds a cell to the list that a counter belongs to."""
    lists[cuda.atomic.add(sizes, counter, 1)] = cell


@cuda.jit(device=True)
def offer(n, cell, d, code, words, arrival, held, costs, lists, other, width, sizes):
    """A cell that has just ignited (it was `code` before) offers fire to one neighbour."""
    target = neighbour(cell, d, width, arrival.shape[1])
    if target < 0:
        return
    byte = read(words, target)
    there = byte & CODE
    if there == BURNED or byte & FRESH:
        return
    if there == BURNING:  # it waited for this cell, if fire could come from there
        back = (d + 4) & 7
        if crossing(int64(costs[cell, back]), code, int64(held[n, cell]), back) < NEVER:
            shift = (target & 3) * 8
            before = cuda.atomic.sub(words, target >> 2, int32(1 << (shift + WAIT_SHIFT)))
            if (before >> (shift + WAIT_SHIFT)) & 15 == 1:
                append(lists[n, COOLING_LIST + other], NEW_COOLING, sizes, target)
        return
    cost = crossing(int64(costs[target, d]), there, int64(held[n, target]), d)
    if cost >= NEVER:
        return
    cuda.atomic.add(words, cell >> 2, int32(1 << ((cell & 3) * 8 + WAIT_SHIFT)))
    if cuda.atomic.min(arrival, (n, target), int32(arrival[n, cell] + cost)) == NEVER:
        append(lists[n, FRINGE_LIST + other], NEW_FRINGE, sizes, target)


@cuda.jit(device=True)
def load(n, fire_map, waits, fringe, cooling, clock, lists, words, sizes):
    """Brings a fire into the block's memory."""
    thread, threads, cells = cuda.threadIdx.x, cuda.blockDim.x, fire_map.shape[1]
    if thread == 0:
        sizes[STEP], sizes[FRINGE_SIZE], sizes[COOLING_SIZE] = (
            clock[n, NOW],
            clock[n, FRINGE],
            clock[n, COOLING],
        )
    for word in range(thread, (cells + 3) >> 2, threads):
        value = int32(0)
        for cell in range(word * 4, min(word * 4 + 4, cells)):
            byte = int32(fire_map[n, cell])
            if byte == BURNING:
                byte |= int32(waits[n, cell]) << WAIT_SHIFT
            value |= byte << ((cell & 3) * 8)
        words[word] = value
    cuda.syncthreads()
    for place in range(thread, sizes[FRINGE_SIZE], threads):
        lists[n, FRINGE_LIST, place] = fringe[n, place]
    for place in range(thread, sizes[COOLING_SIZE], threads):
        lists[n, COOLING_LIST, place] = cooling[n, place]


@cuda.jit(device=True)
def ignite(n, due, arrival, lists, side, words, sizes):
    """Sets on fire what is due; the rest goes to the other list."""
    for place in range(cuda.threadIdx.x, sizes[FRINGE_SIZE], cuda.blockDim.x):
        cell = lists[n, FRINGE_LIST + side, place]
        if arrival[n, cell] <= due:
            code = read(words, cell) & CODE
            change(words, cell, (code ^ BURNING) | FRESH)
            # What it was before, a line perhaps, is needed for the offers.
            append(lists[n, IGNITED_LIST], NEW_IGNITED, sizes, cell * 8 + code)
        else:
            append(lists[n, FRINGE_LIST + 1 - side], NEW_FRINGE, sizes, cell)


@cuda.jit(device=True)
def settle(n, counts, lists, other, words, sizes):
    """What has ignited is not new any more; what waits for nothing goes to the cooling list."""
    for place in range(cuda.threadIdx.x, sizes[NEW_IGNITED], cuda.blockDim.x):
        entry = lists[n, IGNITED_LIST, place]
        cell = entry >> 3
        change(words, cell, FRESH)
        if entry & 7 != UNBURNED:
            cuda.atomic.sub(counts, (n, entry & 7), 1)
        if read(words, cell) >> WAIT_SHIFT == 0:
            append(lists[n, COOLING_LIST + other], NEW_COOLING, sizes, cell)


@cuda.jit(device=True)
def burn_out(n, before, fresh, arrival, lists, side, words, sizes):
    """Cells that ignited before a time and wait for nothing burn out; `fresh` ones are in the other list."""
    old, other = sizes[COOLING_SIZE], 1 - side
    for place in range(cuda.threadIdx.x, old + fresh, cuda.blockDim.x):
        if place < old:
            cell = lists[n, COOLING_LIST + side, place]
        else:
            cell = lists[n, COOLING_LIST + other, place - old]
        if arrival[n, cell] <= before:
            change(words, cell, BURNING ^ BURNED)
            cuda.atomic.add(sizes, NEW_BURNED, 1)
            if place >= old:
                lists[n, COOLING_LIST + other, place - old] = -1
        elif place < old:
            append(lists[n, COOLING_LIST + other], NEW_COOLING, sizes, cell)


@cuda.jit(device=True)
def finish_step(n, fresh, counts, cooling, sizes):
    """Closes the gaps that cells left which burned out at once, and counts; for one thread."""
    place = 0
    while place < min(fresh, sizes[NEW_COOLING]):
        if cooling[place] < 0:
            sizes[NEW_COOLING] -= 1
            cooling[place] = cooling[sizes[NEW_COOLING]]
        else:
            place += 1
    sizes[FRINGE_SIZE], sizes[COOLING_SIZE] = sizes[NEW_FRINGE], sizes[NEW_COOLING]
    counts[n, BURNED] += sizes[NEW_BURNED]
    counts[n, BURNING] += sizes[NEW_IGNITED] - sizes[NEW_BURNED]


@cuda.jit(device=True)
def store(n, fire_map, waits, fringe, cooling, clock, counts, lists, side, words, sizes):
    """Brings a fire back from the block's memory."""
    thread, threads, cells = cuda.threadIdx.x, cuda.blockDim.x, fire_map.shape[1]
    for cell in range(thread, cells, threads):
        fire_map[n, cell] = read(words, cell) & CODE
        waits[n, cell] = read(words, cell) >> WAIT_SHIFT
    for place in range(thread, sizes[FRINGE_SIZE], threads):
        fringe[n, place] = lists[n, FRINGE_LIST + side, place]
    for place in range(thread, sizes[COOLING_SIZE], threads):
        cooling[n, place] = lists[n, COOLING_LIST + side, place]
    if thread == 0:
        clock[n, FRINGE], clock[n, COOLING], clock[n, NOW] = (
            sizes[FRINGE_SIZE],
            sizes[COOLING_SIZE],
            sizes[STEP],
        )
        counts[n, UNBURNED] = cells
        for code in range(BURNING, 6):
            counts[n, UNBURNED] -= counts[n, code]


@cuda.jit
def run(
    fire_map, arrival, held, waits, fringe, cooling, clock, counts, lists,
    table, table_of, substeps, limits, updates, width, stride, duration,
):  # fmt: skip
    """Up to so many updates of every fire, one block of threads each."""
    n, thread, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    words = cuda.shared.array(0, int32)
    sizes = cuda.shared.array(8, int32)
    parts, costs = substeps[table_of[n]], table[table_of[n]]
    load(n, fire_map, waits, fringe, cooling, clock, lists, words, sizes)
    side = 0
    for _ in range(updates * parts):
        cuda.syncthreads()
        if sizes[FRINGE_SIZE] + sizes[COOLING_SIZE] == 0:
            break
        if sizes[STEP] % parts == 0 and sizes[STEP] >= limits[n] * parts:
            break
        cuda.syncthreads()
        if thread == 0:
            sizes[STEP] += 1
            sizes[NEW_FRINGE], sizes[NEW_COOLING], sizes[NEW_IGNITED], sizes[NEW_BURNED] = 0, 0, 0, 0
        cuda.syncthreads()
        other = 1 - side
        ignite(n, sizes[STEP] << TICK_BITS, arrival, lists, side, words, sizes)
        cuda.syncthreads()
        for pair in range(thread, sizes[NEW_IGNITED] * 8, threads):
            if (pair & 7) % stride == 0:
                entry = lists[n, IGNITED_LIST, pair >> 3]
                cell, code = entry >> 3, entry & 7
                offer(n, cell, pair & 7, code, words, arrival, held, costs, lists, other, width, sizes)
        cuda.syncthreads()
        settle(n, counts, lists, other, words, sizes)
        cuda.syncthreads()
        fresh = sizes[NEW_COOLING]
        cuda.syncthreads()
        burn_out(n, (sizes[STEP] - duration * parts) << TICK_BITS, fresh, arrival, lists, side, words, sizes)
        cuda.syncthreads()
        if thread == 0:
            finish_step(n, fresh, counts, lists[n, COOLING_LIST + other], sizes)
        side = other
    cuda.syncthreads()
    store(n, fire_map, waits, fringe, cooling, clock, counts, lists, side, words, sizes)
