"""Where to build a line: paths for agents that are finished before the fire gets there.

A plan is made once, at the start of an episode, from the times at which the fire would reach each cell
without intervention. Lines only delay a fire, so that a path which is in time by these times stays in time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rayfish.worlds.wildfire.fire.codes import UNBURNED

NEVER = np.iinfo(np.int32).max

SPARE = 1
"""Updates that a planned line is ahead of the fire."""

LEAST_WIND = 0.25
"""A direction is ahead of a fire when the wind has at least this share of its larger part in it."""


class Situation(NamedTuple):
    """What a plan looks at, over C cells."""

    arrival: Any  # int [C] the update in which fire reaches a cell
    burnable: Any  # bool [C]
    work: Any  # int [C] steps that the line on a cell takes
    xs: Any  # int [A] columns of the agents
    ys: Any  # int [A] their rows
    height: int
    width: int
    speed: int  # steps per update


@njit(cache=True)
def in_time(path: Any, first: int, step: int, now: Situation) -> bool:
    """Whether the agents can build a line on every cell of a path before the fire reaches it.

    Agent a takes the a-th part of the path, which is walked around from its cell `first` on.

    :param path: int [K] cells
    :param step: 1 or -1, the direction
    """
    length, agents = len(path), len(now.xs)
    for a in range(agents):
        x, y, steps = now.xs[a], now.ys[a], 0
        for place in range(a * length // agents, (a + 1) * length // agents):
            cell = path[(first + step * place) % length]
            row = cell // now.width
            column = cell - row * now.width
            steps += abs(column - x) + abs(row - y) + now.work[cell] - 1
            # the fire has made ceil(steps / speed) updates before the step in which the line is finished
            if now.arrival[cell] <= (steps + now.speed - 1) // now.speed + SPARE:
                return False
            x, y = column, row
    return True


@njit(cache=True)
def around(x0: int, y0: int, x1: int, y1: int, burnable: Any, height: int, width: int, path: Any) -> int:
    """The cells just outside a box that need a line, clockwise; gives how many. Corners are among them: fire
    spreads diagonally. The map's edge needs none.
    """
    found = 0
    left, top, right, bottom = x0 - 1, y0 - 1, x1 + 1, y1 + 1
    across, down = right - left, bottom - top
    for place in range(2 * (across + down)):
        if place < across:
            x, y = left + place, top
        elif place < across + down:
            x, y = right, top + place - across
        elif place < 2 * across + down:
            x, y = right - (place - across - down), bottom
        else:
            x, y = left, bottom - (place - 2 * across - down)
        if 0 <= x < width and 0 <= y < height and burnable[y * width + x]:
            path[found] = y * width + x
            found += 1
    return found


@njit(cache=True)
def plan_ring(now: Situation, path: Any) -> int:
    """The smallest box around the fire that can be closed in time: its cells in walking order in `path`.

    Gives their number; 0 when there is no such box.
    """
    arrival, height, width = now.arrival, now.height, now.width
    ring = np.empty(2 * (height + width) + 8, np.int64)
    latest = 0
    for cell in range(arrival.shape[0]):
        if arrival[cell] != NEVER:
            latest = max(latest, arrival[cell])
    for update in range(latest + 1):
        x0, y0, x1, y1 = width, height, -1, -1
        for cell in range(arrival.shape[0]):
            if arrival[cell] <= update:
                row = cell // width
                column = cell - row * width
                x0, x1 = min(x0, column), max(x1, column)
                y0, y1 = min(y0, row), max(y1, row)
        length = around(x0, y0, x1, y1, now.burnable, height, width, ring)
        for first in range(length):
            for step in (1, -1):
                if in_time(ring[:length], first, step, now):
                    for place in range(length):
                        path[place] = ring[(first + step * place) % length]
                    return length
    return 0


@njit(cache=True)
def plan_ahead(now: Situation, start: int, wind: Any, path: Any) -> int:
    """The line across the map, from edge to edge, that lies ahead of the fire and can be built in time: along
    columns or along rows the nearest one, and of these two the one with more ground behind it.

    :param start: the cell where the fire began
    """
    height, width = now.height, now.width
    line = np.empty(max(height, width), np.int64)
    found, most = 0, 0
    for axis in range(2):
        if abs(wind[axis]) < LEAST_WIND * max(abs(wind[0]), abs(wind[1])):
            continue
        ahead, end = (1 if wind[axis] >= 0 else -1), (width, height)[axis]
        place = (start % width if axis == 0 else start // width) + ahead
        while 0 <= place < end:
            behind = (end - 1 - place if ahead == 1 else place) * (height, width)[axis]
            if behind <= most:
                break
            length = 0
            for other in range((height, width)[axis]):
                cell = other * width + place if axis == 0 else place * width + other
                if now.burnable[cell]:
                    line[length] = cell
                    length += 1
            for step in (1, -1):
                first = 0 if step == 1 else length - 1
                if length and in_time(line[:length], first, step, now):
                    for index in range(length):
                        path[index] = line[(first + step * index) % length]
                    found, most = length, behind
                    break
            place += ahead
    return found


@njit(cache=True)
def follow(
    paths: Any, ends: Any, at: Any, xs: Any, ys: Any, fire_map: Any, width: int, dx: Any, dy: Any, line: Any
) -> None:
    """What agents [N, A] do next on their paths: where to go in `dx`, `dy`, and whether to build in `line`.

    :param paths: int [N, K] cells, of which each agent has a part
    :param ends: int [N, A] where an agent's path ends
    :param at: int [N, A] where on it the agent is; moved on here
    """
    for n in range(xs.shape[0]):
        for a in range(xs.shape[1]):
            dx[n, a], dy[n, a], line[n, a] = 0, 0, False
            while at[n, a] < ends[n, a] and fire_map[n, paths[n, at[n, a]]] != UNBURNED:
                at[n, a] += 1
            if at[n, a] >= ends[n, a]:
                continue
            goal = paths[n, at[n, a]]
            if goal == ys[n, a] * width + xs[n, a]:
                line[n, a] = True
                if at[n, a] + 1 >= ends[n, a]:
                    continue
                goal = paths[n, at[n, a] + 1]
            away_x, away_y = goal % width - xs[n, a], goal // width - ys[n, a]
            if abs(away_x) >= abs(away_y):
                dx[n, a] = np.sign(away_x)
            else:
                dy[n, a] = np.sign(away_y)
