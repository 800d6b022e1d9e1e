"""Whether a value belongs to its space: a fast test for every step, and the reasons why it does not.

Training needs the structure, the shape and finite numbers, no more: many good environments overstep their
bounds a little, and number types are cast. `rayfish env check` looks at these as well (`strict`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

MASK = "action_mask"
"""The key of a Dict observation that says which actions are allowed (1) and which are not (0)."""

Faults = list[tuple[str, str]]
"""Reasons why a value is wrong, each with its remedy."""


class Observed:
    """Tests whether values can be learnt from, in a microsecond; passes every value of a space unknown here.

    `Space.contains` is slower and looks at bounds.
    """

    def fits(self, value: Any) -> bool:
        """Whether `value` has the space's structure and shape, and finite numbers."""
        return True


Reward = Observed  # a name in environments that were pickled before


class _Array(Observed):
    """A Box, MultiDiscrete or MultiBinary."""

    def __init__(self, space: gym.Space) -> None:
        self._shape = tuple(space.shape or ())
        self._zeros = np.zeros(self._shape, np.float32) if len(self._shape) == 1 else None

    def fits(self, value: Any) -> bool:
        """Shape first: the sum of a wrong shape could not be computed."""
        array = value if isinstance(value, np.ndarray) else _as_array(value)
        if array is None or array.shape != self._shape:
            return False
        kind = array.dtype.kind
        if kind != "f":
            return kind in "iub"
        if self._zeros is not None:  # NaN and infinity times zero are not zero: a quarter of isfinite's time
            return bool(array.dot(self._zeros) == 0)
        return bool(np.isfinite(array).all())


class _Discrete(Observed):
    """An integer; one outside would be looked up in a table that has no such row."""

    def __init__(self, space: spaces.Discrete) -> None:
        self._start, self._end = int(space.start), int(space.start + space.n)

    def fits(self, value: Any) -> bool:
        """Whether it is one of the space's integers, of any number type."""
        return _is_whole(value) and self._start <= value < self._end


class _Dict(Observed):
    """A dictionary, part by part."""

    def __init__(self, space: spaces.Dict) -> None:
        self._parts = {key: observed(part) for key, part in space.spaces.items()}

    def fits(self, value: Any) -> bool:
        """The keys, then each part."""
        if not isinstance(value, Mapping) or value.keys() != self._parts.keys():
            return False
        return all(part.fits(value[key]) for key, part in self._parts.items())


class _Tuple(Observed):
    """A tuple, part by part."""

    def __init__(self, space: spaces.Tuple) -> None:
        self._parts = [observed(part) for part in space.spaces]

    def fits(self, value: Any) -> bool:
        """The length, then each part."""
        if not isinstance(value, tuple | list) or len(value) != len(self._parts):
            return False
        return all(part.fits(one) for part, one in zip(self._parts, value, strict=True))


def observed(space: gym.Space | None) -> Observed:
    """The fast test of a space."""
    if isinstance(space, spaces.Dict):
        return _Dict(space)
    if isinstance(space, spaces.Tuple):
        return _Tuple(space)
    if isinstance(space, spaces.Discrete):
        return _Discrete(space)
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return _Array(space)
    return Observed()


def faults(value: Any, space: gym.Space[Any], name: str, *, strict: bool = True) -> Faults:
    """Every reason why `value` is not in `space`; empty when it is.

    :param strict: report what Gymnasium does not allow, although training works with it: lists in place of
        arrays, number types that can be cast, values of a Box outside its bounds
    """
    if isinstance(space, spaces.Dict):
        return _dict_faults(value, space, name, strict)
    if isinstance(space, spaces.Tuple):
        return _tuple_faults(value, space, name, strict)
    if isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        return _array_faults(value, space, name, strict)
    if isinstance(space, spaces.Discrete):
        return _discrete_faults(value, space, name, strict)
    if space.contains(value):
        return []
    return [(f"{name} is {_short(value)}, which is not in {space}", "return a value of the declared space")]


def is_finite(reward: Any) -> bool:
    """Whether a reward is one finite number."""
    try:
        return math.isfinite(reward)
    except (TypeError, ValueError, OverflowError):
        return False


def reward_faults(reward: Any, name: str = "the reward", *, strict: bool = True) -> Faults:
    """Why `reward` is no finite number; with `strict`, it is no bool and no array either."""
    plain = np.ndim(reward) == 0 and not isinstance(reward, bool | np.bool_)
    if is_finite(reward) and (plain or not strict):
        return []
    if isinstance(reward, int | float | np.floating) and not isinstance(reward, bool):
        what = "too large for a float" if isinstance(reward, int) else str(float(reward))
        hint = "keep it finite: divisions by zero and overflows are the usual cause"
        return [(f"{name} is {what}", hint)]
    return [(f"{name} is {_short(reward)}", "return a plain number: float(reward)")]


def mask_faults(observation: Any, space: gym.Space[Any], actions: gym.Space[Any]) -> Faults:
    """What is wrong with the action mask of a Dict observation, if it has one."""
    if not isinstance(space, spaces.Dict) or MASK not in space.spaces or not isinstance(observation, Mapping):
        return []
    size = mask_size(actions)
    mask = np.asarray(observation.get(MASK, ()))
    if size is None:
        return [(f"{MASK} cannot mask {actions}", "only Discrete and MultiDiscrete actions can be masked")]
    if mask.shape != (size,):
        return [(f"{MASK} has shape {mask.shape}, the action space needs ({size},)", "one entry per action")]
    if not np.isin(mask, (0, 1)).all():
        return [(f"{MASK} holds {np.unique(mask)[:5].tolist()}", "use 1 for allowed and 0 for forbidden")]
    if any(part.sum() == 0 for part in _by_choice(mask, actions)):
        return [(f"{MASK} forbids every action", "leave at least one action allowed, or end the episode")]
    return []


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
    return actions.sample(
        mask=mask if isinstance(actions, spaces.Discrete) else tuple(_by_choice(mask, actions))
    )


def same(left: Any, right: Any) -> bool:
    """Whether two nested values of numbers, arrays and tensors are equal; NaN equals NaN."""
    if is_dataclass(left) and is_dataclass(right):
        return same(vars(left), vars(right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    left, right = (value.cpu() if hasattr(value, "cpu") else value for value in (left, right))
    try:
        return bool(np.array_equal(left, right, equal_nan=True))
    except TypeError:  # not numbers
        return bool(np.array_equal(left, right))


def _dict_faults(value: Any, space: spaces.Dict, name: str, strict: bool) -> Faults:
    if not isinstance(value, Mapping):
        hint = "return a dict with the keys of the space"
        return [(f"{name} is a {_kind(value)}, its space is a Dict", hint)]
    found = []
    missing = [repr(key) for key in space if key not in value]
    extra = [repr(key) for key in value if key not in space.spaces]
    if missing:
        found.append((f"{name} lacks {', '.join(missing)}", "return every key of the space"))
    if extra:
        found.append((f"{name} has {', '.join(extra)}, not in its space", "declare or drop these keys"))
    for key in space:
        if key in value:
            found += faults(value[key], space[key], f"{name}[{key!r}]", strict=strict)
    return found


def _tuple_faults(value: Any, space: spaces.Tuple, name: str, strict: bool) -> Faults:
    if not isinstance(value, tuple) and (strict or not isinstance(value, list)):
        return [(f"{name} is a {_kind(value)}, its space is a Tuple", "return a tuple")]
    if len(value) != len(space.spaces):
        what = f"{name} has {len(value)} parts, its space {len(space.spaces)}"
        return [(what, "return one value per part")]
    found = []
    for index, (part, inner) in enumerate(zip(value, space.spaces, strict=True)):
        found += faults(part, inner, f"{name}[{index}]", strict=strict)
    return found


def _array_faults(value: Any, space: Any, name: str, strict: bool) -> Faults:
    array = _as_array(value)
    if array is None or (strict and not isinstance(value, np.ndarray | np.generic)):
        fix = f"return np.asarray(observation, dtype=np.{space.dtype})"
        return [(f"{name} is a {_kind(value)}, its space wants a NumPy array", fix)]
    if array.shape != space.shape:
        fix = "make the two agree: reshape the observation, or change the shape of the space"
        return [(f"{name} has shape {array.shape}, its space {space.shape}", fix)]
    if array.dtype.kind not in "fiub":
        return [(f"{name} has dtype {array.dtype}", f"return numbers: dtype=np.{space.dtype}")]
    found = []
    if strict and not np.can_cast(array.dtype, space.dtype):
        fix = f"end with .astype(np.{space.dtype}), or declare the space with dtype=np.{array.dtype}"
        found.append((f"{name} has dtype {array.dtype}, its space {space.dtype}", fix))
    if not np.isfinite(array).all():
        place = _first(~np.isfinite(array))
        shown = "NaN" if np.isnan(array[place]) else f"{array[place]}"
        fix = "look for a division by zero, an overflow or an unset value"
        return [*found, (f"{name}{_index(place)} is {shown}", fix)]
    if strict or not isinstance(space, spaces.Box):
        found += _bounds_faults(array, space, name)
    return found


def _bounds_faults(array: np.ndarray, space: Any, name: str) -> Faults:
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    else:
        low, high = np.zeros(space.shape), np.ones(space.shape)
    outside = (array < low) | (array > high)
    if not outside.any():
        return []
    place = _first(outside)
    limits = f"[{np.broadcast_to(low, array.shape)[place]:g}, {np.broadcast_to(high, array.shape)[place]:g}]"
    more = f", and {int(outside.sum()) - 1} more" if outside.sum() > 1 else ""
    what = f"{name}{_index(place)} is {array[place]:g}, outside {limits}{more}"
    return [(what, "widen the bounds of the space, or clip the observation")]


def _discrete_faults(value: Any, space: spaces.Discrete, name: str, strict: bool) -> Faults:
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if isinstance(value, np.ndarray):
        integer = value.shape == () and np.issubdtype(value.dtype, np.integer)
    if not (integer if strict else _is_whole(value)):
        return [(f"{name} is {_short(value)}, its space is {space}", "return an int")]
    low, high = int(space.start), int(space.start + space.n - 1)
    if not low <= int(value) <= high:
        return [(f"{name} is {int(value)}, outside {low}..{high} of {space}", "raise n, or fix the value")]
    return []


def _is_whole(value: Any) -> bool:
    try:
        return bool(int(value) == value)
    except (TypeError, ValueError, OverflowError):
        return False


def _as_array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except ValueError:  # parts of different lengths
        return None


def _choices(actions: gym.Space[Any]) -> list[int]:
    if isinstance(actions, spaces.Discrete):
        return [int(actions.n)]
    if isinstance(actions, spaces.MultiDiscrete) and actions.nvec.ndim == 1:
        return [int(count) for count in actions.nvec]
    return []


def _by_choice(mask: np.ndarray, actions: gym.Space[Any]) -> list[np.ndarray]:
    return np.split(mask, np.cumsum(_choices(actions))[:-1])


def _first(where: np.ndarray) -> tuple[Any, ...]:
    return np.unravel_index(int(np.argmax(where)), where.shape)


def _index(place: tuple[Any, ...]) -> str:
    return f"[{', '.join(str(int(axis)) for axis in place)}]" if place else ""


def _kind(value: Any) -> str:
    return type(value).__name__


def _short(value: Any) -> str:
    text = repr(value)
    return f"{text[:60]}... ({_kind(value)})" if len(text) > 60 else f"{text} ({_kind(value)})"
