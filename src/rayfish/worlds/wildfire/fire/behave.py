"""Fires by the physics `behave`: tables of rates made from landscapes, and the state of every fire."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire.fire import spread, tables
from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING, FIRELINE, MPH, NAMES, UNBURNED
from rayfish.worlds.wildfire.fire.layers import Landscape
from rayfish.worlds.wildfire.fire.settings import Settings
from rayfish.worlds.wildfire.fire.tables import Heads, Wind

_FAR = 1 << 40  # updates until a wind changes that does not


class Behave:
    """A number N of fires on maps of one shape."""

    def __init__(self, settings: Settings, number: int) -> None:
        self.settings = settings
        self.shape = settings.area.screen_size
        self.cell_ft = settings.area.pixel_scale
        self.minutes = settings.simulation.update_rate
        self.fires = spread.new_fires(number, self.shape[0] * self.shape[1])
        stride = 1 if settings.fire.diagonal_spread else 2
        self.rules = spread.Rules(self.shape[1], stride, settings.fire.max_fire_duration)
        self._of = np.zeros(number, np.int64)  # which landscape a fire burns on
        self._segment = np.zeros(number, np.int64)  # which part of the wind's series it is in
        self._starts: np.ndarray = np.zeros(1)
        self._tables = spread.new_tables(1, 0, embers=False)
        self._kept: list[Heads] = []  # of the landscape that was set last
        self._last = _last_update(settings.simulation.runtime, self.minutes)
        self.limits = np.zeros(number, np.int64)  # the last update of each fire
        self._short = False  # whether a clock is full before the runtime is over
        self._embers = _embers(settings, number)
        held = settings.mitigation.holding_ft
        self._held_ft = np.array([held.get(name, 0.0) for name in NAMES])

    def set_landscapes(self, landscapes: list[Landscape], of: np.ndarray) -> None:
        """Makes the tables of all landscapes; `of` says which one each fire burns on."""
        before = self._parts_of_update()
        self._of = np.asarray(of, np.int64)
        self._starts = _starts(landscapes)
        self._segment = np.minimum(self._segment, len(self._starts) - 1)  # a series may have been taken away
        size = len(landscapes) * len(self._starts)
        made = spread.new_tables(size, self.fires.fire_map.shape[1], bool(self._embers.probability))
        for place, landscape in enumerate(landscapes):
            self._tabulate(made, place, landscape)
        self._tables = made
        self._keep_time(before)

    def set_landscape(self, place: int, landscape: Landscape) -> None:
        """Another landscape in the place of one."""
        before = self._parts_of_update()
        self._tabulate(self.tables(), place, landscape)
        self._keep_time(before)

    def look_again(self, fire: int) -> None:
        """What burns makes its offers again: the ground or the wind has changed."""
        self._change_wind(fire, int(self._segment[fire]))

    def begin(self, fire: int, cells: np.ndarray, seed: int) -> None:
        """A map without fire, then the first burning cells."""
        self._segment[fire], self._embers.seeds[fire] = 0, seed
        tables = self.tables()
        spread.start(self.fires, fire, cells, tables.costs[tables.of[fire]], self.rules)

    def run(self, chosen: np.ndarray, updates: int) -> None:
        """So many updates of the chosen fires; a change of the wind falls between two of them."""
        left = updates
        while left > 0:
            going = chosen[self.active[chosen]]
            if not len(going):
                break
            part = min(left, self._until_change(going))
            spread.run(self.fires, going, part, self.limits, self.tables(), self.rules, self._embers)
            left -= part
        if self._short:
            self._require_clock(chosen)

    def ignition_updates(self, fires: np.ndarray) -> np.ndarray:
        """[K, C] the update in which each cell of the given fires ignited; the largest int32 elsewhere."""
        ticks = spread.TICKS * self._parts_of_update()[fires][:, None]
        updates = -(-self.fires.arrival[fires].astype(np.int64) // ticks)
        burned = (self.fires.fire_map[fires] == BURNING) | (self.fires.fire_map[fires] == BURNED)
        return np.where(burned, updates, np.iinfo(np.int32).max).astype(np.int32)

    def place(self, fires: np.ndarray, cells: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Lines on unburned cells (and over other lines); gives where one was placed."""
        before = self.fires.fire_map[fires, cells]
        fits = (before == UNBURNED) | (before >= FIRELINE)
        held = self._holds(fires[fits], cells[fits], codes[fits])
        lines = fires[fits], cells[fits], codes[fits].astype(np.uint8), held
        spread.place(self.fires, *lines, self.tables(), self.rules)
        return fits

    def heads(self, fire: int, landscape: Landscape) -> Heads:
        """The head fires of a landscape in the wind that a fire has now."""
        return self._heads(landscape, int(self._segment[fire]))

    @property
    def changes(self) -> bool:
        """Whether the wind changes with time."""
        return len(self._starts) > 1

    def tables(self) -> spread.Tables:
        """All landscapes in all winds, and which of them each fire burns in now."""
        return self._tables._replace(of=self._table_of())

    def _table_of(self) -> np.ndarray:
        return self._of * len(self._starts) + self._segment

    @property
    def updates(self) -> np.ndarray:
        """Updates that each fire has made."""
        return self.fires.clock[:, spread.NOW] // self._parts_of_update()

    @property
    def active(self) -> np.ndarray:
        """Whether something burns and the time is not over."""
        return self._burning & (self.updates < self.limits)

    @property
    def burn_amounts(self) -> np.ndarray:
        """Feet that fire has come into each cell; all of its side where it has burned."""
        shares, tables = np.empty(self.fires.fire_map.shape), self.tables()
        for fire, table in enumerate(tables.of):
            spread.crossed_share(self.fires, fire, tables.costs[table], self.rules, shares[fire])
        return shares * self.cell_ft

    def counts(self) -> np.ndarray:
        """Cells of each code, [N, 6]."""
        return self.fires.counts.copy()

    def state(self) -> dict[str, Any]:
        """All that changes while fires burn."""
        changing = {**self.fires._asdict(), "segment": self._segment, "seeds": self._embers.seeds}
        return {name: array.copy() for name, array in changing.items()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `state`."""
        for name, array in self.fires._asdict().items():
            array[...] = state[name]
        self._segment[...], self._embers.seeds[...] = state["segment"], state["seeds"]

    def _until_change(self, chosen: np.ndarray) -> int:
        """Updates until the wind of one of the chosen fires changes; those at a change get their new wind."""
        if len(self._starts) == 1:
            return _FAR
        now = self.updates[chosen] * self.minutes
        segment = np.searchsorted(self._starts, now + 1e-9, side="right") - 1
        for fire, new in zip(chosen, segment, strict=True):
            if new != self._segment[fire]:
                self._segment[fire] = new
                self._change_wind(int(fire), int(new))
        ends = np.append(self._starts[1:], np.inf)[segment]
        ahead = np.ceil((ends - now) / self.minutes - 1e-9)
        return int(min(ahead.min(initial=_FAR), _FAR))

    def _parts_of_update(self) -> np.ndarray:
        """The steps that make up an update of each fire; 1 before a landscape is set."""
        return np.asarray(self._tables.substeps[self._table_of()])

    def _keep_time(self, before: np.ndarray) -> None:
        """On new ground an update may have more or fewer steps than before: times are counted in the new."""
        after = self._parts_of_update()
        # SimFire's rule: elapsed time may not exceed the runtime.
        self.limits = np.minimum(self._last, spread.STEPS // after)
        self._short = bool((self.limits < self._last).any())
        for fire in np.flatnonzero(before != after):
            clock, arrival = self.fires.clock[fire], self.fires.arrival[fire]
            updates = min(int(clock[spread.NOW] // before[fire]), int(spread.STEPS // after[fire]))
            clock[spread.NOW] = updates * after[fire]
            scaled = arrival.astype(np.int64) * after[fire] // before[fire]
            arrival[:] = np.where(arrival == spread.NEVER, spread.NEVER, np.minimum(scaled, spread.NEVER - 1))

    @property
    def _burning(self) -> np.ndarray:
        """Whether something burns, or fire is on its way."""
        return np.asarray(self.fires.clock[:, spread.FRINGE] + self.fires.clock[:, spread.COOLING] > 0)

    def _require_clock(self, chosen: np.ndarray) -> None:
        """That no fire burns on when its clock is full before its runtime is over.

        :raises RayfishError: one does
        """
        full = (self.limits < self._last) & self._burning & (self.updates >= self.limits)
        late = chosen[full[chosen]]
        if not len(late):
            return
        updates, parts = int(self.limits[late[0]]), int(self._parts_of_update()[late[0]])
        most = math.floor((updates - 1) * self.minutes)
        raise RayfishError(
            f"fire {late[0]} still burns after {updates:,} updates of {self.minutes:g} min, all that its "
            f"clock counts with {parts} steps per update for cells of {self.cell_ft:g} ft",
            f"set simulation.runtime to {most}m or less, or use larger cells",
        )

    def _change_wind(self, fire: int, new: int) -> None:
        first, tables = int(self._of[fire]) * len(self._starts), self.tables()
        begun = np.ceil(self._starts[: new + 1] / self.minutes - 1e-9).astype(np.int64)
        since = tables.costs[first : first + new + 1]
        spread.look_again(self.fires, fire, since, begun * tables.substeps[first], self.rules)

    def _holds(self, fires: np.ndarray, cells: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The rate of spread that each line takes away."""
        held = np.full(len(cells), spread.HOLDS_ALL, np.int32)
        if self.settings.mitigation.ros_attenuation:
            known = self.tables()
            of, feet = known.of[fires], self._held_ft[codes]
            held = tables.holds(known.heat[of, cells], feet, self.minutes, known.substeps[of], self.cell_ft)
        return held

    def _tabulate(self, into: spread.Tables, place: int, landscape: Landscape) -> None:
        parts = range(len(self._starts))
        heads = [self._heads(landscape, part) for part in parts]
        wind = [self._mph(landscape, part) for part in parts] if self._embers.probability else []
        self._kept = heads  # freed at once, their memory would return to the system, which costs time
        tables.fill(into, place * len(parts), heads, wind, self.cell_ft, self.minutes)

    def _heads(self, landscape: Landscape, part: int) -> Heads:
        mph, limit = self._mph(landscape, part), self.settings.wind.limit
        return tables.heads(landscape, self.cell_ft, mph, wind_limit=limit)

    def _mph(self, landscape: Landscape, part: int) -> Wind:
        """Midflame wind in one part of the series."""
        speed, degrees = landscape.wind_speed, landscape.wind_direction
        if landscape.wind_series is not None:
            _, mph, towards = (column[part] for column in landscape.wind_series)
            speed, degrees = np.full(self.shape, mph * MPH), np.full(self.shape, towards)
        return tables.wind_parts(speed, degrees, self.settings.wind.adjustment_factor)


def _embers(settings: Settings, number: int) -> spread.Carried:
    """How embers fly; with the probability 0 where there are none."""
    spotting, seeds = settings.fire.spotting, np.zeros(number, np.uint64)
    if spotting is None:
        return spread.Carried(0.0, 0.0, 0.0, seeds)
    distance = spotting.distance_ft / settings.area.pixel_scale
    return spread.Carried(spotting.probability, distance, float(np.radians(spotting.spread_degrees)), seeds)


def _starts(landscapes: list[Landscape]) -> np.ndarray:
    """Minutes at which the parts of the wind's series begin; the first part begins with the fire."""
    for landscape in landscapes:
        if landscape.wind_series is not None:
            starts = np.array(landscape.wind_series[0], np.float64)
            starts[0] = 0.0
            return starts
    return np.zeros(1)


def _last_update(runtime: float, minutes: float) -> int:
    """The last update that begins within the runtime; a rate like 0.1 counts as what it is written for."""
    updates = runtime / minutes
    whole = round(updates)
    return (whole if math.isclose(updates, whole, rel_tol=1e-12) else math.floor(updates)) + 1
