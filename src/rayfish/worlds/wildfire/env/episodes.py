"""N episodes side by side: fires, agents, what they see and what it is worth. The environments wrap this.

Every episode has a generator of its own: what happens in it depends on its seed and its actions alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rayfish.errors import EnvironmentFault
from rayfish.worlds.wildfire.env import act, observe, reward, survey
from rayfish.worlds.wildfire.env.options import Options
from rayfish.worlds.wildfire.env.reward import Step
from rayfish.worlds.wildfire.env.starts import Starts
from rayfish.worlds.wildfire.fire import benchmark, layers
from rayfish.worlds.wildfire.fire import settings as settings_
from rayfish.worlds.wildfire.fire.benchmark import Benchmark, Benchmarks, Start
from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING, FIRELINE, UNBURNED
from rayfish.worlds.wildfire.fire.layers import Landscape
from rayfish.worlds.wildfire.fire.simulator import Simulator

CONTAINED = 0.9
"""A fire is contained when it went out before it did this share of the benchmark's damage."""


class Episodes:
    """The N episodes of one environment."""

    def __init__(self, options: Options, number: int) -> None:
        self.options, self.number = options, number
        self.settings = settings_.read(options.landscape, physics=options.physics)
        self.shape: tuple[int, int] = self.settings.area.screen_size
        self.cells = self.shape[0] * self.shape[1]
        self.varied = bool(layers.drawn(self.settings))
        self.crew = act.new_crew(number, options.num_agents)
        blocks = options.coarse
        self.ground = survey.new_ground(number, number if self.varied else 1, self.shape, blocks)
        self.seen = survey.new_survey(number, self.cells, blocks**2)
        self.steps_per_line = act.steps_per_line(
            options.production,
            self.settings.area.pixel_scale,
            self.settings.simulation.update_rate / options.agent_speed,
        )
        self.grid = observe.GridView(options, self.shape, number) if options.observation == "grid" else None
        self.steps, self.updates = np.zeros(number, np.int64), np.zeros(number, np.int64)
        self.damaged, self._damaged_before = np.zeros(number, np.int64), np.zeros(number, np.int64)
        self.endangered, self.lines = np.zeros(number, np.int64), np.zeros(number, np.int64)
        self._last_reward = np.zeros(number)
        self._cut = np.zeros(number, bool)
        self.curves = np.ones((number, 2), np.int64)
        self.bench_length = np.zeros(number, np.int64)
        self.benchmarks_now: list[Benchmark | None] = [None] * number
        self.starts: list[Start | None] = [None] * number
        self.chance = Starts(options, self.settings, number)
        self._lines = np.zeros((4, number * options.num_agents), np.int64)
        self._everyone = np.arange(number)
        self._size = observe.size_of(options)
        time = self.settings.simulation
        self._most_updates = time.runtime // time.update_rate + 1
        self._check_manual_positions()
        self._build()

    def _build(self) -> None:
        """What is made from the options alone, and not kept when the episodes are saved."""
        self.sim = Simulator(self.settings, self.number, seed=0)
        self.benchmarks = Benchmarks(self.settings, _maps_wanted(self.options))
        for start, curve in self.chance.known():
            self.benchmarks.learn(start, curve)
        self.reward = reward.load(self.options)
        if not self.varied:
            physics = self.settings.simulation.physics
            survey.lay(self.ground, 0, self.sim.landscape(0), physics)
            self._shared_wind = survey.wind_of(self.sim.landscape(0), 0.0, self._wind_factor())

    @property
    def fire_map(self) -> np.ndarray:
        """Codes of the cells, uint8 [N, C]; a view of the simulator's."""
        return self.sim.fire_map.reshape(self.number, -1)

    def begin(self, which: np.ndarray, seeds: Sequence[int | None] | None = None) -> None:
        """Episodes begin; those with a seed draw from a new generator."""
        for place, seed in enumerate(seeds or ()):
            if seed is not None:
                self.chance.seed(int(which[place]), seed)
        starts = [self.chance.draw(int(n), self.sim.landscape(0)) for n in which]
        landscapes = [self.chance.landscape(start) for start in starts]
        benchmark.begin(self.sim, which, starts, landscapes)
        for name in ("steps", "updates", "endangered", "lines", "_last_reward", "_cut"):
            getattr(self, name)[which] = 0
        for n, start, landscape in zip(which, starts, landscapes, strict=True):
            self._lay(int(n), start, landscape)
        survey.survey(self.seen, self.ground, which, self.fire_map, *self.shape)
        self.damaged[which] = self.cells - self.seen.counts[which, UNBURNED]
        self._damaged_before[which] = self.damaged[which]
        if self.options.benchmark:
            self._compare(which, self.benchmarks.of(starts, landscapes))
        for n in which:
            self._place_agents(int(n))
            if self.grid is not None:
                self._lay_grid(int(n))

    def step(self, dx: np.ndarray, dy: np.ndarray, codes: np.ndarray) -> tuple[Step, np.ndarray]:
        """Agents act, fires that are due go on; what came of it, and the rewards [N].

        :param dx: [N, A] columns to go; `dy`: rows
        :param codes: [N, A] what to leave on the cell, 0 for nothing
        """
        placed = self._act(dx, dy, codes)
        due = self.steps % self.options.agent_speed == 0
        chosen = np.flatnonzero(due)
        active = self._burn(chosen) if chosen.size else due
        endangered = np.zeros(self.number, np.int64)
        act.count_endangered(self.crew, self.fire_map, *self.shape, endangered)
        if self.options.endangered:
            act.lose_overrun(self.crew, self.fire_map, self.shape[1])
        self.steps += 1
        self.endangered += endangered
        before, self.damaged = self.damaged, self.cells - self.seen.counts[:, UNBURNED].astype(np.int64)
        burning = self.seen.counts[:, BURNING].astype(np.int64)
        # The end of the runtime is an end too: what counts is what is left of the land by then.
        ended = due & ((burning == 0) | (self.seen.left == 0) | ~active)
        cut = np.zeros(self.number, bool)
        if self.options.max_steps is not None:
            cut = ~ended & (self.steps >= self.options.max_steps)
        self._cut = cut.copy()
        result = Step(
            updated=due,
            updates=self.updates.copy(),
            damaged=self.damaged,
            damaged_before=self._damaged_before.copy(),
            damaged_step_before=before,
            benchmark=self._bench_at(self.updates),
            benchmark_before=self._bench_at(np.maximum(self.updates - 1, 0)),
            benchmark_final=self._bench_at(self.bench_length),
            benchmark_length=self.bench_length.copy(),
            burning=burning,
            lines=placed,
            endangered=endangered,
            ended=ended,
            truncated=cut,
            last=self._last_reward.copy(),
            cells=self.cells,
            agents=self.options.num_agents,
            agent_speed=self.options.agent_speed,
        )
        rewards = reward.checked(self.reward(result), self.number, self.options.reward)
        self._last_reward = np.where(due, rewards, self._last_reward)
        self._damaged_before = np.where(due, self.damaged, self._damaged_before)
        return result, rewards

    def look(self, which: np.ndarray | None = None) -> np.ndarray:
        """What is seen now, all episodes or some: a new array, [K, A, size] or [K, H, W, C]."""
        chosen = self._everyone if which is None else which
        if self.grid is not None:
            return self.grid.look(chosen, self.sim.fire_map, self.crew, self._bench_maps(chosen))
        out = np.zeros((len(chosen), self.options.num_agents, self._size), np.float32)
        speed = self.options.agent_speed
        observe.look(
            out,
            chosen,
            self.crew,
            self.seen,
            self.ground,
            self.fire_map,
            (self.steps % speed) / speed,
            1.0 - self.updates / self._most_updates,
            self.steps_per_line,
            *self.shape,
            self.options.crop,
        )
        return out

    def metrics(self, which: np.ndarray) -> dict[str, np.ndarray]:
        """Figures of episodes that have just ended, float64 [K] by name.

        An episode that was cut off is compared with the benchmark fire at that time, another with its end.
        """
        counts, damaged = self.seen.counts[which], self.damaged[which]
        burned = counts[:, BURNING] + counts[:, BURNED]
        found = {
            "burned": burned,
            "burned_share": burned / self.cells,
            "lines": counts[:, FIRELINE:].sum(axis=1),
            "endangered_steps": self.endangered[which],
            "fire_updates": self.updates[which],
        }
        if self.options.endangered:
            found["agents_lost"] = self.crew.lost[which].sum(axis=1)
        if self.options.benchmark:
            final = self._bench_at(self.bench_length)[which]
            expected = np.where(self._cut[which], self._bench_at(self.updates)[which], final)
            out = (counts[:, BURNING] == 0) | (self.seen.left[which] == 0)
            found |= {
                "saved_share": (expected - damaged) / final,
                "saved_area": (expected - damaged) / self.cells,
                "contained": out & (damaged < CONTAINED * final),
            }
        return {name: np.asarray(values, np.float64) for name, values in found.items()}

    def _act(self, dx: np.ndarray, dy: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Lines, then movements; how many lines were placed in each episode."""
        ground = (*self.shape, self.ground.fuel, self.ground.of, self.steps_per_line)
        found = act.act(self.crew, dx, dy, codes, self.fire_map, *ground, self._lines)
        if not found:
            return np.zeros(self.number, np.int64)
        self.sim.place(*(row[:found] for row in self._lines))
        survey.note_lines(self.seen, self.ground, self._lines, found, self.shape[1])
        placed = np.bincount(self._lines[0, :found], minlength=self.number)
        self.lines += placed
        return placed

    def _burn(self, chosen: np.ndarray) -> np.ndarray:
        """Fires go on; which of all still can."""
        active = self.sim.run(1, chosen)
        self.updates[chosen] += 1
        if self.settings.wind.function == "series":
            for n in chosen:
                self._note_wind(int(n))
        survey.survey(self.seen, self.ground, chosen, self.fire_map, *self.shape)
        return active

    def _lay(self, n: int, start: Start, landscape: Landscape | None) -> None:
        self.starts[n] = start
        if landscape is not None:
            survey.lay(self.ground, n, landscape, self.settings.simulation.physics)
            self._note_wind(n)
        else:
            self.seen.wind[n] = self._shared_wind

    def _note_wind(self, n: int) -> None:
        minutes = float(self.updates[n]) * self.settings.simulation.update_rate
        factor, landscape = self._wind_factor(), self.sim.landscape(n)
        self.seen.wind[n] = survey.wind_of(landscape, minutes, factor)
        now = survey.series_at(landscape, minutes)
        if self.grid is not None and now is not None:
            self.grid.blow(n, now, factor)

    def _wind_factor(self) -> float:
        behave = self.settings.simulation.physics == "behave"
        return self.settings.wind.adjustment_factor if behave else 1.0

    def _compare(self, which: np.ndarray, found: Sequence[Benchmark]) -> None:
        longest = max(one.length for one in found)
        if longest >= self.curves.shape[1]:
            more = np.ones((self.number, 2 * longest + 2), np.int64)
            more[:, : self.curves.shape[1]] = self.curves
            self.curves = more
        for n, one in zip(which, found, strict=True):
            self.benchmarks_now[n] = one if one.ignited is not None else None
            self.curves[n, : one.length + 1] = one.curve
            self.bench_length[n] = one.length

    def _bench_at(self, updates: np.ndarray) -> np.ndarray:
        return self.curves[self._everyone, np.minimum(updates, self.bench_length)]

    def _bench_maps(self, chosen: np.ndarray) -> np.ndarray | None:
        if _maps_wanted(self.options) != "all":
            return None
        maps = [
            one.map_at(int(self.updates[n])) for n in chosen if (one := self.benchmarks_now[n]) is not None
        ]
        return np.stack(maps).reshape(-1, *self.shape)

    def _lay_grid(self, n: int) -> None:
        assert self.grid is not None
        one = self.benchmarks_now[n]
        last = None if one is None else one.map_at(one.length)
        self.grid.begin(n, self.sim.landscape(n), self._wind_factor(), last)

    def _place_agents(self, n: int) -> None:
        """Each agent to its start; drawn ones on unburned ground, where something burns if there is room."""
        crew = self.crew
        crew.lost[n], crew.work[n], crew.placed[n] = False, 0, False
        if self.options.agent_initialization_method == "manual":
            crew.x[n], crew.y[n] = np.array(self.options.initial_agent_positions).T
            return
        free = self.fire_map[n] == UNBURNED
        better = free & self.ground.burnable[self.ground.of[n]]
        cells = np.flatnonzero(better if better.sum() >= self.options.num_agents else free)
        if len(cells) < self.options.num_agents:
            raise EnvironmentFault(
                f"{self.options.num_agents} agents on {len(cells)} free cells", "lower num_agents"
            )
        taken: list[int] = []
        while len(taken) < self.options.num_agents:  # few agents, many cells: faster than a permutation
            cell = int(cells[self.chance.rngs[n].integers(len(cells))])
            if cell not in taken:
                taken.append(cell)
        crew.y[n], crew.x[n] = np.divmod(taken, self.shape[1])

    def _check_manual_positions(self) -> None:
        if self.options.agent_initialization_method != "manual":
            return
        height, width = self.shape
        for x, y in self.options.initial_agent_positions or ():
            if not (0 <= x < width and 0 <= y < height):
                raise EnvironmentFault(
                    f"initial_agent_positions has ({x}, {y}), outside the map",
                    f"x (column) goes from 0 to {width - 1}, y (row) from 0 to {height - 1}",
                )

    def __getstate__(self) -> dict[str, Any]:
        """All that goes on; landscapes are made again from their seeds, benchmarks from the fires."""
        kept = {key: value for key, value in vars(self).items() if key not in _MADE}
        saved = self.sim.state()
        if all(start is not None for start in self.starts):
            saved["landscapes"] = None
        return {**kept, "_saved": saved}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("_saved")
        vars(self).update(state)
        self._build()
        if saved["landscapes"] is None:
            made = [self.chance.landscape(start) for start in self.starts if start is not None]
            saved["landscapes"] = made if self.varied else [self.sim.landscape(0)]
        self.sim.set_state(saved)


_MADE = ("sim", "benchmarks", "reward")


def _maps_wanted(options: Options) -> str:
    """Which maps of the benchmark fires the observations show."""
    if options.observation != "grid" or not options.benchmark:
        return "none"
    if "bench_fire_map" in options.attributes:
        return "all"
    return "last" if "bench_fire_map_final" in options.attributes else "none"
