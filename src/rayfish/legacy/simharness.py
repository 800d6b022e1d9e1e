"""SimHarness's environments by their class paths, and what its constructor took, as the wildfire's options.

`simharness2.environments.ReactiveHarness` means `rayfish/Wildfire-v0`; the package itself, which is made for
Python 3.9 and Ray 2.6, is not needed. Experiments are translated as they are composed; a name given in Python
is resolved by `env_names`, and its arguments by the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayfish.errors import EnvironmentFault, did_you_mean
from rayfish.experiment import tree

PACKAGE = "simharness2"
SINGLE, PARALLEL = "rayfish/Wildfire-v0", "rayfish.worlds.wildfire.env.agents:WildfireParallel"

_CLASSES = {
    "FireHarness": SINGLE,
    "ReactiveHarness": SINGLE,
    "ReactiveDiscreteHarness": SINGLE,
    "DamageAwareReactiveHarness": SINGLE,
    "MultiAgentAsTupleActionReactiveHarness": SINGLE,
    "MultiAgentFireHarness": PARALLEL,
    "MultiAgentReactiveHarness": PARALLEL,
}
_REAL = ("topography", "fuel")
_FROM_DATA = ("operational", "historical")


def is_harness(name: Any) -> bool:
    """Whether an environment's name is the path of a class of SimHarness."""
    return isinstance(name, str) and name.strip().replace(":", ".").startswith(f"{PACKAGE}.")


def todays_name(name: str) -> str:
    """The environment here that a class of SimHarness is.

    :raises EnvironmentFault: there is none for it
    """
    last = name.strip().replace(":", ".").rpartition(".")[2]
    if last not in _CLASSES:
        close = did_you_mean(last, _CLASSES) or list(_CLASSES)
        raise EnvironmentFault(
            f"{name!r}: of SimHarness's environments there is no {last!r} here",
            f"write environment.env={PACKAGE}.environments.{close[0]}, or one of {', '.join(_CLASSES)}",
        )
    return _CLASSES[last]


def adapt(config: dict[str, Any], origins: dict[str, str], notes: list[str]) -> None:
    """Translate the environments of an experiment, that of its evaluation too; one line for each remark."""
    if not is_harness(tree.get(config, "environment.env")):
        return
    remarks: dict[str, None] = {}
    for place in ("environment", "evaluation.evaluation_config"):
        name = tree.get(config, f"{place}.env")
        if is_harness(name):
            today = todays_name(name)
            tree.put(config, f"{place}.env", today)
            remarks[f"{name} is today's {today}"] = None
        given = tree.get(config, f"{place}.env_config")
        if isinstance(given, Mapping):
            found, more = env_config(given)
            tree.put(config, f"{place}.env_config", found)
            remarks.update(dict.fromkeys(more))
            _move_origins(origins, f"{place}.env_config", found)
    if tree.get(config, "simulation.fire_initial_position") is not None:
        remarks[
            "simulation.fire_initial_position: ignored, sets of fires are drawn by "
            "environment.env_config.scenarios (docs/wildfire.md)"
        ] = None
    notes += remarks


def env_config(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """SimHarness's constructor arguments as options of the wildfire; a line on each without effect."""
    found = {key: _plain(value) for key, value in given.items()}
    notes: list[str] = []
    if "sim" in found:
        _take_sim(found, notes)
    if found.pop("benchmark_sim", None) is not None:
        found.setdefault("benchmark", True)
    if isinstance(found.get("action_space_cls"), Mapping):
        found["action_space_cls"] = found["action_space_cls"].get("path")
    if "reward_cls_partial" in found:
        _take_reward(found, notes)
    for key, why in _WITHOUT_EFFECT.items():
        if key in found:
            del found[key]
            notes.append(f"env_config.{key}: ignored, {why}")
    return found, notes


_WITHOUT_EFFECT = {
    "harness_analytics_partial": "an episode's figures are env/ metrics",
    "in_evaluation": "`rayfish view` draws an evaluation episode",
}


def _take_sim(found: dict[str, Any], notes: list[str]) -> None:
    """`sim: {_target_: ...FireSimulation, config: {config_dict | filename}}` as `simulation`."""
    sim = found["sim"]
    config = sim.get("config") if isinstance(sim, Mapping) else None
    if not isinstance(config, Mapping):
        return
    simulation = config.get("config_dict") or config.get("filename")
    del found["sim"]
    if isinstance(simulation, Mapping):
        simulation = dict(simulation)
        _without_network(simulation, notes)
    found["simulation"] = simulation
    if "physics" not in found:
        found["physics"] = "simfire"
        notes.append(
            "env_config.sim burns by SimFire's physics, cell for cell; "
            "environment.env_config.physics=behave burns as Behave does"
        )


def _without_network(simulation: dict[str, Any], notes: list[str]) -> None:
    """Layers that SimFire fetches become the functional ones that the same file describes."""
    terrain = simulation.get("terrain")
    if not isinstance(terrain, Mapping):
        return
    terrain = simulation["terrain"] = dict(terrain)
    fetched = []
    for layer in _REAL:
        section = terrain.get(layer)
        if isinstance(section, Mapping) and section.get("type") in _FROM_DATA and "functional" in section:
            fetched.append(f"{layer}.type={section['type']}")
            terrain[layer] = {**section, "type": "functional"}
    if fetched:
        notes.append(
            f"terrain.{' and '.join(fetched)}: LANDFIRE's data are not fetched, the functional layers of the "
            "same file burn instead; a raster on disk: type=geotiff and type=landfire with path=FILE.tif"
        )


def _take_reward(found: dict[str, Any], notes: list[str]) -> None:
    """`reward_cls_partial: {_target_: ...SimpleReward, _partial_: true}` as `reward`."""
    partial = found["reward_cls_partial"]
    if not isinstance(partial, Mapping):
        return
    del found["reward_cls_partial"]
    found.setdefault("reward", partial.get("_target_"))
    others = [key for key in partial if key not in ("_target_", "_partial_", "_args_")]
    if others:
        notes.append(f"env_config.reward_cls_partial.{others[0]}: ignored, this reward has no such setting")


def _plain(value: Any) -> Any:
    """With `{_target_: builtins.tuple, _args_: [[128, 128]]}` as the list it makes."""
    if isinstance(value, Mapping):
        if value.get("_target_") in ("builtins.tuple", "builtins.list") and value.get("_args_"):
            return [_plain(item) for item in value["_args_"][0]]
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


_MADE_OF = {
    "simulation": "sim",
    "physics": "sim",
    "reward": "reward_cls_partial",
    "benchmark": "benchmark_sim",
}


def _move_origins(origins: dict[str, str], place: str, found: Mapping[str, Any]) -> None:
    """The origins of translated keys: those of what they were made from, the others are dropped."""
    for today, old in _MADE_OF.items():
        below = [where for key, where in origins.items() if key.startswith(f"{place}.{old}")]
        if today in found and below:
            origins.setdefault(f"{place}.{today}", below[0])
    for key in [key for key in origins if key.startswith(f"{place}.")]:
        if tree.get(found, key.removeprefix(f"{place}."), tree.MISSING) is tree.MISSING:
            del origins[key]
