"""What a wildfire environment can be asked for: SimHarness's names, with defaults that suit learning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rayfish.errors import EnvironmentFault, suggest
from rayfish.legacy import simharness
from rayfish.worlds.wildfire.fire.codes import BURNED, LINES
from rayfish.worlds.wildfire.fire.settings import Settings

MOVES = {"none": (0, 0), "up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
"""Movements by name: columns and rows that an agent goes on."""

INTERACTIONS = {"none": 0, **LINES}
"""Interactions by name: the code that an agent leaves on its cell."""

BOUNDS = {
    "w_0": (0.0, 1.0),
    "sigma": (1.0, 3500.0),
    "delta": (0.2, 6.0),
    "M_x": (0.12, 1.0),
    "elevation": (-282.0, 11_000.0),
    "wind_speed": (0.0, 250.0),
    "wind_direction": (0.0, 360.0),
}
"""Layers that a grid observation may show, with SimFire's bounds: lb/ft^2, 1/ft, ft, mph, degrees."""

FIRE_MAPS = ("fire_map", "fire_map_with_agents")
BENCH_MAPS = ("bench_fire_map", "bench_fire_map_final")
ATTRIBUTES = (*FIRE_MAPS, *BOUNDS, *BENCH_MAPS)
REWARDS = ("saved", "simple", "area_saved", "area_saved_v2")
RESOURCES = ("hand_crew", "dozer", "engine")


def _landscape(times: int) -> dict[str, Any]:
    """A map of 32 cells a side and 160 minutes, or so many times both, with hills and patches to match.

    The fire gets as far on all of them: without intervention, two thirds of the map burn within the runtime.
    """
    hills = {"range_max": 160 * times, "scale": 24 * times}
    return {
        "area": {"screen_size": [32 * times, 32 * times], "pixel_scale": 50},
        "simulation": {"update_rate": 4, "runtime": f"{160 * times}m"},
        "mitigation": {"ros_attenuation": False},
        "terrain": {
            "topography": {"functional": {"function": "perlin", "perlin": hills}},
            "fuel": {
                "functional": {"function": "patches", "patches": {"models": [2, 5, 6], "scale": 12 * times}}
            },
        },
        "environment": {"moisture": 0.08},
        "wind": {"function": "simple", "simple": {"speed": 3, "direction": 70}},
        "fire": {"fire_initial_position": {"type": "random"}, "max_fire_duration": 4},
    }


SMALL = _landscape(1)
"""A small landscape on which one agent can do much, and doing nothing loses most of it."""

LANDSCAPES: dict[str, dict[str, Any]] = {"small": SMALL, "medium": _landscape(2), "large": _landscape(4)}
"""Configurations of the simulator that have a name: maps of 32, 64 and 128 cells a side."""


@dataclass(frozen=True)
class Options:
    """The keyword arguments of the wildfire environments."""

    # the simulator's configuration: a mapping, a YAML file, settings read before, the name of a landscape
    # (`small`, `medium`, `large`), or None for the simulator's defaults
    simulation: Mapping[str, Any] | str | Path | Settings | None = None
    physics: str | None = None  # `behave` or `simfire`, in place of the configuration's
    # what agents can do with their feet, of none, up, down, left, right
    movements: Sequence[str] = tuple(MOVES)
    # what they can leave on their cell, of none, fireline, scratchline, wetline
    interactions: Sequence[str] = ("none", "fireline")
    # the channels of a grid observation, in their order
    attributes: Sequence[str] = ("fire_map", "elevation", "w_0", "sigma", "delta", "M_x")
    # those of them that are scaled to 0..1 by their bounds
    normalized_attributes: Sequence[str] = ("elevation",)
    agent_speed: int = 4  # steps of the agents per update of the fire
    deterministic: bool = False  # every episode has the same fire
    num_agents: int = 1  # agents on the map
    # `automatic` draws a start on unburned ground for every episode, `manual` takes
    # `initial_agent_positions`; None is manual where these are given
    agent_initialization_method: str | None = None
    initial_agent_positions: Sequence[Sequence[int]] | None = None  # (x, y) of each agent
    # `Discrete`: one number for movement and interaction; `MultiDiscrete`: one each
    action_space_cls: str = "Discrete"
    # `local`: what an agent sees around it, a coarse map and some figures, flat; `grid`: SimHarness's
    # channels [H, W, C], and the default where some of them are named
    observation: str = "local"
    crop: int = 11  # cells across what a local observation shows around the agent; odd
    coarse: int = 8  # blocks across the coarse map of a local observation
    # saved, simple, area_saved, area_saved_v2, a function, or where to import one from
    reward: str | Callable[..., Any] = "saved"
    # an agent on a burning cell is lost, and does nothing for the rest of the episode; steps in or beside
    # flames are counted in any case
    endangered: bool = False
    # a line takes the time that a hand_crew, dozer or engine needs in the fuel of its cell; None: a line is
    # there at once
    production: str | None = None
    max_steps: int | None = None  # an episode is cut off after so many steps
    # a set of fires to play in place of drawn ones: itself, the path of a stored one, or how to draw it:
    # `{count: 1024, seed: 0, where: "percent_burned > 30", evaluation: 64, part: train}`, where `part` is
    # `train`, `evaluation` (as many as `evaluation` says, never among the others) or `all`
    scenarios: Any = None
    scenario_order: str = "random"  # `random`, or `in_turn`: environment i of N plays the fires i, i + N, ...
    benchmark: bool = True  # every fire is also simulated without agents, to compare with

    def __post_init__(self) -> None:
        for name, known in _SUBSETS.items():
            given = getattr(self, name)
            if isinstance(given, str) or (not given and name != "normalized_attributes"):
                raise EnvironmentFault(f"{name} is {given!r}", f"give a list of {', '.join(known)}")
            for value in given:
                _one_of(name, value, known)
            if len(set(given)) < len(given):
                raise EnvironmentFault(f"{name} has something twice: {list(given)}", "name each once")
            object.__setattr__(self, name, tuple(given))
        object.__setattr__(self, "action_space_cls", _last_name(self.action_space_cls))
        if isinstance(self.reward, str) and _last_name(self.reward) in _SIMHARNESS_REWARDS:
            object.__setattr__(self, "reward", _SIMHARNESS_REWARDS[_last_name(self.reward)])
        for name, choices in _CHOICES.items():
            _one_of(name, getattr(self, name), choices)
        for name in ("agent_speed", "num_agents", "crop", "coarse"):
            _at_least_one(name, getattr(self, name))
        for name in ("deterministic", "endangered", "benchmark"):
            if not isinstance(getattr(self, name), bool):
                raise EnvironmentFault(f"{name} is {getattr(self, name)!r}", "give true or false")
        if self.max_steps is not None:
            _at_least_one("max_steps", self.max_steps)
        if self.crop % 2 == 0:
            raise EnvironmentFault(f"crop is {self.crop}, which has no middle", f"write crop={self.crop + 1}")
        if isinstance(self.reward, str) and ":" not in self.reward and "." not in self.reward:
            _one_of("reward", self.reward, REWARDS)
        self._check_positions()
        self._check_benchmark()

    @property
    def first_agent_id(self) -> int:
        """The number of the first agent on a fire map: as SimHarness, above the codes agents can leave."""
        return max(BURNED, *(INTERACTIONS[name] for name in self.interactions)) + 1

    @property
    def landscape(self) -> Any:
        """The simulator's configuration, a named landscape looked up."""
        given = self.simulation
        if not isinstance(given, str) or given in LANDSCAPES:
            return LANDSCAPES[given] if isinstance(given, str) else given
        if not Path(given).suffix and not Path(given).expanduser().exists():
            raise EnvironmentFault(f"there is no landscape {given!r}", suggest(given, list(LANDSCAPES)))
        return given

    def _check_positions(self) -> None:
        given = self.initial_agent_positions
        if self.agent_initialization_method is None:
            method = "automatic" if given is None else "manual"
            object.__setattr__(self, "agent_initialization_method", method)
        if self.agent_initialization_method == "automatic":
            return
        fits = isinstance(given, Sequence) and len(given) == self.num_agents and all(map(_is_place, given))
        if not fits:
            raise EnvironmentFault(
                f"initial_agent_positions is {given!r} for num_agents={self.num_agents}",
                "give one [x, y] for each agent, or set agent_initialization_method=automatic",
            )

    def _check_benchmark(self) -> None:
        if self.benchmark:
            return
        wants = [name for name in self.attributes if name in BENCH_MAPS and self.observation == "grid"]
        if self.reward in REWARDS and self.reward != "simple":
            wants.append(f"reward={self.reward}")
        if wants:
            raise EnvironmentFault(f"{wants[0]} compares with the benchmark fire", "leave benchmark=true")


_SUBSETS = {
    "movements": tuple(MOVES),
    "interactions": tuple(INTERACTIONS),
    "attributes": ATTRIBUTES,
    "normalized_attributes": ATTRIBUTES,
}
_CHOICES: dict[str, tuple[str | None, ...]] = {
    "physics": (None, "behave", "simfire"),
    "agent_initialization_method": (None, "automatic", "manual"),
    "action_space_cls": ("Discrete", "MultiDiscrete"),
    "observation": ("local", "grid"),
    "production": (None, *RESOURCES),
    "scenario_order": ("random", "in_turn"),
}


_SIMHARNESS_REWARDS = {
    "SimpleReward": "simple",
    "AreaSavedPropReward": "area_saved",
    "AreaSavedPropRewardV2": "area_saved_v2",
}
"""SimHarness's classes of rewards, by their names here."""


_CONSTRUCTOR = ("sim", "benchmark_sim", "harness_analytics_partial", "reward_cls_partial", "in_evaluation")
"""What SimHarness's environments took and these do not."""


def read(given: Mapping[str, Any]) -> Options:
    """Options from keyword arguments.

    :raises EnvironmentFault: an unknown name, or a value that does not fit
    """
    known = [field.name for field in fields(Options)]
    if any(name in _CONSTRUCTOR for name in given) or isinstance(given.get("action_space_cls"), Mapping):
        given, _ = simharness.env_config(given)
    for name in given:
        if name not in known:
            raise EnvironmentFault(f"the wildfire environment has no option {name!r}", suggest(name, known))
    channels = [name for name in ("attributes", "normalized_attributes") if name in given]
    if channels and given.get("observation", "grid") == "local":
        raise EnvironmentFault(
            f"{channels[0]} are channels of a grid observation, and observation is local",
            f"set observation=grid, or leave {' and '.join(channels)} out",
        )
    return Options(**{**({"observation": "grid"} if channels else {}), **given})


def _one_of(name: str, value: Any, known: Iterable[str | None]) -> None:
    names = [choice for choice in known if choice is not None]
    if value not in known:
        raise EnvironmentFault(f"{name} has {value!r}", suggest(str(value), names))


def _last_name(given: Any) -> Any:
    """Discrete, of a class or of a path that ends in it."""
    name = getattr(given, "__name__", given)
    return name.rsplit(".", 1)[-1] if isinstance(name, str) else given


def _is_place(given: Any) -> bool:
    """Whether it is a column and a row."""
    return (
        isinstance(given, Sequence)
        and len(given) == 2
        and all(isinstance(part, int) and not isinstance(part, bool) for part in given)
    )


def _at_least_one(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise EnvironmentFault(f"{name} is {value!r}", "give a whole number from 1 on")
