"""Old import paths in a user's code keep working: a finder for the few names that are known to be gone.

It is asked last, so it never hides a module that is really there, and it answers for these only:

    ray.rllib.examples.env.*             -> where RLlib, or else Rayfish, has the example environments
    ray.rllib.examples.multi_agent_and_self_play.policy_mapping_fn -> Rayfish's own
    ray.rllib.env.apis.task_settable_env -> `rayfish.envs.tasks` (also under its shorter old names)
    ray.rllib.agents.dqn (and the like)  -> `rayfish.rllib`: trainers by their old names
    gym                                  -> Gymnasium with gym's old reset and step (`rayfish.legacy.gym`)
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from rayfish.experiment.sections import ALGORITHMS, CLOSEST
from rayfish.legacy.env_names import MOVED, OLD_EXAMPLES

_TASKS = "rayfish.envs.tasks"
_GYM = "rayfish.legacy.gym"
_GYM_NOTICE = (
    "the package gym is not installed: gymnasium answers to its name, with the reset() and step() of gym 0.21"
)

_SELF_PLAY = "ray.rllib.examples.multi_agent_and_self_play"
_TRAINERS = "rayfish.rllib"
_AGENTS = "ray.rllib.agents"
_PACKAGES = (OLD_EXAMPLES, "ray.rllib.env.apis", _AGENTS, _SELF_PLAY)
_GONE = "|".join(sorted(name.lower().replace("-", "_") for name in CLOSEST))
_TRAINER = re.compile(
    rf"ray\.rllib\.agents\.(trainer|a3c|{'|'.join(map(str.lower, ALGORITHMS))}|{_GONE})(\.\w+)?"
    rf"|ray\.rllib\.algorithms\.({_GONE})(\.\w+)?"
)
"""Modules that held an algorithm's trainer."""

_FROM: dict[str, str] = {
    "ray.rllib.env.apis.task_settable_env": _TASKS,
    "ray.rllib.env.task_settable_env": _TASKS,
    "ray.rllib.env.meta_env": _TASKS,
    "ray.rllib.agents.callbacks": "ray.rllib.callbacks.callbacks",
    f"{_SELF_PLAY}.policy_mapping_fn": "rayfish.legacy.examples.policy_mapping_fn",
    **{f"{OLD_EXAMPLES}.{name}": place for name, place in MOVED.items()},
}
_ALSO = {
    "ray.rllib.agents.callbacks": {"DefaultCallbacks": "ray.rllib.callbacks.callbacks:RLlibCallback"},
    "ray.rllib.env.meta_env": {"MetaEnv": f"{_TASKS}:TaskSettableEnv"},
    "gym.utils": {"seeding": "rayfish.legacy.gym_seeding"},
}
_SAME_IN_GYMNASIUM = (
    *("spaces", "error", "logger", "vector", "utils", "utils.ezpickle", "envs", "envs.registration"),
    *("envs.classic_control", "envs.toy_text", "envs.box2d", "envs.mujoco"),
)
_PARTS_OF_GYM = {
    **{f"gym.{name}": f"gymnasium.{name}" for name in _SAME_IN_GYMNASIUM},
    "gym.core": _GYM,
    "gym.wrappers": _GYM,
    "gym.utils.seeding": "rayfish.legacy.gym_seeding",
}

_used: dict[str, str] = {}
"""Today's module -> a sentence about the old import that leads to it, of those that this process has made."""


def install() -> None:
    """Let this process find the old names; once, and behind every other finder."""
    if not any(isinstance(finder, OldModules) for finder in sys.meta_path):
        sys.meta_path.append(OldModules())


def notices(of: type | None = None) -> list[str]:
    """One sentence for each kind of old import that this process has made.

    :param of: only those that this class inherits from; other code in the process may have made others
    """
    places = None if of is None else {base.__module__ for base in of.__mro__}
    return [sentence for place, sentence in _used.items() if places is None or place in places]


class OldModules(importlib.abc.MetaPathFinder):
    """The finder; see the module's docstring."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for a listed name; None for every other."""
        place = _FROM.get(name) or _gym_part(name)
        is_package = name in (*_PACKAGES, "gym", "gym.envs", "gym.utils")
        if place is None and _TRAINER.fullmatch(name):
            place, is_package = _TRAINERS, True
        if place is None and name not in _PACKAGES:
            return None
        if place is not None and importlib.util.find_spec(place) is None:
            return None
        return importlib.machinery.ModuleSpec(name, _Loader(place), is_package=is_package)


class _Loader(importlib.abc.Loader):
    """Fills a module of the old name with the names of the one that has them today."""

    def __init__(self, place: str | None) -> None:
        self.place = place

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """The ordinary, empty module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Today's names into it. A copy: the module they come from keeps its own name and spec."""
        if self.place is None:
            return
        source = importlib.import_module(self.place)
        own = set(vars(module))
        vars(module).update({key: value for key, value in vars(source).items() if key not in own})
        for old, new in _ALSO.get(module.__name__, {}).items():
            there, _, attribute = new.partition(":")
            found: Any = importlib.import_module(there)
            setattr(module, old, getattr(found, attribute) if attribute else found)
        if module.__name__ == "gym":
            _used.setdefault(_GYM, _GYM_NOTICE)
        elif not module.__name__.startswith("gym."):
            notice = f"{module.__name__} is gone from RLlib: its classes come from {self.place}"
            _used.setdefault(self.place, notice)


def _gym_part(name: str) -> str | None:
    """Today's module for a part of gym, as long as gym itself is not installed."""
    if name == "gym":
        return _GYM
    parent = sys.modules.get("gym")
    ours = parent is not None and isinstance(getattr(parent.__spec__, "loader", None), _Loader)
    return _PARTS_OF_GYM.get(name) if ours else None
