"""Fires by the physics `simfire`: SimFire 2.0.1's rates and fire manager, with the state of every fire."""

from __future__ import annotations

from typing import Any

import numpy as np

from rayfish.worlds.wildfire.fire import simfire_rates, simfire_spread
from rayfish.worlds.wildfire.fire.codes import BURNING, FIRELINE
from rayfish.worlds.wildfire.fire.layers import Landscape
from rayfish.worlds.wildfire.fire.settings import Settings


class SimFire:
    """N fires on maps of one shape.

    :param settings: of the simulator
    :param number: N
    """

    def __init__(self, settings: Settings, number: int) -> None:
        self.settings = settings
        self.shape = settings.area.screen_size
        self.fires = simfire_spread.new_sim_fires(number, self.shape[0] * self.shape[1])
        self._of = np.zeros(number, np.int64)
        self._rates = np.zeros((0, 0, 8))

    def set_landscapes(self, landscapes: list[Landscape], of: np.ndarray) -> None:
        """Makes the rates of all landscapes; `of` says which one each fire burns on."""
        self._of = np.asarray(of, np.int64)
        self._rates = np.stack([self._tabulate(landscape) for landscape in landscapes])

    def set_landscape(self, place: int, landscape: Landscape) -> None:
        """Another landscape in the place of one."""
        self._rates[place] = self._tabulate(landscape)

    def look_again(self, fire: int) -> None:
        """Nothing is kept between updates that depends on the ground."""

    def begin(self, fire: int, cells: np.ndarray, seed: int) -> None:
        """A map without fire, then the first burning cells; nothing is left to chance here."""
        fires = self.fires
        for array in (fires.fire_map, fires.amounts, fires.clock, fires.elapsed):
            array[fire] = 0
        fires.fire_map[fire, cells] = BURNING
        fires.cells[fire, : len(cells)] = np.sort(cells)
        fires.ages[fire, : len(cells)] = 0
        fires.clock[fire, simfire_spread.LENGTH] = len(cells)

    def run(self, chosen: np.ndarray, updates: int) -> None:
        """So many updates of the chosen fires, or as many as SimFire makes before it quits."""
        settings = self.settings
        simfire_spread.run(
            self.fires,
            chosen,
            updates,
            self._rates,
            self._of,
            self.shape[1],
            1 if settings.fire.diagonal_spread else 2,
            settings.fire.max_fire_duration,
            settings.simulation.update_rate,
            float(settings.simulation.runtime),
            settings.area.pixel_scale,
            not settings.mitigation.ros_attenuation,
            (self.fires.fire_map >= FIRELINE).any(axis=1),
        )

    def place(self, fires: np.ndarray, cells: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Lines wherever they are asked for, as SimFire does it: first firelines, then the other kinds."""
        for code in sorted(set(codes.tolist())):
            here = codes == code
            self.fires.fire_map[fires[here], cells[here]] = code
        longest = int(self.fires.clock[fires, simfire_spread.LENGTH].max(initial=0))
        self.fires = simfire_spread.roomier(self.fires, longest + self.fires.fire_map.shape[1])
        return np.ones(len(cells), bool)

    @property
    def updates(self) -> np.ndarray:
        """Updates that each fire has made."""
        return self.fires.clock[:, simfire_spread.UPDATES]

    @property
    def active(self) -> np.ndarray:
        """SimFire's own word: false from the update on that found nothing burning, or the time over."""
        return self.fires.clock[:, simfire_spread.QUIT] == 0

    @property
    def burn_amounts(self) -> np.ndarray:
        """Feet burned into each cell, as SimFire counts them."""
        return self.fires.amounts

    def counts(self) -> np.ndarray:
        """Cells of each code, [N, 6]."""
        return np.stack([np.bincount(fire, minlength=6) for fire in self.fires.fire_map]).astype(np.int32)

    def state(self) -> dict[str, Any]:
        """All that changes while fires burn."""
        return {name: getattr(self.fires, name).copy() for name in _KEPT}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `state`."""
        self.fires = simfire_spread.roomier(self.fires, state["cells"].shape[1])
        for name in _KEPT:
            kept = state[name]
            part = getattr(self.fires, name)
            if name in _LISTS:
                part = part[:, : kept.shape[1]]
            part[...] = kept

    def _tabulate(self, landscape: Landscape) -> np.ndarray:
        moisture = landscape.moisture["m1h"]  # SimFire knows one moisture
        return simfire_rates.rates(landscape, self.settings.area.pixel_scale, moisture)


_LISTS = ("cells", "ages")
_KEPT = ("fire_map", "amounts", *_LISTS, "clock", "elapsed")
