"""Gymnasium spaces as JSON and back, without loss, so that a saved policy needs no pickle."""

from __future__ import annotations

import base64
import io
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rayfish.errors import ModelError


def to_json(space: gym.Space) -> dict[str, Any]:
    """A space as plain JSON values.

    :raises ModelError: a kind of space that no model reads
    """
    if isinstance(space, spaces.Box):
        return {
            "kind": "Box",
            "shape": list(space.shape),
            "dtype": str(space.dtype),
            "low": _bound(space.low),
            "high": _bound(space.high),
        }
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {
            "kind": "MultiDiscrete",
            "nvec": np.asarray(space.nvec).tolist(),
            "start": np.asarray(space.start).tolist(),
            "dtype": str(space.dtype),
        }
    if isinstance(space, spaces.MultiBinary):
        flat = isinstance(space.n, int | np.integer)
        return {"kind": "MultiBinary", "n": int(space.n) if flat else list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": [[key, to_json(sub)] for key, sub in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "spaces": [to_json(sub) for sub in space.spaces]}
    raise ModelError(
        f"a {type(space).__name__} space cannot be saved with a policy",
        "use Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple",
    )


def from_json(data: dict[str, Any]) -> gym.Space:
    """The space that `to_json` was given."""
    kind = data["kind"]
    if kind == "Box":
        shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
        low, high = (_unbound(data[side], shape, dtype) for side in ("low", "high"))
        return spaces.Box(low=low, high=high, shape=shape, dtype=dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    if kind == "MultiDiscrete":
        dtype = np.dtype(data["dtype"])
        return spaces.MultiDiscrete(
            np.array(data["nvec"], dtype=dtype), dtype=dtype.type, start=data["start"]
        )
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"])
    if kind == "Dict":
        return spaces.Dict([(key, from_json(sub)) for key, sub in data["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([from_json(sub) for sub in data["spaces"]])
    raise ModelError(f"unknown kind of space {kind!r} in a saved policy", "it was made by a newer Rayfish")


def _bound(array: np.ndarray) -> str | dict[str, str]:
    """One number as text when all are the same (text, because JSON has no infinity), else the array."""
    if array.size and np.all(array == array.flat[0]):
        return repr(array.flat[0].item())
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return {"npy": base64.b64encode(buffer.getvalue()).decode("ascii")}


def _unbound(value: str | dict[str, str], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if isinstance(value, str):
        number = float(value) if dtype.kind == "f" else int(value)
        return np.full(shape, number, dtype=dtype)
    return np.load(io.BytesIO(base64.b64decode(value["npy"])), allow_pickle=False)
