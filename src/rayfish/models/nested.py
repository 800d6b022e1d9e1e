"""An observation as people hand it over, as arrays of its space's structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rayfish.errors import RayfishError


def as_arrays(observation: Any, space: gym.Space, lead: int, name: str = "observation") -> Any:
    """An observation as arrays of the space's structure, with `lead` axes in front of each leaf.

    :raises RayfishError: a part is missing or has another shape than the space
    """
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(observation, Mapping) or not set(space.spaces) <= set(observation):
            has = (
                sorted(map(str, observation))
                if isinstance(observation, Mapping)
                else type(observation).__name__
            )
            raise RayfishError(
                f"{name} should be a dict with {sorted(map(str, space.spaces))}, got {has}",
                "give the observation as the environment gives it",
            )
        return {
            key: as_arrays(observation[key], sub, lead, f"{name}[{key!r}]")
            for key, sub in space.spaces.items()
        }
    if isinstance(space, gym.spaces.Tuple):
        if not isinstance(observation, Sequence) or len(observation) != len(space.spaces):
            raise RayfishError(
                f"{name} should be a tuple of {len(space.spaces)} parts, got {type(observation).__name__}",
                "give the observation as the environment gives it",
            )
        return tuple(
            as_arrays(part, sub, lead, f"{name}[{index}]")
            for index, (part, sub) in enumerate(zip(observation, space.spaces, strict=True))
        )
    array = np.asarray(observation)
    shape = tuple(space.shape or ())
    if array.shape[lead:] != shape or array.ndim < lead:
        wanted = f"(batch, {', '.join(map(str, shape))})" if lead else str(shape)
        raise RayfishError(
            f"{name} has shape {array.shape}, the policy was trained on {wanted}",
            "use act for one observation and act_batch for several",
        )
    return array
