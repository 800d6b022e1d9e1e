"""Whether a value is what its space says: structure, shape, and no NaN, in a few microseconds.

`Space.contains` is slower, looks at bounds (which many good environments overstep a little) and
answers only yes or no; here the first thing wrong is named, with its place and value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

_FINITE = "divisions by zero and overflows are the usual cause"


@dataclass(frozen=True)
class Wrong:
    """What is wrong with a returned value (reads after "returned"), and how to fix it."""

    what: str
    hint: str


class Observed:
    """Anything goes: the base, and the check of spaces that we know nothing about."""

    def __init__(self, name: str) -> None:
        self.name = name

    def wrong(self, value: Any) -> Wrong | None:
        """The first thing that is wrong with `value`; None when it is fine."""
        return None


class _Array(Observed):
    """An array: its shape, and finite numbers."""

    def __init__(self, name: str, space: gym.Space) -> None:
        super().__init__(name)
        self._shape = tuple(space.shape or ())
        self._space = f"{type(space).__name__}{self._shape}"
        self._zeros = np.zeros(self._shape, np.float32) if len(self._shape) == 1 else None

    def wrong(self, value: Any) -> Wrong | None:
        """Shape first: the finite check of a wrong shape would be of no use."""
        array = value if isinstance(value, np.ndarray) else _as_array(value)
        if array is None or array.dtype.kind not in "fiub":
            got = type(value).__name__ if array is None else f"array of {array.dtype}"
            return Wrong(f"{self.name} that is a {got}", f"the space is {self._space}: return numbers")
        if array.shape != self._shape:
            return Wrong(
                f"{self.name} of shape {array.shape}; its space has shape {self._shape}",
                "return what observation_space declares, or declare what it returns",
            )
        if array.dtype.kind == "f" and not self._finite(array):
            place = np.unravel_index(int(np.argmin(np.isfinite(array))), array.shape) if array.ndim else ()
            index = f" at index {', '.join(map(str, place))} of shape {array.shape}" if place else ""
            return Wrong(f"{self.name} with {array[place]}{index}", _FINITE)
        return None

    def _finite(self, array: np.ndarray) -> bool:
        # A vector times zero is zero unless there is a NaN or an infinity in it: a quarter of the time.
        if self._zeros is not None:
            return bool(array.dot(self._zeros) == 0)
        return bool(np.isfinite(array).all())


class _Discrete(Observed):
    """One of a number of things."""

    def __init__(self, name: str, space: gym.spaces.Discrete) -> None:
        super().__init__(name)
        self._start, self._end = int(space.start), int(space.start + space.n)

    def wrong(self, value: Any) -> Wrong | None:
        """An index outside would be looked up in a table that has no such row."""
        try:
            if int(value) == value and self._start <= value < self._end:
                return None
        except (TypeError, ValueError, OverflowError):
            pass
        return Wrong(
            f"{self.name} {value!r}; its space holds the integers {self._start} to {self._end - 1}",
            "return what observation_space declares",
        )


class _Dict(Observed):
    """A dictionary, part by part."""

    def __init__(self, name: str, space: gym.spaces.Dict) -> None:
        super().__init__(name)
        self._parts = {key: observed(part, f"{name}[{key!r}]") for key, part in space.spaces.items()}

    def wrong(self, value: Any) -> Wrong | None:
        """The keys, then each part."""
        if not isinstance(value, Mapping):
            return Wrong(
                f"{self.name} that is a {type(value).__name__}; its space has the keys {list(self._parts)}",
                "return a dict",
            )
        if value.keys() != self._parts.keys():
            missing = [f"add {key!r}" for key in self._parts if key not in value]
            extra = [f"leave out {key!r}" for key in value if key not in self._parts]
            return Wrong(
                f"{self.name} with {list(value)}; its space has the keys {list(self._parts)}",
                ", ".join([*missing, *extra]),
            )
        for key, part in self._parts.items():
            found = part.wrong(value[key])
            if found is not None:
                return found
        return None


class _Tuple(Observed):
    """A tuple, part by part."""

    def __init__(self, name: str, space: gym.spaces.Tuple) -> None:
        super().__init__(name)
        self._parts = [observed(part, f"{name}[{index}]") for index, part in enumerate(space.spaces)]

    def wrong(self, value: Any) -> Wrong | None:
        """The length, then each part."""
        if not isinstance(value, tuple | list) or len(value) != len(self._parts):
            got = f"{len(value)} parts" if isinstance(value, tuple | list) else type(value).__name__
            return Wrong(f"{self.name} of {got}; its space has {len(self._parts)} parts", "return a tuple")
        return next(
            (found for part, v in zip(self._parts, value, strict=True) if (found := part.wrong(v))), None
        )


class Reward(Observed):
    """A finite number."""

    def wrong(self, value: Any) -> Wrong | None:
        """NaN and infinity, and whatever is no number."""
        try:
            if math.isfinite(value):
                return None
            return Wrong(f"{self.name} of {float(value)}", _FINITE)
        except OverflowError:
            return Wrong(f"{self.name} that is too large for a float", _FINITE)
        except (TypeError, ValueError):
            got = f"{value!r}" if np.ndim(value) == 0 else f"shape {np.shape(value)}"
            return Wrong(f"{self.name} of {got} ({type(value).__name__})", "a reward is one number")


def observed(space: gym.Space, name: str) -> Observed:
    """The check of a space.

    :param name: how the value is called in messages, with its article: "an observation"
    """
    if isinstance(space, gym.spaces.Dict):
        return _Dict(name, space)
    if isinstance(space, gym.spaces.Tuple):
        return _Tuple(name, space)
    if isinstance(space, gym.spaces.Discrete):
        return _Discrete(name, space)
    if isinstance(space, gym.spaces.Box | gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        return _Array(name, space)
    return Observed(name)


def _as_array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except ValueError:  # parts of different lengths
        return None
