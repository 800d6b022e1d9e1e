"""What a wildfire environment can be asked for: SimHarness's names, with defaults that suit learning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rayfish.envs.old_environments import simharness_env_config
from rayfish.errors import EnvironmentFault, suggest
from rayfish.worlds.wildfire.fire import readers as r
from rayfish.worlds.wildfire.fire.codes import BURNED, LINES
from rayfish.worlds.wildfire.fire.sections import PHYSICS, Settings

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
SIMHARNESS_ATTRIBUTES = ("fire_map", "elevation", "w_0", "sigma", "delta", "M_x")
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


def _some(known: Iterable[str], given: Any, name: str, least: int = 1) -> tuple[str, ...]:
    """Some of the known words, each once, in the order given."""
    if isinstance(given, str) or len(given or ()) < least:
        raise EnvironmentFault(f"{name} is {given!r}", f"give a list of {', '.join(known)}")
    for value in given:
        if value not in known:
            raise EnvironmentFault(f"{name} has {value!r}", suggest(str(value), known))
    if len(set(given)) < len(given):
        raise EnvironmentFault(f"{name} has something twice: {list(given)}", "name each once")
    return tuple(given)


def _last_name(given: Any) -> Any:
    """Discrete, of a class or of a path that ends in it."""
    name = getattr(given, "__name__", given)
    return name.rsplit(".", 1)[-1] if isinstance(name, str) else given


def _action_space(given: Any, name: str) -> Any:
    return r.choice("Discrete", "MultiDiscrete")(_last_name(given), name)


def _reward(given: Any, name: str) -> Any:
    """A function, its import path, or the name of a reward, also of SimHarness's classes."""
    if not isinstance(given, str):
        return given
    found = _SIMHARNESS_REWARDS.get(_last_name(given), given)
    return found if ":" in found or "." in found else r.choice(*REWARDS)(found, name)


_SIMHARNESS_REWARDS = {
    "SimpleReward": "simple",
    "AreaSavedPropReward": "area_saved",
    "AreaSavedPropRewardV2": "area_saved_v2",
}


@dataclass(frozen=True)
class Options:
    """The keyword arguments of the wildfire environments."""

    # the simulator's configuration: a mapping, a YAML file, settings read before, the name of a landscape
    # (`small`, `medium`, `large`), or None for the simulator's defaults
    simulation: Annotated[Mapping[str, Any] | str | Path | Settings | None, r.as_is] = None
    # `behave` or `simfire`, in place of the configuration's
    physics: Annotated[str | None, r.maybe(r.choice(*PHYSICS))] = None
    # what agents can do with their feet, of none, up, down, left, right
    movements: Annotated[Sequence[str], partial(_some, MOVES)] = tuple(MOVES)
    # what they can leave on their cell, of none, fireline, scratchline, wetline
    interactions: Annotated[Sequence[str], partial(_some, INTERACTIONS)] = ("none", "fireline")
    # the channels of a grid observation, in their order
    attributes: Annotated[Sequence[str], partial(_some, ATTRIBUTES)] = SIMHARNESS_ATTRIBUTES
    # those of them that are scaled to 0..1 by their bounds
    normalized_attributes: Annotated[Sequence[str], partial(_some, ATTRIBUTES, least=0)] = ("elevation",)
    agent_speed: r.Count = 4  # steps of the agents per update of the fire
    deterministic: bool = False  # every episode has the same fire
    num_agents: r.Count = 1  # agents on the map
    # `automatic` draws a start on unburned ground for every episode, `manual` takes
    # `initial_agent_positions`; None is manual where these are given
    agent_initialization_method: Annotated[str | None, r.maybe(r.choice("automatic", "manual"))] = None
    # (x, y) of each agent
    initial_agent_positions: Annotated[Sequence[Sequence[int]] | None, r.as_is] = None
    # `Discrete`: one number for movement and interaction; `MultiDiscrete`: one each
    action_space_cls: Annotated[str, _action_space] = "Discrete"
    # `local`: what an agent sees around it, a coarse map and some figures, flat; `grid`: SimHarness's
    # channels [H, W, C], and the default where some of them are named
    observation: Annotated[str, r.choice("local", "grid")] = "local"
    crop: r.Count = 11  # cells across what a local observation shows around the agent; odd
    coarse: r.Count = 8  # blocks across the coarse map of a local observation
    # saved, simple, area_saved, area_saved_v2, a function, or where to import one from
    reward: Annotated[str | Callable[..., Any], _reward] = "saved"
    # an agent on a burning cell is lost, and does nothing for the rest of the episode; steps in or beside
    # flames are counted in any case
    endangered: bool = False
    # a line takes the time that a hand_crew, dozer or engine needs in the fuel of its cell; None: a line is
    # there at once
    production: Annotated[str | None, r.maybe(r.choice(*RESOURCES))] = None
    max_steps: Annotated[int | None, r.maybe(partial(r.whole, low=1))] = None  # cut off after so many steps
    # a set of fires to play in place of drawn ones: itself, the path of a stored one, or how to draw it:
    # `{count: 1024, seed: 0, where: "percent_burned > 30", evaluation: 64, part: train}`, where `part` is
    # `train`, `evaluation` (as many as `evaluation` says, never among the others) or `all`
    scenarios: Any = None
    # `random`, or `in_turn`: environment i of N plays the fires i, i + N, ...
    scenario_order: Annotated[str, r.choice("random", "in_turn")] = "random"
    benchmark: bool = True  # every fire is also simulated without agents, to compare with

    def __post_init__(self) -> None:
        for name, read_one in r.readers_of(Options).items():
            object.__setattr__(self, name, read_one(getattr(self, name), name))
        if self.crop % 2 == 0:
            raise EnvironmentFault(f"crop is {self.crop}, which has no middle", f"write crop={self.crop + 1}")
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


_CONSTRUCTOR = ("sim", "benchmark_sim", "harness_analytics_partial", "reward_cls_partial", "in_evaluation")
"""What SimHarness's environments took and these do not."""


def read(given: Mapping[str, Any]) -> Options:
    """Options from keyword arguments.

    :raises EnvironmentFault: an unknown name, or a value that does not fit
    """
    known = [field.name for field in fields(Options)]
    if any(name in _CONSTRUCTOR for name in given) or isinstance(given.get("action_space_cls"), Mapping):
        given, _ = simharness_env_config(given)
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


def _is_place(given: Any) -> bool:
    """Whether it is a column and a row."""
    return (
        isinstance(given, Sequence)
        and len(given) == 2
        and all(isinstance(part, int) and not isinstance(part, bool) for part in given)
    )
