"""From the name of an environment to what makes it: a Gymnasium id, or a class or creator function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import gymnasium as gym

from rayfish.compat.ray_node import registered_creator
from rayfish.envs import catalog
from rayfish.envs.old_environments import OLD_EXAMPLES, gone_env, todays_env
from rayfish.envs.spec import EnvSpec
from rayfish.errors import CodeError, EnvironmentFault
from rayfish.experiment import imports as user_code

OWN_NAMES = "rayfish-"
"""How the names begin under which Rayfish itself registers environments with Ray, one per algorithm."""


@dataclass(frozen=True)
class EnvSource:
    """What makes an environment: exactly one of the first two is set.

    :param env_config: what an old id says that today's needs as a setting
    :param registered: the target comes from a registry of this process, which another one does not have
    """

    gym_id: str | None = None
    target: Any = None
    env_config: Mapping[str, Any] = field(default_factory=dict)
    registered: bool = False


def resolve(spec: EnvSpec) -> EnvSource:
    """Find what a spec names, trying the forms in the order of the module's functions."""
    spec.prepare()
    if spec.object is not None:
        return EnvSource(target=_maker(spec.object, spec.name))
    return _named(spec.name.strip(), spec)


def notice(name: str) -> str:
    """The notice about a name from old RLlib; "" when the name is one of today's."""
    today = todays_env(name.strip())
    if today is None or _answers(name.strip()):
        return ""
    return f"environment.env: {name.strip()} is today's {today.env} ({today.remark})"


def is_installed(name: str) -> bool:
    """Whether an environment's name is an id that an installed package has registered, and no import path."""
    name = name.strip()
    if ":" in name or name.endswith(".py"):
        return False
    today = todays_env(name)
    name = today.env if today is not None else name
    return catalog.find_id(name) is not None or name in catalog.offered()


def _named(name: str, spec: EnvSpec) -> EnvSource:
    today = todays_env(name)
    if today is not None and not _answers(name):
        return replace(_named(today.env, spec), env_config=today.env_config)
    gone = gone_env(name)
    if gone is not None and "." in name:
        raise EnvironmentFault(*gone)
    if ":" in name or user_code.is_file_path(name):
        return _from_module(name, spec)
    gym_id = catalog.find_id(name)
    if gym_id is not None:
        return EnvSource(gym_id=gym_id)
    for find in (_from_entry_point, _from_ray, _from_gym):
        target = find(name)
        if target is not None:
            return EnvSource(target=_maker(target, name), registered=find is not _from_entry_point)
    if gone is not None:  # no environment is registered under that name either
        raise EnvironmentFault(*gone)
    if catalog.looks_like_id(name) or not _importable(name):
        raise catalog.unknown(name)
    if name.startswith(f"{OLD_EXAMPLES}."):
        raise EnvironmentFault(
            f"{name!r} was an example of old RLlib that today's Ray no longer has",
            "copy its class from a Ray of the time into a file of your own: environment.env=my_env.py:MyEnv",
        )
    if user_code.module_exists(name, spec.paths):
        return EnvSource(target=_maker(user_code.load_module(name, spec.paths), name))
    if "." not in name:
        raise catalog.unknown(name)
    return EnvSource(target=_maker(user_code.load_object(name, spec.paths), name))


def _from_module(name: str, spec: EnvSpec) -> EnvSource:
    """`module:Env-v0` (registered by the import) or `module:Name`, where the module may be a file."""
    place, _, wanted = name.partition(":")
    if not catalog.looks_like_id(wanted):
        return EnvSource(target=_maker(user_code.load_object(name, spec.paths), name))
    is_file = user_code.is_file_path(place)
    load = user_code.load_file if is_file else user_code.load_module
    load(place, spec.paths)
    gym_id = catalog.find_id(wanted)
    if gym_id is None:
        fault = catalog.unknown(wanted)
        raise EnvironmentFault(f"importing {place!r} registered no {wanted!r}", fault.hint)
    return EnvSource(gym_id=gym_id)


def _from_entry_point(name: str) -> Any | None:
    """An environment another installed package offers in the group `rayfish.envs`."""
    point = catalog.offered().get(name)
    if point is None:
        return None
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise CodeError(
            f"the entry point {name!r} = {point.value!r} does not load: {error}",
            f"fix or reinstall {point.dist.name if point.dist else 'its package'}",
        ) from error


def _from_ray(name: str) -> Any | None:
    """A creator that an imported module gave to Ray's `register_env`."""
    creator = registered_creator(name)
    if creator is None:
        return None

    def make(env_config: Any) -> Any:
        """RLlib's rule: a registered creator gets the configuration whole, whatever it calls it."""
        return creator(env_config)

    return make


def _from_gym(name: str) -> Any | None:
    """An id that an imported module registered with the old gym package."""
    module = sys.modules.get("gym")
    registry = getattr(module, "registry", None) or getattr(module, "envs", None)
    if module is None or registry is gym.registry or not hasattr(module, "make"):
        return None
    known = getattr(registry, "registry", registry)
    known = getattr(known, "env_specs", known)  # before gym 0.26
    if not isinstance(known, Mapping) or name not in known:
        return None

    def make(env_config: Any) -> Any:
        """As gym makes it, but without its own checker, which fails with today's NumPy."""
        checks = "disable_env_checker" in inspect.signature(module.make).parameters  # since gym 0.24
        return module.make(name, **({"disable_env_checker": True} if checks else {}), **dict(env_config))

    return make


def _answers(name: str) -> bool:
    """Whether an old id is registered as an environment of today."""
    return name in gym.registry and not catalog.is_stub(name)


def _maker(found: Any, name: str) -> Any:
    """The class or function behind what an import path led to; a PettingZoo module has its own."""
    if isinstance(found, ModuleType):
        for attribute in ("parallel_env", "env"):
            if callable(getattr(found, attribute, None)):
                return getattr(found, attribute)
        names = user_code.public_names(found)
        hint = f"write {name}:{names[0]}" if names else "name a class in it"
        raise CodeError(f"{name!r} is a module, not an environment", hint)
    if not callable(found):
        raise EnvironmentFault(
            f"{name!r} is a {type(found).__name__} object, not a class or function that makes an environment",
            "give the class itself, or a function that takes env_config and returns an environment",
        )
    return found


def _importable(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))
