"""The GPU's own loop over a fire: what `spread.step` does, arranged for a block of threads.

The map lies in the block's shared memory, a byte per cell (four to a word, changed by atomic operations): the
code, whether the cell ignited in this step, and how many neighbours it waits for. Earliest arrivals are found
by atomic minima. A step: sort out what is due and set it on fire, let it make offers, burn out; all threads
meet between these. Lists are kept in pairs, read from one and written to the other.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import cuda, int32, int64

from rayfish.worlds.wildfire.fire import spread
from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING, UNBURNED

FRINGE_LIST, COOLING_LIST, IGNITED_LIST, LISTS = 0, 2, 4, 5

STEPS_X, STEPS_Y, NEVER, TICK_BITS = spread.STEPS_X, spread.STEPS_Y, spread.NEVER, spread.TICK_BITS
FRINGE, COOLING, NOW = spread.FRINGE, spread.COOLING, spread.NOW

CODE, FRESH, WAIT_SHIFT = 7, 8, 4
"""A cell's byte: three bits of code, one for having ignited in this step, four for what it waits for."""

STEP, FRINGE_SIZE, COOLING_SIZE, NEW_FRINGE, NEW_COOLING, NEW_IGNITED, NEW_BURNED = range(7)
"""Counters of a block, in its shared memory."""


@cache
def kernel() -> Any:
    """The kernel, compiled once, at its first use."""
    beside = cuda.jit(device=True)(spread.beside.py_func)
    crossing = cuda.jit(device=True)(spread.crossing.py_func)

    @cuda.jit(device=True)
    def read(words, cell):
        return (words[cell >> 2] >> ((cell & 3) * 8)) & 255

    @cuda.jit(device=True)
    def change(words, cell, bits):
        """Turns bits of a cell over."""
        cuda.atomic.xor(words, cell >> 2, int32(bits << ((cell & 3) * 8)))

    @cuda.jit(device=True)
    def neighbour(cell, d, width, cells):
        """The cell beside in direction d, or -1 outside the map."""
        y = cell // width
        tx, ty = cell - y * width + beside(STEPS_X, d), y + beside(STEPS_Y, d)
        if tx < 0 or ty < 0 or tx >= width or ty * width >= cells:
            return -1
        return ty * width + tx

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
                    lists[n, COOLING_LIST + other, cuda.atomic.add(sizes, NEW_COOLING, 1)] = target
            return
        cost = crossing(int64(costs[target, d]), there, int64(held[n, target]), d)
        if cost >= NEVER:
            return
        cuda.atomic.add(words, cell >> 2, int32(1 << ((cell & 3) * 8 + WAIT_SHIFT)))
        if cuda.atomic.min(arrival, (n, target), int32(arrival[n, cell] + cost)) == NEVER:
            lists[n, FRINGE_LIST + other, cuda.atomic.add(sizes, NEW_FRINGE, 1)] = target

    @cuda.jit
    def run(
        fire_map, arrival, held, waits, fringe, cooling, clock, counts, lists,
        table, table_of, substeps, limits, updates, width, stride, duration,
    ):  # fmt: skip
        n, thread, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
        words = cuda.shared.array(0, int32)
        sizes = cuda.shared.array(8, int32)
        cells = fire_map.shape[1]
        parts, costs = substeps[table_of[n]], table[table_of[n]]
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
            other, due = 1 - side, sizes[STEP] << TICK_BITS
            # What is due, and set it on fire.
            for place in range(thread, sizes[FRINGE_SIZE], threads):
                cell = lists[n, FRINGE_LIST + side, place]
                if arrival[n, cell] <= due:
                    code = read(words, cell) & CODE
                    change(words, cell, (code ^ BURNING) | FRESH)
                    # What it was before, a line perhaps, is needed for the offers.
                    lists[n, IGNITED_LIST, cuda.atomic.add(sizes, NEW_IGNITED, 1)] = cell * 8 + code
                else:
                    lists[n, FRINGE_LIST + other, cuda.atomic.add(sizes, NEW_FRINGE, 1)] = cell
            cuda.syncthreads()
            ignited = sizes[NEW_IGNITED]
            for pair in range(thread, ignited * 8, threads):
                if (pair & 7) % stride == 0:
                    entry = lists[n, IGNITED_LIST, pair >> 3]
                    offer(
                        n,
                        entry >> 3,
                        pair & 7,
                        entry & 7,
                        words,
                        arrival,
                        held,
                        costs,
                        lists,
                        other,
                        width,
                        sizes,
                    )
            cuda.syncthreads()
            for place in range(thread, ignited, threads):
                entry = lists[n, IGNITED_LIST, place]
                cell = entry >> 3
                change(words, cell, FRESH)
                if entry & 7 != UNBURNED:
                    cuda.atomic.sub(counts, (n, entry & 7), 1)
                if read(words, cell) >> WAIT_SHIFT == 0:
                    lists[n, COOLING_LIST + other, cuda.atomic.add(sizes, NEW_COOLING, 1)] = cell
            cuda.syncthreads()
            # Those that wait for nothing burn out; new ones stand in the other list already.
            fresh = sizes[NEW_COOLING]
            cuda.syncthreads()
            before = (sizes[STEP] - duration * parts) << TICK_BITS
            for place in range(thread, sizes[COOLING_SIZE] + fresh, threads):
                old = sizes[COOLING_SIZE]
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
                    lists[n, COOLING_LIST + other, cuda.atomic.add(sizes, NEW_COOLING, 1)] = cell
            cuda.syncthreads()
            if thread == 0:
                place = 0
                while place < min(fresh, sizes[NEW_COOLING]):  # those that burned out at once left gaps
                    if lists[n, COOLING_LIST + other, place] < 0:
                        sizes[NEW_COOLING] -= 1
                        lists[n, COOLING_LIST + other, place] = lists[
                            n, COOLING_LIST + other, sizes[NEW_COOLING]
                        ]
                    else:
                        place += 1
                sizes[FRINGE_SIZE], sizes[COOLING_SIZE] = sizes[NEW_FRINGE], sizes[NEW_COOLING]
                counts[n, BURNED] += sizes[NEW_BURNED]
                counts[n, BURNING] += ignited - sizes[NEW_BURNED]
            side = other
        cuda.syncthreads()
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

    return run
