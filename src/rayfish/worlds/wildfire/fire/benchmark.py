"""The benchmark fire: a fire without intervention. Every start is simulated once and cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rayfish.worlds.wildfire.fire.behave import Behave
from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING, UNBURNED
from rayfish.worlds.wildfire.fire.layers import Landscape
from rayfish.worlds.wildfire.fire.settings import Settings
from rayfish.worlds.wildfire.fire.simulator import Simulator

AT_ONCE = 16
"""Fires that are simulated together at most."""

KEPT_BYTES = 128 * 2**20
"""What is remembered at most; the fires that were asked for longest ago are forgotten first."""

_NEVER = np.iinfo(np.int32).max
_MANY_UPDATES = 64


@dataclass(frozen=True)
class Start:
    """All that decides a fire, besides the settings."""

    seed: int | None  # of the landscape; None for the one that all episodes share
    cells: tuple[tuple[int, int], ...]  # (x, y) of the cells that burn first
    embers: int = 0  # seed of the flight of embers; 0 where there are none


@dataclass(frozen=True)
class Benchmark:
    """One fire without agents."""

    # int32 [T + 1] cells that are not unburned, after 0, 1, ... T updates; T: the fire is out
    curve: np.ndarray
    # int32 [C] the update in which a cell began to burn, a number beyond all updates where it never did; None
    # where maps were not asked for
    ignited: np.ndarray | None = None
    burned: np.ndarray | None = None  # int32 [C] likewise the update from which on it is burned
    # uint8 [C] the codes after the last update, where the times of burning down are not known
    last: np.ndarray | None = None

    @property
    def length(self) -> int:
        """T, the updates until the fire was out."""
        return len(self.curve) - 1

    def map_at(self, update: int) -> np.ndarray:
        """Codes of the cells [C] after an update; after the last, the last."""
        if self.last is not None:
            assert update >= self.length, "only the last map was asked for"
            return self.last
        assert self.ignited is not None and self.burned is not None, "maps were not asked for"
        burning = (self.ignited <= update).astype(np.uint8)
        return np.where(self.burned <= update, np.uint8(BURNED), burning)


class Benchmarks:
    """Simulates fires without agents, and remembers them.

    :param maps: which maps are wanted of them: `none`, the `last`, or `all`
    """

    def __init__(self, settings: Settings, maps: str = "none") -> None:
        self._settings, self._maps = settings, maps
        self._known: OrderedDict[Start, Benchmark] = OrderedDict()
        self._bytes = 0
        self._simulator: Simulator | None = None

    def of(self, starts: Sequence[Start], landscapes: Sequence[Landscape | None]) -> list[Benchmark]:
        """The benchmarks of fires.

        :param landscapes: of each, where it is not the one that all share
        """
        given = dict(zip(starts, landscapes, strict=True))
        missing = [start for start in given if start not in self._known]
        found: dict[Start, Benchmark] = {}
        for first in range(0, len(missing), AT_ONCE):
            part = missing[first : first + AT_ONCE]
            found |= dict(zip(part, self._simulate(part, [given[start] for start in part]), strict=True))
        for start in starts:
            if start in self._known:
                self._known.move_to_end(start)
        result = [found[start] if start in found else self._known[start] for start in starts]
        for start, benchmark in found.items():
            self._remember(start, benchmark)
        return result

    def learn(self, start: Start, curve: np.ndarray) -> None:
        """A curve that is known from elsewhere; of use where no maps are wanted."""
        if self._maps == "none" and start not in self._known:
            self._remember(start, Benchmark(curve))

    def _remember(self, start: Start, benchmark: Benchmark) -> None:
        self._known[start] = benchmark
        self._bytes += _size(benchmark)
        while self._bytes > KEPT_BYTES and len(self._known) > 1:
            self._bytes -= _size(self._known.popitem(last=False)[1])

    def _simulate(self, starts: Sequence[Start], landscapes: Sequence[Landscape | None]) -> list[Benchmark]:
        if self._simulator is None:
            self._simulator = Simulator(self._settings, AT_ONCE, seed=0)
        sim, fires = self._simulator, np.arange(len(starts))
        begin(sim, fires, starts, landscapes)
        if self._maps == "all" or not isinstance(sim.engine, Behave):
            return _recorded(sim, fires)
        while (going := fires[sim.active[fires]]).size:
            sim.run(_MANY_UPDATES, going)
        ignited = sim.engine.ignition_updates(fires)
        found = [_benchmark(*pair) for pair in zip(ignited, sim.updates[fires].tolist(), strict=True)]
        if self._maps == "none":
            return [Benchmark(one.curve) for one in found]
        last = sim.fire_map.reshape(AT_ONCE, -1)
        return [replace(one, last=last[fire].copy()) for fire, one in zip(fires, found, strict=True)]


def begin(
    sim: Simulator,
    fires: Sequence[int] | np.ndarray,
    starts: Sequence[Start],
    landscapes: Sequence[Landscape | None],
) -> None:
    """Fires of a simulator begin as their starts say."""
    given = [landscape for landscape in landscapes if landscape is not None] or None
    if not any(start.embers for start in starts):
        sim.reset(fires, ignitions=[start.cells for start in starts], landscapes=given)
        return
    for place, (fire, start) in enumerate(zip(fires, starts, strict=True)):
        own = None if given is None else [given[place]]
        sim.reset([int(fire)], ignitions=[start.cells], landscapes=own, seed=start.embers)


def _recorded(sim: Simulator, fires: np.ndarray) -> list[Benchmark]:
    """Update by update, with the times at which cells ignite and are burned."""
    cells = sim.shape[0] * sim.shape[1]
    ignited, burned = (np.full((len(fires), cells), _NEVER, np.int32) for _ in range(2))
    codes = sim.fire_map.reshape(-1, cells)
    updates, length = 0, np.zeros(len(fires), np.int64)
    while True:
        now = codes[fires]
        ignited[(now != UNBURNED) & (ignited == _NEVER)] = updates
        burned[(now == BURNED) & (burned == _NEVER)] = updates
        goes_on = sim.active[fires] & (now == BURNING).any(axis=1)
        length[goes_on] = updates + 1
        if not goes_on.any():
            break
        sim.run(1, fires[goes_on])
        updates += 1
    return [_benchmark(start, int(end), out) for start, end, out in zip(ignited, length, burned, strict=True)]


def _benchmark(ignited: np.ndarray, length: int, burned: np.ndarray | None = None) -> Benchmark:
    happened = np.bincount(ignited[ignited <= length], minlength=length + 1)
    return Benchmark(np.cumsum(happened).astype(np.int32), ignited, burned)


def _size(benchmark: Benchmark) -> int:
    arrays = (benchmark.curve, benchmark.ignited, benchmark.burned, benchmark.last)
    return sum(array.nbytes for array in arrays if array is not None)
