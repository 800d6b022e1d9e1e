"""Spaces of the old gym package as Gymnasium's, without importing gym."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rayfish.errors import EnvironmentFault


def is_old(space: Any) -> bool:
    """Whether `space` is one of gym's."""
    return any(
        base.__module__.split(".")[0] == "gym" and base.__name__ == "Space" for base in type(space).__mro__
    )


def modern(space: Any) -> Any:
    """The same space in Gymnasium's terms; what is no space of gym's is left as it is.

    :raises EnvironmentFault: a kind of space that has no counterpart
    """
    if isinstance(space, gym.Space) or not is_old(space):
        return space
    kind = next(base.__name__ for base in type(space).__mro__ if base.__module__.startswith("gym."))
    if kind == "Box":
        return spaces.Box(np.asarray(space.low), np.asarray(space.high), space.shape, space.dtype)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if kind == "MultiBinary":
        return spaces.MultiBinary(int(space.n) if np.ndim(space.n) == 0 else [int(n) for n in space.n])
    if kind == "Tuple":
        return spaces.Tuple([modern(part) for part in space.spaces])
    if kind == "Dict":
        return spaces.Dict({key: modern(part) for key, part in space.spaces.items()})
    raise EnvironmentFault(
        f"the gym space {type(space).__name__} has no counterpart that algorithms learn from",
        "use Box, Discrete, MultiDiscrete, MultiBinary, Tuple or Dict",
    )
