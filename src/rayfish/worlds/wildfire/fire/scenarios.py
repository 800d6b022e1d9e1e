"""Sets of fires: drawn, simulated once without intervention, filtered, split into training and evaluation.

    fires = ScenarioSet.generate(config, 200, where="50 < steps < 150 and percent_burned > 30")
    train, evaluation = fires.split(64)
    path = evaluation.save("scenarios")
    evaluation = ScenarioSet.load(path, config)

A scenario keeps how many cells were damaged after each update without intervention, so that an environment
which compares itself with that never has to simulate it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rayfish.errors import EnvironmentFault
from rayfish.files import atomic_write, parse_json
from rayfish.worlds.wildfire.fire import layers
from rayfish.worlds.wildfire.fire import settings as settings_
from rayfish.worlds.wildfire.fire.benchmark import Start, begin
from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING
from rayfish.worlds.wildfire.fire.conditions import Condition
from rayfish.worlds.wildfire.fire.layers import Landscape
from rayfish.worlds.wildfire.fire.settings import Settings

if TYPE_CHECKING:
    from rayfish.worlds.wildfire.fire.simulator import Simulator

VERSION = 2
"""Raised whenever the simulator gives other fires for the same settings: sets of before are then refused."""

NAMES = ("steps", "burned", "unburned", "percent_burned", "x", "y", "seed")
"""What a condition on scenarios can speak of."""

_FORMAT = 1
_BATCH = 64
_TRIES = 50
"""How many fires are tried for each one that is asked for, before a condition counts as too strict."""

Config = Mapping[str, Any] | str | Path | Settings | None


class ScenarioFault(EnvironmentFault):
    """A set of scenarios cannot be made or used."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """One fire and what it does without intervention."""

    seed: int  # of the landscape; 0 where all fires of the set burn on the same one
    ignitions: tuple[tuple[int, int], ...]  # cells (column, row) it starts with
    cells: int  # cells of the map
    # cells burning or burned after each update, int32 [steps + 1]; the first is the start
    damage: NDArray[np.int32]

    @property
    def steps(self) -> int:
        """Updates until the fire is out."""
        return len(self.damage) - 1

    @property
    def burned(self) -> int:
        """Cells that burn in the end."""
        return int(self.damage[-1])

    @property
    def key(self) -> str:
        """A hash of what makes the fire: landscape and start."""
        return hashlib.sha256(json.dumps([self.seed, sorted(self.ignitions)]).encode()).hexdigest()

    @property
    def embers(self) -> int:
        """The seed of the flight of embers, where they fly: a fire of a set is always the same."""
        return embers_of(self.seed, self.ignitions)

    def figures(self) -> dict[str, float]:
        """What conditions speak of, by name."""
        x, y = self.ignitions[0]
        percent = 100 * self.burned / self.cells
        found = (self.steps, self.burned, self.cells - self.burned, percent, x, y, self.seed)
        return dict(zip(NAMES, found, strict=True))


@dataclass(frozen=True, eq=False)
class ScenarioSet(Sequence[Scenario]):
    """Fires of the same settings."""

    settings: Settings  # of the wildfire
    scenarios: tuple[Scenario, ...]  # the fires

    @classmethod
    def generate(cls, config: Config, count: int, *, seed: int = 0, where: str | None = None) -> ScenarioSet:
        """Draws fires and burns each once; the same arguments give the same set, and a larger count begins
        with the fires of a smaller one.

        :param config: as the simulator takes it; fires start at random, `several` if it says so
        :param count: how many different fires
        :param seed: of landscapes and starts
        :param where: a condition they must meet, like "50 < steps < 150 and percent_burned > 30"
        :raises ScenarioFault: too few fires meet it, or the map has too few cells to start from
        """
        if count < 1:
            raise ScenarioFault(f"a set of {count} fires", "ask for at least one")
        settings = settings_.read(config)
        condition = None if where is None else Condition(where, NAMES)
        found: dict[str, Scenario] = {}
        tried = 0
        burner = _Burner(settings, min(_BATCH, count))
        while len(found) < count and tried < _TRIES * count:
            numbers = range(tried, tried + burner.size)
            tried = numbers.stop
            for scenario in burner.burn(seed, numbers):
                if condition is None or condition.holds(scenario.figures()):
                    found.setdefault(scenario.key, scenario)
        if len(found) < count:
            raise ScenarioFault(
                f"only {len(found)} different fires of {tried} tried "
                + (f"meet {where!r}" if where else f"were found, {count} are asked for"),
                "loosen the condition or ask for fewer fires" if where else "ask for fewer fires",
            )
        return cls(settings, tuple(found.values())[:count])

    @classmethod
    def kept(
        cls, folder: str | Path, config: Config, count: int, *, seed: int = 0, where: str | None = None
    ) -> ScenarioSet:
        """As `generate`, but from `folder` when it was made before, and kept there when not."""
        settings = settings_.read(config)
        asked = hashlib.sha256(json.dumps([count, seed, where]).encode()).hexdigest()
        path = _path(folder, f"fires-{asked[:8]}", settings)
        if path.is_file():
            return cls.load(path, settings)
        made = cls.generate(settings, count, seed=seed, where=where)
        made.save(folder, f"fires-{asked[:8]}")
        return made

    @classmethod
    def load(cls, path: str | Path, config: Config) -> ScenarioSet:
        """A set kept before, for the settings it was made with.

        :raises ScenarioFault: no such file, a damaged one, or a set of other settings
        """
        settings, path = settings_.read(config), Path(path).expanduser()
        if not path.is_file():
            raise ScenarioFault(f"there is no set of scenarios {path}", "make it by ScenarioSet.generate")
        header, lines = _parts(path)
        if header["settings"] != settings_hash(settings):
            raise ScenarioFault(
                f"the scenarios in {path.name} were made for other settings "
                f"({header['settings'][:12]}, these are {settings_hash(settings)[:12]})",
                "use the settings they were made with, or make another set",
            )
        rows, columns = settings.area.screen_size
        return cls(settings, tuple(_scenario(line, rows * columns) for line in lines))

    def save(self, folder: str | Path, name: str = "fires") -> Path:
        """Writes the set to `folder`, under `name` and a hash of its settings; gives the file."""
        path = _path(folder, name, self.settings)
        rows = [
            {"seed": one.seed, "ignitions": [*map(list, one.ignitions)], "damage": one.damage.tolist()}
            for one in self.scenarios
        ]
        lines = [json.dumps(row) for row in rows]
        header = {
            "rayfish_scenarios": _FORMAT,
            "settings": settings_hash(self.settings),
            "count": len(lines),
            "content": _content(lines),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, "\n".join([json.dumps(header), *lines]) + "\n")
        return path

    def where(self, condition: str) -> ScenarioSet:
        """The fires that meet a condition over `NAMES`, like "steps > 50 and x < 32"."""
        met = Condition(condition, NAMES)
        return replace(self, scenarios=tuple(one for one in self.scenarios if met.holds(one.figures())))

    def split(self, evaluation: int) -> tuple[ScenarioSet, ScenarioSet]:
        """Fires to train on and `evaluation` fires to evaluate on; none is in both.

        The first are held out: the same ones of a larger set that is drawn in the same way.
        """
        different = {scenario.key: scenario for scenario in self.scenarios}
        if not 0 < evaluation < len(different):
            raise ScenarioFault(
                f"{evaluation} of {len(different)} different fires to evaluate on",
                f"hold out from 1 to {len(different) - 1}" if len(different) > 1 else "generate more fires",
            )
        fires = tuple(different.values())
        return replace(self, scenarios=fires[evaluation:]), replace(self, scenarios=fires[:evaluation])

    def landscape(self, index: int) -> Landscape:
        """What a fire of the set burns on."""
        return layers.of_seed(self.settings, self.scenarios[index].seed)

    @property
    def varied(self) -> bool:
        """Whether each fire has a landscape of its own."""
        return bool(layers.drawn(self.settings))

    def start(self, simulator: Simulator, indices: Sequence[int], fires: Sequence[int] | None = None) -> None:
        """Starts fires of the set in a simulator with the same settings.

        :param indices: which of the set, one for each fire
        :param fires: which of the simulator's; None is all of them
        """
        chosen = range(simulator.num_fires) if fires is None else fires
        starts = [self.start_of(self.scenarios[index]) for index in indices]
        landscapes = [self.landscape(index) if self.varied else None for index in indices]
        begin(simulator, chosen, starts, landscapes)

    def start_of(self, scenario: Scenario) -> Start:
        """All that decides a fire of the set, besides the settings."""
        embers = scenario.embers if self.settings.fire.spotting is not None else 0
        return Start(scenario.seed if self.varied else None, scenario.ignitions, embers)

    def __len__(self) -> int:
        return len(self.scenarios)

    def __iter__(self) -> Iterator[Scenario]:
        return iter(self.scenarios)

    def __getitem__(self, index: Any) -> Any:
        found = self.scenarios[index]
        return replace(self, scenarios=found) if isinstance(index, slice) else found


def settings_hash(settings: Settings) -> str:
    """A hash of the settings that decide what a fire does without intervention, and of the version."""
    terrain, fire, simulation = settings.terrain, settings.fire, settings.simulation
    parts = [
        VERSION,
        settings.area,
        (simulation.update_rate, simulation.runtime, simulation.physics),
        # A map counts by its content, not by its place on the disk.
        replace(
            terrain, topography=replace(terrain.topography, path=None), fuel=replace(terrain.fuel, path=None)
        ),
        (fire.max_fire_duration, fire.diagonal_spread, fire.spotting, _start_kind(settings)),
        settings.environment,
        settings.wind,
        layers.drawn(settings),
    ]
    return settings_.digest(parts)


def embers_of(seed: int, ignitions: Sequence[tuple[int, int]]) -> int:
    """A seed for embers that depends on the fire alone; never 0."""
    digest = hashlib.sha256(json.dumps(["embers", seed, sorted(ignitions)]).encode()).digest()
    return 1 + int.from_bytes(digest[:4], "big") // 2


def _start_kind(settings: Settings) -> tuple[Any, ...]:
    """How the starts of a set are drawn."""
    position = settings.fire.fire_initial_position
    several = position.several
    return ("several", several.count, several.spacing) if position.type == "several" else ("random",)


def drawn_start(settings: Settings, rng: np.random.Generator) -> list[tuple[int, int]]:
    """A start drawn from the set that `fire.fire_initial_position.scenario.path` names."""
    path = settings.fire.fire_initial_position.scenario.path
    if path is None:
        raise ScenarioFault(
            "fire.fire_initial_position.type is scenario, and scenario.path is not set",
            "set it to a file that ScenarioSet.save wrote",
        )
    if layers.drawn(settings):
        raise ScenarioFault(
            f"fires start from {Path(path).name}, and {', '.join(layers.drawn(settings))} is drawn as well",
            "start them by ScenarioSet.start, which brings the landscapes too",
        )
    stamp = Path(path).expanduser().stat().st_mtime_ns if Path(path).expanduser().is_file() else 0
    fires = _loaded(str(path), stamp, settings)
    return list(fires[int(rng.integers(len(fires)))].ignitions)


@lru_cache(maxsize=8)
def _loaded(path: str, stamp: int, settings: Settings) -> ScenarioSet:
    return ScenarioSet.load(path, settings)


class _Burner:
    """Draws fires and simulates them in batches, without intervention."""

    def __init__(self, settings: Settings, size: int) -> None:
        from rayfish.worlds.wildfire.fire.simulator import Simulator

        self.settings, self.size = _drawing(settings), size
        self._shared = None if layers.drawn(settings) else layers.of_seed(settings, 0)
        self._simulator = Simulator(self.settings, num_fires=size, seed=0)

    def burn(self, seed: int, numbers: Sequence[int]) -> Iterator[Scenario]:
        """The scenarios with these numbers among all that `seed` gives; as many as the batch has fires."""
        simulator = self._simulator
        fires = [self._draw(seed, number) for number in numbers]
        flying = self.settings.fire.spotting is not None
        starts = [
            Start(own if self._shared is None else None, tuple(cells), embers_of(own, cells) if flying else 0)
            for own, _, cells in fires
        ]
        landscapes = [landscape if self._shared is None else None for _, landscape, _ in fires]
        begin(simulator, range(self.size), starts, landscapes)
        curves = [self._damaged()]
        while simulator.active.any():
            simulator.run(1)
            curves.append(self._damaged())
        damage, updates = np.stack(curves, axis=1), simulator.updates
        for fire, (own, landscape, start) in enumerate(fires):
            yield Scenario(
                own, tuple(start), landscape.fuel.size, damage[fire, : int(updates[fire]) + 1].copy()
            )

    def _draw(self, seed: int, number: int) -> tuple[int, Landscape, list[tuple[int, int]]]:
        """Landscape's seed, landscape and start of one fire; each number has its own chance."""
        rng = np.random.default_rng((seed, number))
        if self._shared is not None:
            return 0, self._shared, layers.ignition(self.settings, self._shared, rng)
        own = int(rng.integers(1, 1 << 31))
        landscape = layers.of_seed(self.settings, own)
        return own, landscape, layers.ignition(self.settings, landscape, rng)

    def _damaged(self) -> NDArray[np.int32]:
        counts = self._simulator.counts()
        return (counts[:, BURNING] + counts[:, BURNED]).astype(np.int32)


def _drawing(settings: Settings) -> Settings:
    """With a start that is drawn each time."""
    position = settings.fire.fire_initial_position
    kind = "several" if position.type == "several" else "random"
    drawn = (*(name for name in settings.randomize or () if name != "ignition"), "ignition")
    fire = replace(settings.fire, fire_initial_position=replace(position, type=kind))
    return replace(settings, fire=fire, randomize=drawn)


def _path(folder: str | Path, name: str, settings: Settings) -> Path:
    return Path(folder).expanduser() / f"{name}-{settings_hash(settings)[:16]}.jsonl"


def _content(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _scenario(line: str, cells: int) -> Scenario:
    row = json.loads(line)
    ignitions = tuple((int(x), int(y)) for x, y in row["ignitions"])
    return Scenario(row["seed"], ignitions, cells, np.array(row["damage"], dtype=np.int32))


def _parts(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The header and the lines of a file, as they were written."""
    try:
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        header = parse_json(first)
        known = header["rayfish_scenarios"] == _FORMAT
        whole = len(lines) == header["count"] and _content(lines) == header["content"]
    except (ValueError, KeyError, TypeError):
        raise ScenarioFault(
            f"{path} is no set of scenarios", "give a file that ScenarioSet.save wrote"
        ) from None
    if not known:
        raise ScenarioFault(
            f"{path.name} has format {header['rayfish_scenarios']!r}, this Rayfish reads {_FORMAT}",
            "make the set again",
        )
    if not whole:
        raise ScenarioFault(f"{path.name} is damaged: it is not as it was written", "make the set again")
    return header, lines
