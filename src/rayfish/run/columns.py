"""Gymnasium spaces as columns of a Parquet file.

| space | column |
|---|---|
| Discrete, Box without axes | a number |
| Box, MultiDiscrete, MultiBinary | a fixed-size list of the space's own number type (an image stays bytes) |
| the same with two axes and more | the same list, marked as Arrow's tensor of that shape |
| Dict, Tuple | one column per part: `observation.position`, `action.0` |

pandas, Polars and DuckDB see lists in C order; pyarrow's `to_numpy_ndarray()` gives them their shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa

from rayfish.errors import EnvironmentFault


@dataclass(frozen=True)
class ColumnLeaf:
    """One column: a part of a space that holds numbers.

    :param column: its name in the file
    :param path: the keys and indices that lead to it in an observation or action
    """

    column: str
    path: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return int(np.prod(self.shape, dtype=np.int64))

    @cached_property
    def type(self) -> Any:
        """The column's type in Arrow's words."""
        number = pa.from_numpy_dtype(self.dtype)
        if not self.shape:
            return number
        if self.size == 0:
            return pa.list_(number)  # Arrow knows no fixed-size list of nothing
        if len(self.shape) > 1 and self.dtype != np.bool_:
            return pa.fixed_shape_tensor(number, self.shape)
        return pa.list_(number, self.size)

    def of(self, value: Any) -> np.ndarray[Any, Any]:
        """This leaf's numbers in an observation or action: a copy, because environments reuse arrays.

        :raises EnvironmentFault: the value has another structure or size than its space
        """
        part = value
        try:
            for key in self.path:
                part = part[key]
            numbers = np.array(part).astype(self.dtype, copy=False).reshape(-1)
        except (LookupError, TypeError, ValueError) as error:
            raise EnvironmentFault(
                f"{self.column} cannot be written down: {type(error).__name__}: {error}",
                "return what the space declares; `rayfish env check` tells more",
            ) from error
        if numbers.size != self.size:
            raise EnvironmentFault(
                f"{self.column} has shape {np.shape(part)}, its space declares {self.shape}",
                "return what the space declares; `rayfish env check` tells more",
            )
        return numbers

    def array(self, values: Sequence[np.ndarray[Any, Any] | None]) -> Any:
        """The column of many rows; None is a missing value."""
        missing = np.array([value is None for value in values])
        if self.shape and self.size == 0:
            return pa.array([None if value is None else [] for value in values], self.type)
        blank = np.zeros(self.size, self.dtype)
        flat = np.concatenate([blank if value is None else value for value in values])
        if not self.shape:
            return pa.array(flat, mask=missing)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(flat), self.size, mask=pa.array(missing))
        return (
            pa.ExtensionArray.from_storage(self.type, lists)
            if isinstance(self.type, pa.FixedShapeTensorType)
            else lists
        )


def leaves(space: gym.Space[Any], column: str, path: tuple[Any, ...] = ()) -> Iterator[ColumnLeaf]:
    """The columns of a space, in its own order.

    :raises EnvironmentFault: a kind of space that holds no fixed count of numbers
    """
    parts: Mapping[Any, gym.Space[Any]] | None = None
    if isinstance(space, gym.spaces.Dict):
        parts = space.spaces
    elif isinstance(space, gym.spaces.Tuple):
        parts = dict(enumerate(space.spaces))
    if parts is not None:
        for key, part in parts.items():
            yield from leaves(part, f"{column}.{key}", (*path, key))
    elif space.shape is not None and space.dtype is not None:
        yield ColumnLeaf(column, path, tuple(space.shape), np.dtype(space.dtype))
    else:
        raise EnvironmentFault(
            f"a {type(space).__name__} space ({column}) has no fixed count of numbers, so no column holds it",
            "use Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple",
        )


def by_policy(column: str, spaces: Mapping[str, gym.Space[Any]]) -> dict[str, list[ColumnLeaf]]:
    """The columns of each policy: the same for all where their spaces are alike.

    Else each has columns of its own, `observation.<policy>`, which are null in the others' rows.

    :param spaces: policy -> its space
    """
    shared = {policy: list(leaves(space, column)) for policy, space in spaces.items()}
    first = next(iter(shared.values()))
    if all(found == first for found in shared.values()):
        return shared
    return {policy: list(leaves(space, f"{column}.{policy}")) for policy, space in spaces.items()}


def as_json(value: Any) -> str:
    """Whatever an environment puts into its info, as JSON text.

    Arrays become lists and NumPy's numbers numbers; what JSON cannot hold becomes its `repr`.
    """
    try:
        return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # a structure that contains itself
        return json.dumps(repr(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):  # arrays, NumPy's numbers, tensors
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else repr(value)
    return value if isinstance(value, str | int | bool | None) else repr(value)
