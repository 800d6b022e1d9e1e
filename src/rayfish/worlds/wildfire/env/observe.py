"""What agents see: the whole map in SimHarness's channels, or (better for small networks) their surroundings.

A local observation is one flat row of numbers from -1 to 1 per agent; `layout` names its parts.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
from numba import njit

from rayfish.worlds.wildfire.env.act import Crew
from rayfish.worlds.wildfire.env.options import BENCH_MAPS, BOUNDS, FIRE_MAPS, Options
from rayfish.worlds.wildfire.env.survey import NO_HEAD, Ground, Survey
from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING, MPH, UNBURNED
from rayfish.worlds.wildfire.fire.layers import Landscape

CROP_CHANNELS = ("burning", "burned", "line", "barrier")
"""Of the cells around an agent; a barrier does not burn, or is beyond the map's edge."""

COARSE_CHANNELS = ("burning", "burned", "line", "agent")
"""Of the blocks of the coarse map: shares of their cells, and 1 in the block where the agent is."""

FIGURES = (
    "x",
    "y",
    *(f"nearest_{part}" for part in ("dx", "dy", "towards_x", "towards_y", "distance")),
    *(f"head_{part}" for part in ("dx", "dy", "towards_x", "towards_y", "distance")),
    "wind_x",
    "wind_y",
    "phase",
    "time_left",
    "burning",
    "damaged",
    "alive",
    "work",
)
"""Single numbers: the agent's place, the burning cell nearest to it, the head of the fire (the burning cell
farthest downwind that has unburned ground beside it), the wind, the step since the last update of the fire,
the share of the runtime that is left, shares of the map, whether the agent is still there, and the share done
of the line it works on."""

STRONG_WIND = 30.0 * MPH
"""Wind that is seen as 1."""


def layout(options: Options) -> dict[str, slice]:
    """Where in an agent's local observation what is: `crop` [channels, crop, crop], `coarse` [channels,
    coarse, coarse], each of `FIGURES`, `id` (one-hot) and `others` (dx, dy of each other agent).
    """
    parts = {
        "crop": len(CROP_CHANNELS) * options.crop**2,
        "coarse": len(COARSE_CHANNELS) * options.coarse**2,
        **dict.fromkeys(FIGURES, 1),
    }
    if options.num_agents > 1:
        parts |= {"id": options.num_agents, "others": 2 * (options.num_agents - 1)}
    ends = np.cumsum(list(parts.values())).tolist()
    return {name: slice(end - size, end) for (name, size), end in zip(parts.items(), ends, strict=True)}


def size_of(options: Options) -> int:
    """Numbers in an agent's local observation."""
    return max(part.stop for part in layout(options).values())


def space_of(options: Options, shape: tuple[int, int]) -> gym.spaces.Box:
    """The observation space of one episode with all its agents."""
    if options.observation == "local":
        return gym.spaces.Box(-1.0, 1.0, (options.num_agents * size_of(options),), np.float32)
    bounds = [_bounds(options, name) for name in options.attributes]
    low, high = (np.array(side, np.float32) for side in zip(*bounds, strict=True))
    channels = (*shape, len(bounds))
    return gym.spaces.Box(np.broadcast_to(low, channels), np.broadcast_to(high, channels), dtype=np.float32)


@njit(cache=True)
def look(
    out: Any,
    chosen: Any,
    crew: Crew,
    seen: Survey,
    ground: Ground,
    fire_map: Any,
    phase: Any,
    time_left: Any,
    steps_needed: Any,
    height: int,
    width: int,
    crop: int,
) -> None:
    """Fills local observations of the chosen episodes, float32 [K, A, size] of zeros.

    :param chosen: int [K]
    :param phase: float [N] share of the way to the next update of the fire
    :param time_left: float [N] share of the runtime
    """
    agents, blocks = crew.x.shape[1], seen.coarse.shape[2]
    for place in range(out.shape[0]):
        n = chosen[place]
        for a in range(agents):
            row, x, y = out[place, a], crew.x[n, a], crew.y[n, a]
            _crop(row, fire_map[n], ground.burnable[ground.of[n]], x, y, height, width, crop)
            at, cell = 4 * crop * crop, y * width + x
            for channel in range(3):
                for block in range(blocks):
                    row[at + block] = min(seen.coarse[n, channel, block], 1.0)  # sums of shares round up
                at += blocks
            row[at + ground.block_of[cell]] = 1.0
            at += blocks
            row[at] = 2.0 * x / max(width - 1, 1) - 1.0
            row[at + 1] = 2.0 * y / max(height - 1, 1) - 1.0
            nearest = _nearest(seen.burning[n, : seen.counts[n, BURNING]], x, y, width)
            _point(row[at + 2 : at + 7], nearest, x, y, height, width)
            _point(row[at + 7 : at + 12], seen.head[n], x, y, height, width)
            row[at + 12] = min(max(seen.wind[n, 0] / STRONG_WIND, -1.0), 1.0)
            row[at + 13] = min(max(seen.wind[n, 1] / STRONG_WIND, -1.0), 1.0)
            row[at + 14] = phase[n]
            row[at + 15] = time_left[n]
            row[at + 16] = seen.counts[n, BURNING] / fire_map.shape[1]
            row[at + 17] = 1.0 - seen.counts[n, UNBURNED] / fire_map.shape[1]
            row[at + 18] = 0.0 if crew.lost[n, a] else 1.0
            row[at + 19] = crew.work[n, a] / steps_needed[ground.fuel[ground.of[n], cell]]
            at += 20
            if agents > 1:
                row[at + a] = 1.0
                at += agents
                for other in range(agents):
                    if other != a:
                        row[at] = (crew.x[n, other] - x) / width
                        row[at + 1] = (crew.y[n, other] - y) / height
                        at += 2


@njit(cache=True)
def _crop(row: Any, codes: Any, burnable: Any, x: int, y: int, height: int, width: int, crop: int) -> None:
    """The cells around an agent, which is in the middle."""
    half, plane = crop // 2, crop * crop
    for down in range(crop):
        cell_y = y + down - half
        inside = 0 <= cell_y < height
        for across in range(crop):
            cell_x = x + across - half
            place = down * crop + across
            if not inside or cell_x < 0 or cell_x >= width:
                row[3 * plane + place] = 1.0
                continue
            cell = cell_y * width + cell_x
            code = codes[cell]
            if code == BURNING:
                row[place] = 1.0
            elif code == BURNED:
                row[plane + place] = 1.0
            elif code != UNBURNED:
                row[2 * plane + place] = 1.0
            elif not burnable[cell]:
                row[3 * plane + place] = 1.0


@njit(cache=True)
def _nearest(burning: Any, x: int, y: int, width: int) -> int:
    """Of the burning cells the one nearest to (x, y)."""
    best, found = np.int64(1) << 60, NO_HEAD
    for cell in burning:
        row = cell // width
        away = (cell - row * width - x) ** 2 + (row - y) ** 2
        if away < best:
            best, found = away, cell
    return found


@njit(cache=True)
def _point(row: Any, cell: int, x: int, y: int, height: int, width: int) -> None:
    """Where a cell is from (x, y): shares of the map, a unit vector, the distance; zeros without a cell."""
    if cell == NO_HEAD:
        return
    dx, dy = cell % width - x, cell // width - y
    away = math.sqrt(dx * dx + dy * dy)
    row[0], row[1] = dx / width, dy / height
    if away > 0.0:
        row[2], row[3] = dx / away, dy / away
    row[4] = away / math.sqrt(width * width + height * height)


class GridView:
    """Grid observations, float32 [N, H, W, C]; what does not change in an episode is laid out once."""

    def __init__(self, options: Options, shape: tuple[int, int], number: int) -> None:
        self.options, self.shape = options, shape
        self.layers = np.zeros((number, *shape, len(options.attributes)), np.float32)
        self.scales = {name: self._scale(name) for name in options.attributes}

    def begin(self, n: int, landscape: Landscape, factor: float, bench_final: np.ndarray | None) -> None:
        """The layers of an episode that begins.

        :param factor: midflame wind over the landscape's
        :param bench_final: the last map of the benchmark fire [C]
        """
        for channel, name in enumerate(self.options.attributes):
            if name in BOUNDS:
                layer = np.asarray(getattr(landscape, name), np.float64)
                if name == "wind_speed":
                    layer = layer * factor / MPH
                if name == "wind_direction":
                    layer = layer % 360
                self._write((n, channel), name, np.clip(layer, *BOUNDS[name]))
            elif name == "bench_fire_map_final" and bench_final is not None:
                self._write((n, channel), name, bench_final.reshape(self.shape))

    def blow(self, n: int, wind: tuple[float, float], factor: float) -> None:
        """Another wind, of a series: mph and degrees, the same everywhere; `factor` makes it midflame."""
        for channel, name in enumerate(self.options.attributes):
            if name in ("wind_speed", "wind_direction"):
                now = wind[0] * factor if name == "wind_speed" else wind[1] % 360
                self._write((n, channel), name, np.full(self.shape, np.clip(now, *BOUNDS[name])))

    def look(
        self, chosen: np.ndarray, fire_map: np.ndarray, crew: Crew, bench: np.ndarray | None
    ) -> np.ndarray:
        """What is seen now in the chosen episodes; agents stand on the fire map with their numbers.

        :param fire_map: [N, H, W]
        :param bench: the maps of the benchmark fires [K, H, W], where they are shown
        """
        out = self.layers[chosen]
        for channel, name in enumerate(self.options.attributes):
            if name in FIRE_MAPS:
                cells = fire_map[chosen].astype(np.float32)
                every, ys, xs = np.arange(len(cells)), crew.y[chosen], crew.x[chosen]
                for agent in range(xs.shape[1]):
                    cells[every, ys[:, agent], xs[:, agent]] = self.options.first_agent_id + agent
                out[..., channel] = self._cells(cells, name)
            elif name == "bench_fire_map" and bench is not None:
                out[..., channel] = self._cells(bench, name)
        return out

    def _cells(self, shown: Any, name: str) -> Any:
        """Codes as the channel shows them."""
        least, span = self.scales[name]
        return (shown - least) / span

    def _scale(self, name: str) -> tuple[float, float]:
        if name not in self.options.normalized_attributes:
            return 0.0, 1.0
        low, high = _range(self.options, name)
        return low, high - low

    def _write(self, place: tuple[int, int], name: str, layer: np.ndarray) -> None:
        least, span = self.scales[name]
        self.layers[place[0], ..., place[1]] = (layer - least) / span


class AgentsGridView(GridView):
    """A map for each agent, on which it has the first number and the others the following ones."""

    def look(
        self, chosen: np.ndarray, fire_map: np.ndarray, crew: Crew, bench: np.ndarray | None
    ) -> np.ndarray:
        """What each agent sees now, [K, A, H, W, C]."""
        agents, first = self.options.num_agents, self.options.first_agent_id
        out = np.repeat(super().look(chosen, fire_map, crew, bench)[:, None], agents, axis=1)
        every, ys, xs = np.arange(len(chosen)), crew.y[chosen], crew.x[chosen]
        for channel, name in enumerate(self.options.attributes):
            for viewer in range(agents) if name in FIRE_MAPS else ():
                for number in reversed(range(agents)):  # itself last, where several are on one cell
                    agent = (viewer + number) % agents
                    shown = self._cells(np.float32(first + number), name)
                    out[every, viewer, ys[:, agent], xs[:, agent], channel] = shown
        return out


def _range(options: Options, name: str) -> tuple[float, float]:
    """The least and largest value of a channel that is not normalised."""
    if name in FIRE_MAPS:
        return 0.0, float(options.first_agent_id + options.num_agents - 1)
    return (0.0, 2.0) if name in BENCH_MAPS else BOUNDS[name]


def _bounds(options: Options, name: str) -> tuple[float, float]:
    return (0.0, 1.0) if name in options.normalized_attributes else _range(options, name)
