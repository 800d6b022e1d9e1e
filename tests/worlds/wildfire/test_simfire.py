"""Physics `simfire` against a plain reading of SimFire's rules, update by update, and its whole fires."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from rayfish.worlds.wildfire.fire import simfire
from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING, FIRELINE, NEIGHBOURS, SCRATCHLINE, WETLINE
from rayfish.worlds.wildfire.fire.simulator import Simulator

ATTENUATION = {FIRELINE: 980, SCRATCHLINE: 490, WETLINE: 245}
FUELS = {"w_0": (0.0, 1.0), "delta": (0.2, 6.0), "M_x": (0.12, 1.0), "sigma": (1.0, 3500.0)}


def config(rows=12, columns=12, *, start=(0, 0), rate=1.0, runtime="1000h", **fire):
    """Level ground of short grass, which the tests change."""
    return {
        "physics": "simfire",
        "area": {"screen_size": [rows, columns], "pixel_scale": 50},
        "simulation": {"update_rate": rate, "runtime": runtime},
        "terrain": {
            "topography": {"functional": {"function": "flat"}},
            "fuel": {"functional": {"function": "uniform", "uniform": {"model": 1}}},
        },
        "fire": {"fire_initial_position": {"type": "static", "static": {"position": start}}, **fire},
        "environment": {"moisture": 0.03},
    }


class Reference:
    """SimFire's fire manager for one fire, as its rules are written down: slow, and with lists of Python."""

    def __init__(self, sim: Simulator) -> None:
        settings = sim.settings
        self.duration, self.cell_ft = settings.fire.max_fire_duration, settings.area.pixel_scale
        self.minutes, self.runtime = settings.simulation.update_rate, settings.simulation.runtime
        self.attenuates = settings.mitigation.ros_attenuation
        self.steps = list(enumerate(NEIGHBOURS))[:: 1 if settings.fire.diagonal_spread else 2]
        moisture = settings.environment.moisture
        self.rates = simfire.rates(sim.landscape(), self.cell_ft, moisture).reshape(*sim.shape, 8)
        self.fire_map, self.amounts = np.zeros(sim.shape, np.uint8), np.zeros(sim.shape)
        self.burning = [(y, x, 0) for x, y in sim.ignitions[0]]
        for y, x, _ in self.burning:
            self.fire_map[y, x] = BURNING
        self.elapsed, self.active = 0.0, True

    def run(self, updates: int) -> None:
        for _ in range(updates):
            self.active = self._update()
            if not self.active:
                return

    def _update(self) -> bool:
        for y, x, age in self.burning:
            if age >= self.duration:
                self.fire_map[y, x] = BURNED
        self.burning = [(y, x, age + 1) for y, x, age in self.burning if age < self.duration]
        if not self.burning or self.minutes > self.runtime or self.elapsed > self.runtime:
            return False
        spread, targets = np.zeros_like(self.amounts), set()
        for y, x, _ in self.burning:
            for direction, (dx, dy) in self.steps:
                to = (y + dy, x + dx)
                inside = 0 <= to[0] < spread.shape[0] and 0 <= to[1] < spread.shape[1]
                if inside and self.fire_map[to] not in (BURNING, BURNED):
                    spread[to] = self.rates[(*to, direction)] * self.minutes
                    targets.add(to)
        if not targets:
            return True
        for code, feet in ATTENUATION.items():
            line = self.fire_map == code
            spread[line] = spread[line] - feet if self.attenuates else 0
        self.amounts += spread
        for to in sorted(targets):
            if self.amounts[to] > self.cell_ft:
                self.burning.append((*to, 0))
                self.fire_map[to] = BURNING
        self.elapsed += self.minutes
        return True


def random_fire(rng: np.random.Generator) -> Simulator:
    """A fire whose land, map and rules are drawn."""
    rows, columns = (int(number) for number in rng.integers(4, 15, 2))
    sim = Simulator(
        config(
            rows,
            columns,
            start=[int(rng.integers(columns)), int(rng.integers(rows))],
            rate=float(rng.choice([0.1, 0.5, 1.0, 2.5])),
            runtime=str(rng.choice(["4m", "12m", "1000h"])),
            max_fire_duration=int(rng.integers(1, 9)),
            diagonal_spread=bool(rng.integers(2)),
        )
        | {"mitigation": {"ros_attenuation": bool(rng.integers(2))}},
        2,
    )
    for name, (low, high) in FUELS.items():
        setattr(sim, name, rng.uniform(low, high, (rows, columns)))
    sim.elevation = rng.uniform(0, 60, (rows, columns))
    sim.wind_speed = rng.uniform(0, 2000, (rows, columns))
    sim.wind_direction = rng.uniform(0, 360, (rows, columns))
    return sim


@pytest.mark.parametrize("seed", range(40))
def test_every_update_is_that_of_the_written_rules(seed):
    rng = np.random.default_rng(seed)
    sim = random_fire(rng)
    reference = Reference(sim)
    for _ in range(40):
        places = rng.integers(0, sim.shape[::-1], (int(rng.choice([0, 0, 1, 4])), 2)).tolist()
        lines = sorted((int(rng.integers(3, 6)), x, y) for x, y in places)  # also on cells that burn
        for code, x, y in lines:
            reference.fire_map[y, x] = code
        sim.place_lines(0, [(x, y, code) for code, x, y in lines])
        updates = int(rng.integers(1, 4))
        reference.run(updates)
        sim.run(updates)
        np.testing.assert_array_equal(sim.fire_map[0], reference.fire_map)
        np.testing.assert_array_equal(sim.burn_amounts[0], reference.amounts)
        assert sim.active[0] == reference.active
        assert sim.engine.fires.elapsed[0] == reference.elapsed
    assert not (sim.fire_map[1] >= FIRELINE).any()


def test_rates_are_rothermels_of_one_fuel_with_simfires_slope():
    rng = np.random.default_rng(3)
    sim = random_fire(rng)
    sim.sigma, sim.w_0 = rng.uniform(800, 3500, sim.shape), rng.uniform(0.02, 0.3, sim.shape)
    land, (rows, columns) = sim.landscape(), sim.shape
    found = simfire.rates(land, 50.0, 0.03).reshape(rows, columns, 8)
    along_y, along_x = np.gradient(land.elevation, 50.0)
    for _ in range(50):
        y, x, d = (int(rng.integers(last)) for last in (rows, columns, 8))
        w_0, depth, m_x, sigma = (getattr(land, name)[y, x] for name in FUELS)
        moist, packing, best = min(0.03 / m_x, 1), w_0 / depth / 32, 3.348 * sigma**-0.8189
        a = 133 * sigma**-0.7913
        gamma = sigma**1.5 / (495 + 0.0594 * sigma**1.5) * (packing / best) ** a
        gamma *= math.exp(a * (1 - packing / best))
        damping = (1 - 2.59 * moist + 5.11 * moist**2 - 3.52 * moist**3) * min(0.174 * 0.01**-0.19, 1)
        heat = gamma * w_0 * (1 - 0.0555) * 8000 * damping
        heat *= math.exp((0.792 + 0.681 * sigma**0.5) * (packing + 0.1)) / (192 + 0.2595 * sigma)
        theta = math.atan2(-NEIGHBOURS[d][1], NEIGHBOURS[d][0])
        wind = land.wind_speed[y, x] * math.cos(math.radians(90 - land.wind_direction[y, x]) - theta)
        c, b, e = (
            7.47 * math.exp(-0.133 * sigma**0.55),
            0.02526 * sigma**0.54,
            0.715 * math.exp(-3.59e-4 * sigma),
        )
        by_wind = c * max(wind, 0) ** b * (packing / best) ** -e
        downhill = math.atan2(along_y[y, x], along_x[y, x] + 1e-6)
        slope = -math.hypot(along_x[y, x], along_y[y, x]) * math.cos(downhill + theta)
        by_slope = 5.275 * packing**-0.3 * math.copysign(slope**2, slope)
        sink = w_0 / depth * math.exp(-138 / sigma) * (250 + 1116 * 0.03)
        expected = max(0, heat * (1 + by_wind + by_slope) / sink)
        assert found[y, x, d] == pytest.approx(expected, rel=2e-4, abs=1e-3)


@pytest.mark.parametrize(
    ("function", "updates", "burned", "most_burning"),
    [("perlin", 52, 4049, 1030), ("gaussian", 37, 4096, 1160)],
)
def test_whole_fires_are_those_of_simfire(function, updates, burned, most_burning):
    perlin = {"octaves": 3, "persistence": 0.7, "lacunarity": 2.0, "seed": 827}
    perlin |= {"range_min": 100, "range_max": 300}
    gaussian = {"amplitude": 500, "mu_x": 32, "mu_y": 32, "sigma_x": 16, "sigma_y": 16}
    stock = config(64, 64, start="(32, 32)", runtime="24h")
    functional = {"function": function, "perlin": perlin, "gaussian": gaussian}
    fuel = {"functional": {"function": "chaparral", "chaparral": {"seed": 1113}}}
    stock["terrain"] = {"topography": {"functional": functional}, "fuel": fuel}
    sim, seen, made = Simulator(stock), [], 0
    while sim.active[0]:
        sim.run(1)
        made += 1
        seen.append(int(sim.counts()[0, BURNING]))
    assert (made, int(sim.counts()[0, BURNED]), max(seen)) == (updates, burned, most_burning)


def test_time_is_added_up_as_simfire_does():
    elapsed, expected = 0.0, 0
    while elapsed <= 2:
        elapsed += 0.1
        expected += 1
    assert expected == 20, "twenty times 0.1, added up, is more than 2"
    sim = Simulator(config(9, 9, start=(4, 4), rate=0.1, runtime="2m", max_fire_duration=100))
    sim.run(100)
    assert sim.updates[0] == expected and not sim.active[0]
    again = Simulator(config(9, 9, start=(4, 4), rate=0.1, runtime="2m", max_fire_duration=100))
    again.run(15)
    other = Simulator(config(9, 9, start=(1, 1), rate=0.1, runtime="2m", max_fire_duration=100))
    other.set_state(pickle.loads(pickle.dumps(again.state())))
    other.run(100)
    assert other.updates[0] == expected


def test_past_the_runtime_each_call_makes_what_burns_older_until_it_is_burned():
    sim = Simulator(config(9, 9, start=(4, 4), runtime="1m") | {"wind": {"simple": {"speed": 0}}})
    assert sim.run(50).tolist() == [False], "two updates, and the one that finds the time over"
    assert sim.fire_map[0, 4, 4] == BURNING
    assert sim.run(1).tolist() == [False]
    assert sim.fire_map[0, 4, 4] == BURNING
    assert sim.run(100).tolist() == [False], "the call ends at once, however many updates it asks for"
    assert sim.fire_map[0, 4, 4] == BURNED
    before = sim.fire_map.copy()
    assert sim.run(100).tolist() == [False] and sim.updates[0] == 2
    np.testing.assert_array_equal(sim.fire_map, before)


def test_an_update_longer_than_the_runtime_burns_nothing():
    sim = Simulator(config(9, 9, start=(4, 4), rate=5, runtime="3m"))
    assert sim.run(10).tolist() == [False]
    assert sim.updates[0] == 0 and sim.counts()[0, BURNING] == 1


def test_a_line_on_a_burned_cell_burns_again_beside_flames():
    sim = Simulator(config(1, 6, max_fire_duration=4) | {"wind": {"simple": {"speed": 2}}})
    while sim.fire_map[0, 0, 1] != BURNED:
        sim.run(1)
    assert sim.fire_map[0, 0, 2] == BURNING
    sim.burn_amounts[0, 0, 1] = 1000  # more than a wet line takes in an update
    sim.place_lines(0, [(1, 0, WETLINE)])
    assert sim.counts()[0, WETLINE] == 1
    sim.run(1)
    assert sim.fire_map[0, 0, 1] == BURNING


def test_lines_on_burning_cells_again_and_again_stay_in_their_fire():
    sim = Simulator(
        config(6, 6, start=(2, 2), max_fire_duration=500) | {"mitigation": {"ros_attenuation": True}}, 2
    )
    sim.w_0, sim.delta = np.full((6, 6), 1.0), np.full((6, 6), 6.0)  # fast enough to cross wet lines at once
    sim.wind_speed = np.full((6, 6), 4000.0)
    alone = Simulator(sim.settings)
    for name in ("w_0", "delta", "wind_speed"):
        setattr(alone, name, getattr(sim, name))
    reference = Reference(sim)
    for _ in range(12):
        ys, xs = np.nonzero(reference.fire_map == BURNING)
        reference.fire_map[ys, xs] = WETLINE
        sim.place(np.zeros(len(xs), int), xs, ys, np.full(len(xs), WETLINE))
        for fires in (sim, reference, alone):
            fires.run(1)
        np.testing.assert_array_equal(sim.fire_map[0], reference.fire_map)
        np.testing.assert_array_equal(sim.fire_map[1], alone.fire_map[0])
        np.testing.assert_array_equal(sim.burn_amounts[1], alone.burn_amounts[0])
    length = len(reference.burning)
    assert length > 2 * 36, "the list outgrew the two maps' worth it begins with"
    assert sim.engine.fires.cells[0, :length].tolist() == [y * 6 + x for y, x, _ in reference.burning]
    fresh = Simulator(sim.settings, 2)
    fresh.set_state(pickle.loads(pickle.dumps(sim.state())))
    sim.run(3), fresh.run(3), reference.run(3)
    np.testing.assert_array_equal(fresh.fire_map, sim.fire_map)
    np.testing.assert_array_equal(fresh.fire_map[0], reference.fire_map)
    small = Simulator(sim.settings, 2)
    fresh.set_state(small.state())
    fresh.run(2), small.run(2)
    np.testing.assert_array_equal(fresh.fire_map, small.fire_map)


def test_lines_of_unknown_kind_are_left_out_with_a_warning():
    sim = Simulator(config(6, 6))
    with pytest.warns(UserWarning, match=r"unknown kind \[7, 'moat'\].*fireline 3"):
        assert sim.place_lines(0, [(1, 1, 7), (2, 2, "moat"), (3, 3, "wetline"), (4, 4, FIRELINE)]) == 2
    assert sim.counts()[0].tolist() == [33, 1, 0, 1, 0, 1]
    with pytest.warns(UserWarning, match=r"unknown kind \[9\]"):
        placed = sim.place(np.zeros(2, int), np.array([99, 5]), np.array([0, 5]), np.array([9, SCRATCHLINE]))
    assert placed.tolist() == [False, True] and sim.fire_map[0, 5, 5] == SCRATCHLINE
    with pytest.warns(UserWarning):
        assert sim.place_lines(0, [(1, 1, 0)]) == 0
