"""Modules of Rayfish by the names they had before: in users' code, and in runs that were written then.

An old name gives the very module of today, so that classes are the same under both names. Only what can
stand in a user's file, a saved config or a pickle is listed.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

_WILDFIRE = {
    "fire": "behave benchmark codes conditions cuda cuda_kernel fuels geo layers noise readers rothermel "
    "scenarios sections settings simfire simulator spread tables",
    "env": "act agents baselines env episodes observe options reward starts survey tactics",
    "pictures": "render",
}
_EXAMPLES = (
    *("ant_rand_goal", "cartpole_mass", "curriculum_capable_env"),
    *("halfcheetah_rand_direc", "pendulum_mass", "policy_mapping_fn"),
)
MOVED = {
    "rayfish.envs.wildfire": "rayfish.worlds.wildfire",
    **{
        f"rayfish.envs.wildfire.{name}": f"rayfish.worlds.wildfire.{room}.{name}"
        for room, modules in _WILDFIRE.items()
        for name in modules.split()
    },
    **dict.fromkeys(
        ("rayfish.envs.wildfire.agents_vector", "rayfish.worlds.wildfire.env.agents_vector"),
        "rayfish.worlds.wildfire.env.agents",
    ),
    **dict.fromkeys(
        ("rayfish.envs.wildfire.embers", "rayfish.envs.wildfire.lines"), "rayfish.worlds.wildfire.fire.spread"
    ),
    **dict.fromkeys(
        ("rayfish.envs.wildfire.simfire_rates", "rayfish.envs.wildfire.simfire_spread"),
        "rayfish.worlds.wildfire.fire.simfire",
    ),
    **{
        f"rayfish.envs.old_examples{name}": f"rayfish.legacy.examples{name}"
        for name in ("", *(f".{one}" for one in _EXAMPLES))
    },
    "rayfish.envs.kinds": "rayfish.envs.env_kind",
    **dict.fromkeys(
        ("rayfish.envs.last", "rayfish.envs.observe_last", "rayfish.envs.limits"), "rayfish.envs.wrappers"
    ),
    "rayfish.envs.old_api": "rayfish.legacy.env_api",
    "rayfish.envs.observed": "rayfish.envs.space_check",
    "rayfish.envs.old_gym": "rayfish.legacy.gym",
    "rayfish.envs.old_gym_seeding": "rayfish.legacy.gym_seeding",
    "rayfish.envs.old_spaces": "rayfish.legacy.env_api",
    "rayfish.envs.pulse": "rayfish.supervise.watchdog",
    "rayfish.supervise.pulse": "rayfish.supervise.watchdog",
    "rayfish.algorithm.batched.rings": "rayfish.algorithm.batched.replay.rings",
    "rayfish.algorithm.batched.priorities": "rayfish.algorithm.batched.replay.priorities",
    "rayfish.algorithm.batched.off_policy": "rayfish.algorithm.batched.algorithms",
    "rayfish.algorithm.batched.off_policy_learner": "rayfish.algorithm.batched.learner",
    "rayfish.algorithm.batched.replay_parts": "rayfish.algorithm.batched.replay.transitions",
    "rayfish.algorithm.recorded": "rayfish.algorithm.offline_data",
    "rayfish.algorithm.tasks": "rayfish.algorithm.curriculum",
}


def install() -> None:
    """Let this process find the old names; once.

    Before every other finder: a folder of an old name with nothing but compiled files is a package, too.
    """
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())


class MovedModules(importlib.abc.MetaPathFinder):
    """The finder; see the module's docstring."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for a listed name; None for every other."""
        return importlib.machinery.ModuleSpec(name, _Alias(MOVED[name])) if name in MOVED else None


class _Alias(importlib.abc.Loader):
    """Gives the module of today."""

    def __init__(self, today: str) -> None:
        self._today = today

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module itself."""
        module = importlib.import_module(self._today)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run already; only its spec, which the import system has replaced, is put back."""
        module.__spec__ = self._spec
