"""Which fire an episode gets: drawn from the episode's own chance, or from a stored set of scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_dir

from rayfish.errors import EnvironmentFault, suggest
from rayfish.worlds.wildfire.env.options import Options
from rayfish.worlds.wildfire.fire import layers
from rayfish.worlds.wildfire.fire.benchmark import Start
from rayfish.worlds.wildfire.fire.layers import Landscape
from rayfish.worlds.wildfire.fire.scenarios import ScenarioSet, settings_hash
from rayfish.worlds.wildfire.fire.settings import Settings

_SEEDS = 1 << 31


class Starts:
    """The chance of `number` episodes, and the fires that come of it."""

    def __init__(self, options: Options, settings: Settings, number: int) -> None:
        self.settings, self.number = settings, number
        self.varied = bool(layers.drawn(settings))
        self.rngs = [np.random.default_rng() for _ in range(number)]
        self.scenarios = _scenario_set(options, settings)
        self._same, self._in_turn = options.deterministic, options.scenario_order == "in_turn"
        self._turns = np.arange(number)

    def seed(self, n: int, seed: int) -> None:
        """An episode's chance begins again; fires in turn go on from the one that the seed says."""
        self.rngs[n] = np.random.default_rng(seed)
        self._turns[n] = seed

    def draw(self, n: int, shared: Landscape) -> Start:
        """How the next fire of an episode starts.

        :param shared: the landscape of episodes that have none of their own
        """
        rng, settings = self.rngs[n], self.settings
        if self.scenarios is not None:
            return self.scenarios.start_of(self.scenarios[self._next(n)])
        if self._same:
            rng = np.random.default_rng(0)
        seed = int(rng.integers(1, _SEEDS)) if self.varied else None
        ground = shared if seed is None else layers.of_seed(settings, seed)
        drawn = "ignition" in (settings.randomize or ())
        cells = layers.ignition(settings, ground, rng if drawn else np.random.default_rng(0))
        embers = int(rng.integers(1, _SEEDS)) if settings.fire.spotting is not None else 0
        return Start(seed, tuple(cells), embers)

    def landscape(self, start: Start) -> Landscape | None:
        """What a fire burns on; None where all share one."""
        return None if start.seed is None else layers.of_seed(self.settings, start.seed)

    def _next(self, n: int) -> int:
        assert self.scenarios is not None
        if self._same:
            return 0
        if not self._in_turn:
            return int(self.rngs[n].integers(len(self.scenarios)))
        turn = int(self._turns[n]) % len(self.scenarios)
        self._turns[n] += self.number
        return turn

    def known(self) -> list[tuple[Start, np.ndarray]]:
        """Of stored fires how they go without agents, as far as nothing but their start decides it."""
        settings = self.settings
        if self.scenarios is None or settings.simulation.physics != "behave" or settings.fire.spotting:
            return []
        return [(self.scenarios.start_of(one), one.damage) for one in self.scenarios]


def _scenario_set(options: Options, settings: Settings) -> ScenarioSet | None:
    given = options.scenarios
    if given is None:
        return None
    if isinstance(given, ScenarioSet):
        if settings_hash(given.settings) != settings_hash(settings):
            raise EnvironmentFault(
                "the scenarios were made for other settings than the environment has",
                "give both the same configuration, or make another set",
            )
        return given
    if isinstance(given, str | Path):
        return ScenarioSet.load(given, settings)
    if isinstance(given, Mapping):
        return _drawn_set(given, settings)
    raise EnvironmentFault(
        f"scenarios is a {type(given).__name__}",
        "give a ScenarioSet, the path of one that was saved, or {count: 1024, part: train}",
    )


_DRAWN = {"count": 1024, "seed": 0, "where": None, "evaluation": 64, "part": "train"}
_PARTS = ("train", "evaluation", "all")


def _drawn_set(given: Mapping[str, Any], settings: Settings) -> ScenarioSet:
    """A set by its recipe; made once and kept in the user's cache, under a hash of all that decides it."""
    for name in given:
        if name not in _DRAWN:
            raise EnvironmentFault(f"scenarios has no key {name!r}", suggest(str(name), list(_DRAWN)))
    recipe = _DRAWN | dict(given)
    for name in ("count", "seed", "evaluation"):
        if not isinstance(recipe[name], int) or isinstance(recipe[name], bool) or recipe[name] < 0:
            raise EnvironmentFault(f"scenarios.{name} is {recipe[name]!r}", "give a whole number")
    if recipe["part"] not in _PARTS:
        raise EnvironmentFault(f"scenarios.part is {recipe['part']!r}", suggest(str(recipe["part"]), _PARTS))
    key = (settings_hash(settings), recipe["count"], recipe["seed"], recipe["where"])
    if key not in _MADE:
        folder = Path(user_cache_dir("rayfish")) / "wildfire"
        _MADE[key] = ScenarioSet.kept(
            folder, settings, recipe["count"], seed=recipe["seed"], where=recipe["where"]
        )
    if recipe["part"] == "all":
        return _MADE[key]
    train, evaluation = _MADE[key].split(recipe["evaluation"])
    return train if recipe["part"] == "train" else evaluation


_MADE: dict[tuple[Any, ...], ScenarioSet] = {}  # sets that this process has made or read
