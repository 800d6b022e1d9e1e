"""What of N fires is looked at once per update of the fire, not at every step of the agents."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rayfish.worlds.wildfire.fire.codes import BURNING, MPH, UNBURNED
from rayfish.worlds.wildfire.fire.layers import Landscape

NO_HEAD = -1
"""In place of a cell where nothing burns."""


class Survey(NamedTuple):
    """What changes with the fire alone, of N episodes with B blocks."""

    counts: Any  # int32 [N, 6] cells of each code
    left: Any  # int32 [N] unburned cells that can burn
    coarse: Any  # float32 [N, 3, B] shares of each block: burning, burned, line
    burning: Any  # int32 [N, C] the burning cells, `counts[n, BURNING]` of them
    head: Any  # int32 [N] the cell of the fire's head
    wind: Any  # float64 [N, 2] toward x and y (down), ft/min, mean of the map


class Ground(NamedTuple):
    """What lies under N fires, on L landscapes."""

    of: Any  # int64 [N] the landscape of each episode
    fuel: Any  # int16 [L, C] fuel models
    burnable: Any  # bool [L, C]
    block_of: Any  # int32 [C] the block of the coarse map that a cell is in
    block_share: Any  # float32 [B] one cell's share of its block


def new_survey(number: int, cells: int, blocks: int) -> Survey:
    """Nothing seen yet."""
    return Survey(
        np.zeros((number, 6), np.int32),
        np.zeros(number, np.int32),
        np.zeros((number, 3, blocks), np.float32),
        np.zeros((number, cells), np.int32),
        np.full(number, NO_HEAD, np.int32),
        np.zeros((number, 2)),
    )


def new_ground(number: int, landscapes: int, shape: tuple[int, int], blocks: int) -> Ground:
    """Ground whose landscapes are still to be filled in (`lay`); episodes share one or have one each."""
    rows = np.arange(shape[0]) * blocks // shape[0]
    columns = np.arange(shape[1]) * blocks // shape[1]
    block_of = (rows[:, None] * blocks + columns[None, :]).ravel().astype(np.int32)
    sizes = np.maximum(np.bincount(block_of, minlength=blocks**2), 1)
    cells = shape[0] * shape[1]
    return Ground(
        np.arange(number) if landscapes > 1 else np.zeros(number, np.int64),
        np.zeros((landscapes, cells), np.int16),
        np.zeros((landscapes, cells), np.bool_),
        block_of,
        (1.0 / sizes).astype(np.float32),
    )


def lay(ground: Ground, place: int, landscape: Landscape, physics: str) -> None:
    """A landscape in the place of one."""
    ground.fuel[place] = landscape.fuel.ravel()
    ground.burnable[place] = landscape.burnable(physics).ravel()


def series_at(landscape: Landscape, minutes: float) -> tuple[float, float] | None:
    """Of a series of winds the one at a time: mph, and degrees toward which it blows."""
    if landscape.wind_series is None:
        return None
    since, mph, degrees = landscape.wind_series
    part = max(int(np.searchsorted(since, minutes + 1e-9, side="right")) - 1, 0)
    return float(mph[part]), float(degrees[part])


def wind_of(landscape: Landscape, minutes: float, factor: float) -> tuple[float, float]:
    """The midflame wind toward x and y (down) in ft/min: the map's mean, at a time of a series."""
    now = series_at(landscape, minutes)
    if now is not None:
        speed, turned = now[0] * MPH, math.radians(now[1])
        return factor * speed * math.sin(turned), -factor * speed * math.cos(turned)
    turns = np.radians(landscape.wind_direction)
    x, y = landscape.wind_speed * np.sin(turns), -landscape.wind_speed * np.cos(turns)
    return factor * float(x.mean()), factor * float(y.mean())


@njit(cache=True)
def survey(seen: Survey, ground: Ground, chosen: Any, fire_map: Any, height: int, width: int) -> None:
    """Looks at the maps of the chosen episodes."""
    for n in chosen:
        counts, coarse, listed = seen.counts[n], seen.coarse[n], seen.burning[n]
        burnable, codes = ground.burnable[ground.of[n]], fire_map[n]
        counts[:] = 0
        coarse[:] = 0.0
        left, unburned, burning = 0, 0, 0
        for cell in range(codes.shape[0]):
            code = codes[cell]
            if code == UNBURNED:
                unburned += 1
                left += burnable[cell]
                continue
            counts[code] += 1
            if code == BURNING:
                listed[burning] = cell
                burning += 1
            block = ground.block_of[cell]
            coarse[min(code, 3) - 1, block] += ground.block_share[block]
        counts[UNBURNED], seen.left[n] = unburned, left
        seen.head[n] = _head(codes, burnable, listed[:burning], seen.wind[n], height, width)


@njit(cache=True)
def _head(codes: Any, burnable: Any, burning: Any, wind: Any, height: int, width: int) -> int:
    """The burning cell farthest downwind that has ground to burn beside it; else just the farthest."""
    head, farthest, spreading = NO_HEAD, -np.inf, False
    for cell in burning:
        y = cell // width
        x = cell - y * width
        along = x * wind[0] + y * wind[1]
        if spreading and along <= farthest:
            continue
        spreads = (
            (x > 0 and codes[cell - 1] == UNBURNED and burnable[cell - 1])
            or (x < width - 1 and codes[cell + 1] == UNBURNED and burnable[cell + 1])
            or (y > 0 and codes[cell - width] == UNBURNED and burnable[cell - width])
            or (y < height - 1 and codes[cell + width] == UNBURNED and burnable[cell + width])
        )
        if (spreads and not spreading) or (along > farthest and spreads == spreading):
            head, farthest, spreading = cell, along, spreads
    return head


@njit(cache=True)
def note_lines(seen: Survey, ground: Ground, lines: Any, found: int, width: int) -> None:
    """Takes lines that were just placed into the survey."""
    for place in range(found):
        n = lines[0, place]
        cell = lines[2, place] * width + lines[1, place]
        block = ground.block_of[cell]
        seen.counts[n, UNBURNED] -= 1
        seen.counts[n, lines[3, place]] += 1
        seen.coarse[n, 2, block] += ground.block_share[block]
        seen.left[n] -= ground.burnable[ground.of[n], cell]
