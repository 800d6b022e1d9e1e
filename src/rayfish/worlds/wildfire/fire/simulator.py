"""The wildfire simulator: many fires at once, on one landscape or on one each; no Ray, no learning.

sim = Simulator({"area": {"screen_size": [128, 128]}}, num_fires=64, seed=1)
while sim.active.any():
    sim.run(10)
print(sim.counts())
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire.fire import fuels, layers, readers
from rayfish.worlds.wildfire.fire import settings as settings_
from rayfish.worlds.wildfire.fire.behave import Behave
from rayfish.worlds.wildfire.fire.codes import LINES
from rayfish.worlds.wildfire.fire.layers import Landscape
from rayfish.worlds.wildfire.fire.settings import Settings
from rayfish.worlds.wildfire.fire.simfire import SimFire
from rayfish.worlds.wildfire.fire.tables import Heads

_LAYERS = frozenset({"elevation", "fuel", "wind", "moisture"})
_WIND = ("wind_speed", "wind_direction")
Cells = Sequence[tuple[int, int]]


class Simulator:
    """N fires that start together and end each for itself.

    :param config: SimFire's configuration with Rayfish's additions: a mapping, a YAML file, settings read
        before, or None for the defaults
    :param num_fires: N
    :param seed: of all that is drawn; the same seed gives the same fires
    :param physics: `behave` or `simfire`, in place of the configuration's
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | Path | Settings | None = None,
        num_fires: int = 1,
        seed: int | None = None,
        physics: str | None = None,
    ) -> None:
        if num_fires < 1:
            raise RayfishError(f"num_fires is {num_fires}", "simulate at least one fire")
        self.settings = settings_.read(config, physics=physics)
        self.num_fires = num_fires
        self.shape: tuple[int, int] = self.settings.area.screen_size
        self._rng = np.random.default_rng(seed)
        self._drawn = set(self.settings.randomize or ())
        kind = SimFire if self.settings.simulation.physics == "simfire" else Behave
        self._engine: Behave | SimFire = kind(self.settings, num_fires)
        first = layers.make(self.settings, self._rng)
        self._bases = [first]  # what landscapes are drawn from: one for all fires, or one each
        self._changed = False  # whether a layer was set by hand
        own = bool(self._drawn & _LAYERS)
        self._landscapes = [first] * (num_fires if own else 1)
        self._of = np.arange(num_fires) if own else np.zeros(num_fires, np.int64)
        self._stale = True
        self.ignitions: list[list[tuple[int, int]]] = [[] for _ in range(num_fires)]
        self._start = layers.ignition(self.settings, first, self._rng)
        self.reset()

    def reset(
        self,
        fires: Iterable[int] | np.ndarray | None = None,
        ignitions: Sequence[Cells] | None = None,
        landscapes: Sequence[Landscape] | None = None,
        seed: int | None = None,
    ) -> None:
        """Fires start again, all or the given ones; what is randomised is drawn again.

        :param fires: indices or a mask
        :param ignitions: for each of these fires the cells (x, y) it starts with, in place of drawn ones
        :param landscapes: for each of these fires the landscape, in place of drawn ones
        :param seed: begins the drawing again
        """
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        chosen = self._chosen(fires)
        for place, fire in enumerate(chosen):
            if landscapes is not None:
                self._put_landscape(int(fire), landscapes[place])
            elif self._drawn & _LAYERS:
                base = self._bases[fire if len(self._bases) > 1 else 0]
                self._put_landscape(int(fire), layers.redraw(self.settings, base, self._rng))
        for place, fire in enumerate(chosen):
            if ignitions is not None:
                cells = [(int(x), int(y)) for x, y in ignitions[place]]
            elif "ignition" in self._drawn:
                cells = layers.ignition(self.settings, self.landscape(int(fire)), self._rng)
            else:
                cells = self._start
            self.ignitions[fire] = cells
            self.engine.begin(int(fire), self._flat(cells), int(self._rng.integers(1 << 62)))

    def run(self, updates: int | str = 1, fires: Iterable[int] | np.ndarray | None = None) -> np.ndarray:
        """Advances fires; those that are over stay as they are. Gives `active`.

        In physics `simfire` only a fire that is out stays as it is: past the runtime each call makes what
        still burns an update older, as in SimFire.

        :param updates: how many, or a time such as "2h"
        :param fires: indices or a mask; None is all
        """
        if isinstance(updates, str):
            updates = round(readers.minutes_of(updates) / self.settings.simulation.update_rate)
        self.engine.run(self._chosen(fires), int(updates))
        return self.active

    def place_lines(self, fire: int, lines: Iterable[tuple[int, int, int | str]]) -> int:
        """Lines in one fire, each (x, y, code or name); gives how many could be placed.

        Kinds that do not exist are an error; in physics `simfire` they are left out with a warning.
        """
        rows = [(x, y, LINES.get(code, code) if isinstance(code, str) else code) for x, y, code in lines]
        wrong = list(dict.fromkeys(code for *_, code in rows if code not in LINES.values()))
        if wrong:
            self._refuse(wrong)
            rows = [row for row in rows if row[2] not in wrong]
        if not rows:
            return 0
        xs, ys, codes = (np.array(column) for column in zip(*rows, strict=True))
        return int(self.place(np.full(len(rows), fire), xs, ys, codes).sum())

    def place(self, fires: np.ndarray, xs: np.ndarray, ys: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Lines in many fires at once; gives a mask of those that could be placed. See `place_lines`."""
        fires, xs, ys, codes = (np.asarray(part) for part in (fires, xs, ys, codes))
        wrong = [code for code in np.unique(codes).tolist() if code not in LINES.values()]
        if wrong:
            self._refuse(wrong)
            placed = ~np.isin(codes, wrong)
            placed[placed] = self.place(fires[placed], xs[placed], ys[placed], codes[placed])
            return placed
        self._require_inside(xs, ys)
        return self.engine.place(fires, ys * self.shape[1] + xs, codes)

    def _refuse(self, kinds: list[Any]) -> None:
        """Kinds of line that do not exist: SimFire leaves them out, and warns."""
        known = ", ".join(f"{name} {code}" for name, code in LINES.items())
        if isinstance(self._engine, Behave):
            raise RayfishError(f"there is no kind of line {kinds[0]!r}", f"there are {known}")
        warnings.warn(f"lines of unknown kind {kinds} were left out: there are {known}", stacklevel=3)

    @property
    def fire_map(self) -> np.ndarray:
        """Codes of all cells, uint8 [N, H, W]: a view of what goes on; copy it to keep it."""
        return self._engine.fires.fire_map.reshape(self.num_fires, *self.shape)

    @property
    def burn_amounts(self) -> np.ndarray:
        """Feet that fire has come into each cell, float64 [N, H, W]."""
        return self._engine.burn_amounts.reshape(self.num_fires, *self.shape)

    @property
    def active(self) -> np.ndarray:
        """[N] whether a fire goes on."""
        return np.asarray(self.engine.active)

    @property
    def updates(self) -> np.ndarray:
        """[N] updates made."""
        return np.asarray(self.engine.updates)

    @property
    def minutes(self) -> np.ndarray:
        """[N] fire time since the start."""
        return self.updates * self.settings.simulation.update_rate

    def counts(self) -> np.ndarray:
        """Cells of each code, int [N, 6]."""
        return self._engine.counts()

    def landscape(self, fire: int = 0) -> Landscape:
        """What a fire burns on."""
        return self._landscapes[self._of[fire]]

    def set_landscape(self, fire: int, landscape: Landscape) -> None:
        """Another landscape under one fire; fires that shared it get one each."""
        self._put_landscape(fire, landscape)
        self.engine.look_again(fire)

    def _put_landscape(self, fire: int, landscape: Landscape) -> None:
        if landscape.elevation.shape != self.shape:
            raise RayfishError(
                f"a landscape of {landscape.elevation.shape} cells in a simulator of {self.shape}",
                "set area.screen_size to the landscape's rows and columns",
            )
        if self.num_fires > 1 and len(self._landscapes) == 1:
            self._own_landscapes()
            self._stale = True
        before, self._landscapes[self._of[fire]] = self._landscapes[self._of[fire]], landscape
        if (before.wind_series is None) != (landscape.wind_series is None):
            self._stale = True  # one wind or several: the tables of all fires are laid out in another way
        if not self._stale:
            self._engine.set_landscape(int(self._of[fire]), landscape)

    def _own_landscapes(self) -> None:
        """Each fire gets an entry of its own in place of the one that all share."""
        self._landscapes, self._of = self._landscapes * self.num_fires, np.arange(self.num_fires)

    def spread_rate(self, fire: int = 0) -> np.ndarray:
        """Rate of the head fire in every cell, ft/min [H, W] (physics `behave`)."""
        return self._heads("spread_rate", fire).rate.reshape(self.shape)

    def flame_length_ft(self, fire: int = 0) -> np.ndarray:
        """Flame length of the head fire in every cell [H, W] (physics `behave`)."""
        return self._heads("flame_length_ft", fire).flame_length_ft().reshape(self.shape)

    def state(self) -> dict[str, Any]:
        """A snapshot that can be pickled: fires, landscapes and chance."""
        return {
            "engine": self._engine.state(),
            "landscapes": list(self._landscapes),
            "of": self._of.copy(),
            "ignitions": [list(cells) for cells in self.ignitions],
            "rng": self._rng.bit_generator.state,
            "bases": list(self._bases) if self._changed else None,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from a snapshot of a simulator with the same settings and number of fires."""
        self._landscapes, self._of = list(state["landscapes"]), state["of"].copy()
        self.ignitions = [list(cells) for cells in state["ignitions"]]
        self._rng.bit_generator.state = state["rng"]
        if state.get("bases") is not None:
            self._bases, self._changed = list(state["bases"]), True
        self._engine.set_landscapes(self._landscapes, self._of)
        self._stale = False
        self._engine.set_state(state["engine"])

    @property
    def engine(self) -> Behave | SimFire:
        """The fires themselves, with their tables made."""
        if self._stale:
            self._engine.set_landscapes(self._landscapes, self._of)
            self._stale = False
            for fire in range(self.num_fires):
                self._engine.look_again(fire)
        return self._engine

    def _heads(self, what: str, fire: int) -> Heads:
        if not isinstance(self._engine, Behave):
            raise RayfishError(f"{what} is of the physics behave", "make the simulator with physics='behave'")
        return self._engine.heads(fire, self.landscape(fire))

    def _chosen(self, fires: Iterable[int] | np.ndarray | None) -> np.ndarray:
        if fires is None:
            return np.arange(self.num_fires)
        chosen = np.asarray(fires if isinstance(fires, np.ndarray) else list(fires))
        return np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)

    def _flat(self, cells: Cells) -> np.ndarray:
        if not cells:
            raise RayfishError("a fire without a burning cell", "give at least one ignition (x, y)")
        xs, ys = np.array(cells).T
        self._require_inside(xs, ys)
        return np.unique(ys * self.shape[1] + xs)

    def _require_inside(self, xs: np.ndarray, ys: np.ndarray) -> None:
        height, width = self.shape
        out = np.flatnonzero((xs < 0) | (ys < 0) | (xs >= width) | (ys >= height))
        if out.size:
            raise RayfishError(
                f"({xs[out[0]]}, {ys[out[0]]}) is outside the map",
                f"x (column) goes from 0 to {width - 1}, y (row) from 0 to {height - 1}",
            )

    def _layer(self, name: str) -> np.ndarray:
        found = [getattr(landscape, name) for landscape in self._landscapes]
        return found[0] if len(found) == 1 else np.stack(found)

    def _set_layer(self, name: str, value: Any) -> None:
        """A layer of all fires [H, W] or of each [N, H, W]; it stays at `reset` unless it is drawn again.

        Wind takes the place of a series.
        """
        array = _fuel_numbers(value) if name == "fuel" else np.array(value)
        if array.shape not in (self.shape, (self.num_fires, *self.shape)):
            raise RayfishError(
                f"{name} has the shape {array.shape}",
                f"give {self.shape} for all fires or {(self.num_fires, *self.shape)} for one each",
            )
        if array.ndim == 3 and len(self._landscapes) == 1:
            self._own_landscapes()
        self._landscapes = _with_layer(self._landscapes, name, array)
        self._bases = _with_layer(self._bases, name, array)
        self._stale = self._changed = True


def _with_layer(landscapes: list[Landscape], name: str, array: np.ndarray) -> list[Landscape]:
    """Landscapes with another layer: one for all of them, or one for each."""
    if array.ndim == 3 and len(landscapes) == 1:
        landscapes = landscapes * len(array)
    each = array if array.ndim == 3 else [array] * len(landscapes)
    more: dict[str, Any] = {"wind_series": None} if name in _WIND else {}
    return [
        replace(landscape, **{name: part}, **more) for landscape, part in zip(landscapes, each, strict=True)
    ]


def _fuel_numbers(value: Any) -> np.ndarray:
    """Numbers of fuel models, given as such or as codes.

    :raises RayfishError: something is no fuel model
    """
    given = np.array(value)
    if given.dtype.kind == "f":
        if not (given == np.floor(given)).all():
            raise RayfishError("fuel has numbers that are not whole", "give numbers of fuel models")
        given = given.astype(np.int64)
    without = given[np.isin(given, fuels.NO_DATA)] if given.dtype.kind in "iu" else given[:0]
    if without.size:
        raise RayfishError(
            f"fuel has {without[0]}, which means no data, in {without.size} cells",
            "give a fuel model for every cell: 99 is bare ground",
        )
    return fuels.as_numbers(given).astype(np.int16)


def _as_property(name: str, what: str) -> property:
    def get(self: Simulator) -> np.ndarray:
        return self._layer(name)

    def set_(self: Simulator, value: Any) -> None:
        self._set_layer(name, value)

    return property(get, set_, doc=f"{what}, [H, W] of all fires or [N, H, W]; can be set.")


for _name, _what in {
    "elevation": "Feet above the sea",
    "fuel": "Numbers of fuel models (physics `behave`)",
    "w_0": "Fuel load, lb/ft^2 (physics `simfire`)",
    "sigma": "Surface-to-volume ratio of the fuel, 1/ft (physics `simfire`)",
    "delta": "Depth of the fuel, ft (physics `simfire`)",
    "M_x": "Moisture of extinction (physics `simfire`)",
    "wind_speed": "Midflame wind, ft/min",
    "wind_direction": "Degrees clockwise from North toward which the wind blows",
}.items():
    setattr(Simulator, _name, _as_property(_name, _what))
