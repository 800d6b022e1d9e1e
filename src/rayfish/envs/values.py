"""Why a value does not belong to its space, in words that name the place and the number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

MASK = "action_mask"
"""The key of a Dict observation that says which actions are allowed (1) and which are not (0)."""


def faults(value: Any, space: gym.Space[Any], name: str) -> list[tuple[str, str]]:
    """Every reason why `value` is not in `space`, each with its remedy; empty when it is."""
    if isinstance(space, spaces.Dict):
        return _dict_faults(value, space, name)
    if isinstance(space, spaces.Tuple):
        return _tuple_faults(value, space, name)
    if isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        return _array_faults(value, space, name)
    if isinstance(space, spaces.Discrete):
        return _discrete_faults(value, space, name)
    if space.contains(value):
        return []
    return [(f"{name} is {_short(value)}, which is not in {space}", "return a value of the declared space")]


def mask_faults(observation: Any, space: gym.Space[Any], actions: gym.Space[Any]) -> list[tuple[str, str]]:
    """What is wrong with the action mask of a Dict observation, if it has one."""
    if not isinstance(space, spaces.Dict) or MASK not in space.spaces or not isinstance(observation, Mapping):
        return []
    found = []
    size = mask_size(actions)
    mask = np.asarray(observation.get(MASK, ()))
    if size is None:
        found.append(
            (f"{MASK} cannot mask {actions}", "only Discrete and MultiDiscrete actions can be masked")
        )
    elif mask.shape != (size,):
        found.append(
            (f"{MASK} has shape {mask.shape}, the action space needs ({size},)", "one entry per action")
        )
    elif not np.isin(mask, (0, 1)).all():
        found.append(
            (f"{MASK} holds {np.unique(mask)[:5].tolist()}", "use 1 for allowed and 0 for forbidden")
        )
    else:
        parts = np.split(mask, np.cumsum(_choices(actions))[:-1])
        if any(part.sum() == 0 for part in parts):
            found.append(
                (f"{MASK} forbids every action", "leave at least one action allowed, or end the episode")
            )
    return found


def mask_size(actions: gym.Space[Any]) -> int | None:
    """How long the mask of an action space is; None where masking has no meaning."""
    choices = _choices(actions)
    return sum(choices) if choices else None


def legal_sample(actions: gym.Space[Any], observation: Any) -> Any:
    """A random action, one that the observation's mask allows where it has a usable one."""
    mask = observation.get(MASK) if isinstance(observation, Mapping) else None
    if mask is None or np.asarray(mask).shape != (mask_size(actions),):
        return actions.sample()
    mask = np.asarray(mask, dtype=np.int8)
    if isinstance(actions, spaces.Discrete):
        return actions.sample(mask=mask)
    parts = np.split(mask, np.cumsum(_choices(actions))[:-1])
    return actions.sample(mask=tuple(parts))


def same(left: Any, right: Any) -> bool:
    """Whether two (nested) observations are equal; NaN equals NaN."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(same(one, two) for one, two in zip(left, right, strict=True))
    try:
        return bool(np.array_equal(left, right, equal_nan=True))
    except TypeError:  # not numbers
        return bool(np.array_equal(left, right))


def _dict_faults(value: Any, space: spaces.Dict, name: str) -> list[tuple[str, str]]:
    if not isinstance(value, Mapping):
        return [
            (f"{name} is a {_kind(value)}, its space is a Dict", "return a dict with the keys of the space")
        ]
    found = []
    missing, extra = (
        [key for key in space if key not in value],
        [key for key in value if key not in space.spaces],
    )
    if missing:
        found.append((f"{name} lacks {', '.join(map(repr, missing))}", "return every key of the space"))
    if extra:
        found.append(
            (f"{name} has {', '.join(map(repr, extra))}, not in its space", "declare or drop these keys")
        )
    for key in space:
        if key in value:
            found += faults(value[key], space[key], f"{name}[{key!r}]")
    return found


def _tuple_faults(value: Any, space: spaces.Tuple, name: str) -> list[tuple[str, str]]:
    if not isinstance(value, tuple):
        return [(f"{name} is a {_kind(value)}, its space is a Tuple", "return a tuple")]
    if len(value) != len(space.spaces):
        return [
            (f"{name} has {len(value)} parts, its space {len(space.spaces)}", "return one value per part")
        ]
    found = []
    for index, (part, inner) in enumerate(zip(value, space.spaces, strict=True)):
        found += faults(part, inner, f"{name}[{index}]")
    return found


def _array_faults(value: Any, space: Any, name: str) -> list[tuple[str, str]]:
    if not isinstance(value, np.ndarray | np.generic):
        fix = f"return np.asarray(observation, dtype=np.{space.dtype})"
        return [(f"{name} is a {_kind(value)}, its space wants a NumPy array", fix)]
    array = np.asarray(value)
    if array.shape != space.shape:
        fix = "make the two agree: reshape the observation, or change the shape of the space"
        return [(f"{name} has shape {array.shape}, its space {space.shape}", fix)]
    if not np.issubdtype(array.dtype, np.number) and array.dtype != bool:
        return [(f"{name} has dtype {array.dtype}", f"return numbers: dtype=np.{space.dtype}")]
    found = []
    if not np.can_cast(array.dtype, space.dtype):
        fix = f"end with .astype(np.{space.dtype}), or declare the space with dtype=np.{array.dtype}"
        found.append((f"{name} has dtype {array.dtype}, its space {space.dtype}", fix))
    floating = np.issubdtype(array.dtype, np.floating)
    if floating and np.isnan(array).any():
        index = _first(np.isnan(array))
        return [*found, (f"{name}{index} is NaN", "look for a division by zero or an unset value")]
    low, high = _bounds(space)
    outside = (array < low) | (array > high)
    if outside.any():
        at = np.unravel_index(int(np.argmax(outside)), outside.shape)
        limits = f"[{np.broadcast_to(low, array.shape)[at]:g}, {np.broadcast_to(high, array.shape)[at]:g}]"
        more = f", and {int(outside.sum()) - 1} more" if outside.sum() > 1 else ""
        what = f"{name}{_first(outside)} is {array[at]:g}, outside {limits}{more}"
        found.append((what, "widen the bounds of the space, or clip the observation"))
    return found


def _discrete_faults(value: Any, space: spaces.Discrete, name: str) -> list[tuple[str, str]]:
    if isinstance(value, bool) or not (
        isinstance(value, int | np.integer)
        or (isinstance(value, np.ndarray) and value.shape == () and np.issubdtype(value.dtype, np.integer))
    ):
        return [(f"{name} is {_short(value)}, its space is {space}", "return an int")]
    low, high = int(space.start), int(space.start + space.n - 1)
    if not low <= int(value) <= high:
        return [(f"{name} is {int(value)}, outside {low}..{high} of {space}", "raise n, or fix the value")]
    return []


def _bounds(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return np.zeros(space.shape), np.ones(space.shape)


def _choices(actions: gym.Space[Any]) -> list[int]:
    if isinstance(actions, spaces.Discrete):
        return [int(actions.n)]
    if isinstance(actions, spaces.MultiDiscrete) and actions.nvec.ndim == 1:
        return [int(count) for count in actions.nvec]
    return []


def _first(where: np.ndarray[Any, Any]) -> str:
    if where.ndim == 0:
        return ""
    return "[" + ", ".join(str(int(axis[0])) for axis in np.nonzero(where)) + "]"


def _kind(value: Any) -> str:
    return type(value).__name__


def _short(value: Any) -> str:
    text = repr(value)
    return f"{text[:60]}... ({_kind(value)})" if len(text) > 60 else f"{text} ({_kind(value)})"
