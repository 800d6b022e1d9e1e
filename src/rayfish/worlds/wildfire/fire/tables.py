"""Landscapes as tables: how long fire takes across each cell in each direction (physics `behave`)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire.fire import fuels, rothermel
from rayfish.worlds.wildfire.fire.codes import MPH
from rayfish.worlds.wildfire.fire.sections import MOISTURES
from rayfish.worlds.wildfire.fire.spread import DX, DY, HOLDS_ALL, NEVER, SPEED, STEPS, TICKS, Tables

MAX_SUBSTEPS = (STEPS + 1) // 128  # leaves a fire 127 updates at least until its clock is full
FLAME, POWER = 0.45, 0.46  # Byram: flame length in ft of a fireline intensity in BTU/ft/s


def holds(heat: np.ndarray, flame_ft: np.ndarray, minutes: float, steps: Any, cell_ft: float) -> np.ndarray:
    """The rates of spread [K] that lines take away which hold flames of `flame_ft`.

    :param heat: [K] BTU/ft^2 that fire releases in the cell of each line
    :param steps: [K] that make up an update of so many minutes
    """
    with np.errstate(divide="ignore", over="ignore"):
        rate = 60 * (flame_ft / FLAME) ** (1 / POWER) / heat.astype(np.float64)
        units = rate * minutes / steps / cell_ft * SPEED / TICKS
    return np.where(units < HOLDS_ALL, units, HOLDS_ALL).astype(np.int32)


Wind = tuple[np.ndarray, np.ndarray]
"""Toward x and toward y (down), miles per hour [H, W]."""


class Heads(NamedTuple):
    """The head fire of every cell, float32 [C] each."""

    rate: np.ndarray  # feet per minute
    heading_x: np.ndarray  # toward which it runs; unit vector, y downwards
    heading_y: np.ndarray
    ellipse: np.ndarray  # eccentricity
    heat: np.ndarray  # BTU/ft^2 that the front releases

    def flame_length_ft(self) -> np.ndarray:
        """Byram's flame length."""
        return FLAME * (self.heat.astype(np.float64) * self.rate / 60) ** POWER


def heads(landscape: Any, cell_ft: float, mph: Wind, *, wind_limit: bool) -> Heads:
    """The head fires of a landscape.

    :param mph: midflame wind, as `wind_parts` has it
    """
    shape = landscape.elevation.shape
    along_y, along_x = gradient(landscape.elevation, cell_ft)
    given = [np.asarray(landscape.moisture[name], np.float64) for name in MOISTURES]
    if all(part.ndim == 0 for part in given):
        moist = np.array(given).reshape(5, 1)
    else:
        moist = np.stack([np.broadcast_to(part, shape).ravel() for part in given])
    found = Heads(*np.empty((5, landscape.fuel.size), np.float32))
    _heads(
        fuels.table(),
        np.ascontiguousarray(landscape.fuel).ravel(),
        moist,
        *(np.ascontiguousarray(part, np.float64).ravel() for part in (*mph, along_x, along_y)),
        wind_limit,
        found,
    )
    return found


def steps_per_update(found: Heads, cell_ft: float, minutes: float) -> int:
    """The steps that make up one update of so many minutes, so that no fire crosses more than a cell in one.

    :raises RayfishError: fire crosses more cells in one update than its clock has steps for
    """
    per_update, fastest = minutes / cell_ft, float(found.rate.max(initial=0.0))
    substeps = max(1, math.ceil(fastest * per_update))
    if substeps > MAX_SUBSTEPS:
        raise RayfishError(
            f"fire runs at {fastest:,.0f} ft/min here: {substeps:,} cells of {cell_ft:g} ft "
            f"in one update of {minutes:g} min",
            f"lower simulation.update_rate to {0.99 * MAX_SUBSTEPS * cell_ft / fastest:.3g} min or less; "
            f"fire may cross at most {MAX_SUBSTEPS:,} cells in an update",
        )
    return substeps


def fill(
    tables: Tables, place: int, made: list[Heads], wind: list[Wind], cell_ft: float, minutes: float
) -> None:
    """Writes the tables of a landscape, one for each of its winds; they have one number of steps per update.

    :param place: of the first of them
    :param made: the head fires in each wind
    :param wind: each wind itself, as `wind_parts` has it; empty where no embers fly
    """
    steps = [steps_per_update(found, cell_ft, minutes) for found in made]
    tables.substeps[place : place + len(made)] = most = max(steps)
    for row, (found, own) in enumerate(zip(made, steps, strict=True), start=place):
        costs = tables.costs[row]
        _costs(found, minutes / cell_ft / own / TICKS, costs)
        if own < most:
            costs[:] = np.minimum(costs.astype(np.int64) * most // own, NEVER)
        tables.heat[row] = found.heat
        if wind:
            tables.wind[row] = np.stack(wind[row - place], axis=-1).reshape(-1, 2)


def wind_parts(speed_ft_min: np.ndarray, degrees: np.ndarray, factor: float) -> Wind:
    """The midflame wind of a speed and the degrees it blows toward."""
    turned = np.radians(degrees)
    mph = speed_ft_min / MPH * factor
    return mph * np.sin(turned), mph * -np.cos(turned)


def gradient(elevation: np.ndarray, cell_ft: float) -> tuple[np.ndarray, np.ndarray]:
    """Rise over run along y (down) and x; a map of one row or column is level across."""
    parts = [
        np.gradient(elevation, cell_ft, axis=axis) if elevation.shape[axis] > 1 else np.zeros_like(elevation)
        for axis in (0, 1)
    ]
    return parts[0], parts[1]


@njit(cache=True)
def _heads(
    models: Any,
    fuel: Any,
    moist: Any,
    mph_x: Any,
    mph_y: Any,
    slope_x: Any,
    slope_y: Any,
    wind_limit: bool,
    found: Heads,
) -> None:
    """Fills the head fires. What is equal to the cell before (one fuel, an even slope) is not computed again.

    :param moist: [5, 1] where all cells have the same moistures, else [5, C]
    """
    rate, heading_x, heading_y, ellipse, heat = found
    everywhere = moist.shape[1] == 1
    bases, known = np.empty((models.shape[0], 7)), np.zeros(models.shape[0], np.bool_)
    for cell in range(fuel.shape[0]):
        model, before = fuel[cell], max(cell - 1, 0)
        if not (everywhere and known[model]):
            m = moist[:, 0 if everywhere else cell]
            bases[model] = rothermel.base(models[model], m[0], m[1], m[2], m[3], m[4])
            known[model] = True
        same = everywhere and cell > 0 and model == fuel[before]
        same = same and mph_x[cell] == mph_x[before] and mph_y[cell] == mph_y[before]
        if same and slope_x[cell] == slope_x[before] and slope_y[cell] == slope_y[before]:
            rate[cell], heat[cell], ellipse[cell] = rate[before], heat[before], ellipse[before]
            heading_x[cell], heading_y[cell] = heading_x[before], heading_y[before]
            continue
        base, mph = bases[model], math.sqrt(mph_x[cell] ** 2 + mph_y[cell] ** 2)
        to_x, to_y = (mph_x[cell] / mph, mph_y[cell] / mph) if mph > 0.0 else (1.0, 0.0)
        rate[cell], heading_x[cell], heading_y[cell], ellipse[cell], _ = rothermel.head(
            base[0], base[1], base[2], base[3], base[4],
            mph, to_x, to_y, slope_x[cell], slope_y[cell], wind_limit,
        )  # fmt: skip
        heat[cell] = base[5]


@njit(cache=True)
def _costs(found: Heads, scale: float, costs: Any) -> None:
    """Ticks across each cell in eight directions, at least one step.

    :param scale: cells per tick of fire that makes a foot per minute
    """
    rate, heading_x, heading_y, ellipse, _ = found
    for cell in range(rate.shape[0]):
        aside = np.float64(rate[cell]) * (1.0 - ellipse[cell]) * scale
        if aside <= 0.0:
            costs[cell] = NEVER
            continue
        for d in range(8):
            distance = math.sqrt(2.0) if d & 1 else 1.0
            cosine = (heading_x[cell] * DX[d] + heading_y[cell] * DY[d]) / distance
            ticks = rothermel.time_across(distance, aside, ellipse[cell], cosine)
            costs[cell, d] = min(max(ticks, TICKS), NEVER)
