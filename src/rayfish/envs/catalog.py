"""The environments that exist here, and what to install or write for those that do not."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id

from rayfish.envs.old_environments import closest_env, needs_ale
from rayfish.errors import EnvironmentFault, did_you_mean

ENTRY_POINT_GROUP = "rayfish.envs"

# What registers ids only after it has been imported (Gymnasium 1.0 dropped the plug-in mechanism):
# starts of the ids, module to import, what to pip install.
PROVIDERS: tuple[tuple[str, str, str], ...] = (
    ("rayfish/", "rayfish.worlds.wildfire", "rayfish"),
    ("ALE/", "ale_py", "'rayfish[atari]'"),
    ("MiniGrid- BabyAI-", "minigrid", "minigrid"),
    ("MiniWorld-", "miniworld", "miniworld"),
    ("highway- intersection- parking-", "highway_env", "highway-env"),
    ("Fetch Hand PointMaze_ AntMaze_ Adroit FrankaKitchen-", "gymnasium_robotics", "gymnasium-robotics"),
    ("dm_control/", "shimmy", "'shimmy[dm-control]'"),
    ("Meta-World/", "metaworld", "metaworld"),
    ("procgen", "procgen", "procgen"),
)

# Packages behind Gymnasium's own ids: start of the entry point, modules to
# look for, what to install, title in a list.
EXTRAS: tuple[tuple[str, str, str, str], ...] = (
    ("gymnasium.envs.classic_control", "", "", "Classic control"),
    ("gymnasium.envs.toy_text", "", "", "Toy text"),
    ("gymnasium.envs.box2d", "Box2D pygame", "'rayfish[box2d]'", "Box2D"),
    ("gymnasium.envs.mujoco", "mujoco imageio", "'rayfish[mujoco]'", "MuJoCo"),
    ("gymnasium.envs.phys2d", "jax flax array_api_compat", "'rayfish[jax]'", "Classic control in JAX"),
    ("gymnasium.envs.tabular", "jax flax array_api_compat", "'rayfish[jax]'", "Tabular in JAX"),
)

_ID = re.compile(r"^(?:[\w:-]+/)?[\w:.-]+-v\d+$")


def looks_like_id(name: str) -> bool:
    """Whether `name` has the shape of a versioned Gymnasium id."""
    return bool(_ID.match(name))


def find_id(name: str) -> str | None:
    """The registered Gymnasium id that `name` means, or None; a missing version means the newest."""
    if name in gym.registry:
        return name
    for module, _ in _providers(name):
        if importlib.util.find_spec(module) is not None:
            _load(module)
    if name in gym.registry:
        return name
    try:
        namespace, base, version = parse_env_id(name)
    except gym.error.Error:
        return None
    return None if version is not None else _newest(namespace, base)


@functools.cache  # reading the metadata of every installed package costs more than making most environments
def offered() -> dict[str, EntryPoint]:
    """The `rayfish.envs` entry points of the installed packages, by name."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def unknown(name: str) -> EnvironmentFault:
    """What to say when no environment answers to `name`: the newer version, the package, the nearest."""
    closest = closest_env(name)
    if closest is not None:
        return EnvironmentFault(
            f"there is no {name!r} any more: {closest.remark}",
            f"if that will do, write environment.env={closest.env}; rewards and difficulty are not the same",
        )
    newer = newest_version(name)
    if newer is not None:
        what = f"this Gymnasium ({gym.__version__}) has no {name!r}; its version here is {newer!r}"
        return EnvironmentFault(what, f"write environment.env={newer}")
    for module, package in _providers(name):
        if importlib.util.find_spec(module) is None:
            what = f"{name!r} needs a package that is not installed"
            return EnvironmentFault(what, f"pip install {package}")
    known = [*newest_ids(), *offered()]
    near = [one for one in known if one.lower() == name.lower()] or did_you_mean(name, known)
    what = f"there is no environment {name!r}: no Gymnasium id, entry point, registered name or import path"
    hint = f"did you mean {' or '.join(near)}?" if near else "see `rayfish env list`."
    return EnvironmentFault(what, f"{hint} One of your own is my_env.py:MyEnv or package.module:Class")


def newest_version(name: str) -> str | None:
    """The newest registered id with the same name as `name`, when that is another version."""
    try:
        namespace, base, _ = parse_env_id(name)
    except gym.error.Error:
        return None
    newest = _newest(namespace, base)
    return newest if newest != name else None


def _newest(namespace: str | None, base: str) -> str | None:
    highest = find_highest_version(namespace, base)
    return None if highest is None else get_env_id(namespace, base, highest)


def newest_ids() -> list[str]:
    """Every registered id in its newest version, in the order of registration."""
    newest: dict[tuple[str | None, str], tuple[int, str]] = {}
    for env_id in gym.registry:
        namespace, base, version = parse_env_id(env_id)
        known = newest.get((namespace, base))
        if known is None or (version or 0) >= known[0]:
            newest[namespace, base] = (version or 0, env_id)
    return [env_id for _, env_id in newest.values()]


@dataclass(frozen=True)
class Group:
    """Environments from one place: their names for `environment.env`, and what to pip install first."""

    title: str
    names: tuple[str, ...]
    install: str = ""


def groups(pattern: str = "") -> list[Group]:
    """Everything that can be named here and contains `pattern`: newest versions, by where they come from."""
    known = [Group(f"Installed packages ({ENTRY_POINT_GROUP})", tuple(offered()))]
    for _, module, _ in PROVIDERS:
        if importlib.util.find_spec(module) is not None:
            _load(module)
    by_title: dict[str, list[str]] = {}
    for env_id in newest_ids():
        if not is_stub(env_id):
            by_title.setdefault(_title(gym.registry[env_id].entry_point), []).append(env_id)
    for title in sorted(by_title, key=lambda title: not title.startswith("Rayfish")):
        names = by_title[title]
        known.append(Group(title, tuple(names), missing_extra(names[0])))
    word = pattern.lower()
    kept = (
        Group(g.title, tuple(n for n in g.names if word in n.lower() or word in g.title.lower()), g.install)
        for g in known
    )
    return sorted((group for group in kept if group.names), key=lambda group: bool(group.install))


def _title(target: Any) -> str:
    module = target if isinstance(target, str) else getattr(target, "__module__", "")
    for start, _, _, title in EXTRAS:
        if module.startswith(start):
            return title
    if module.startswith("rayfish."):
        return "Rayfish"
    return module.partition(":")[0].partition(".")[0] or "registered here"


def missing_extra(env_id: str) -> str:
    """What to pip install before a registered id can be made; "" when nothing is missing."""
    target: Any = gym.registry[env_id].entry_point
    for start, modules, package, _ in EXTRAS:
        if isinstance(target, str) and target.startswith(start):
            return "" if all(map(importlib.util.find_spec, modules.split())) else package
    return ""


def is_stub(env_id: str) -> bool:
    """Whether Gymnasium keeps an old id only to say that it is gone."""
    target: Any = gym.registry[env_id].entry_point
    return not isinstance(target, str) and getattr(target, "__module__", "").startswith("gymnasium.")


def _providers(name: str) -> list[tuple[str, str]]:
    """The modules that may register `name`, each with what to pip install."""
    found = [
        (module, package) for starts, module, package in PROVIDERS if name.startswith(tuple(starts.split()))
    ]
    if needs_ale(name) and not found:
        found.append(("ale_py", "'rayfish[atari]'"))
    return found


def _load(module: str) -> None:
    """Import a package that registers environments; Atari's prints a banner on every process otherwise."""
    found = importlib.import_module(module)
    if module == "ale_py":
        found.ALEInterface.setLoggerMode(found.LoggerMode.Error)
