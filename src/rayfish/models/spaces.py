"""What a model sees of an observation, and how many numbers an action needs. Torch-free.

An observation space is a tree; a model reads its *leaves*. A Dict with a key `action_mask` is
a mask of actions: it is taken out, the rest is what the model sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rayfish.errors import ModelError, RayfishError

MASK_KEY = "action_mask"
OBSERVATIONS_KEY = "observations"
SMALLEST_IMAGE = 8
"""Pixels: a Box with a smaller side is a vector unless `conv_filters` is written."""

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Leaf:
    """One leaf of an observation space.

    :param path: keys and indices from the root of what the model sees
    """

    path: Path
    space: gym.Space
    kind: Literal["vector", "image", "onehot"]

    @property
    def name(self) -> str:
        """The path as people write it ("" for the root)."""
        return ".".join(str(part) for part in self.path)


def split_mask(space: gym.Space) -> tuple[gym.Space, spaces.Space | None]:
    """The space without its action mask, and the mask's space (None when there is no mask)."""
    if not isinstance(space, spaces.Dict) or MASK_KEY not in space.spaces:
        return space, None
    rest = {key: sub for key, sub in space.spaces.items() if key != MASK_KEY}
    if not rest:
        raise ModelError(
            f"the observation has nothing but {MASK_KEY!r}",
            f'give the model something to see: Dict({{"{OBSERVATIONS_KEY}": ..., "{MASK_KEY}": ...}})',
        )
    inner = rest[OBSERVATIONS_KEY] if set(rest) == {OBSERVATIONS_KEY} else spaces.Dict(rest)
    return inner, space.spaces[MASK_KEY]


def without_mask(observation: Any, space: gym.Space) -> Any:
    """The part of an observation of `space` that belongs to `split_mask(space)[0]`."""
    if not isinstance(space, spaces.Dict) or MASK_KEY not in space.spaces:
        return observation
    if len(space.spaces) == 2 and OBSERVATIONS_KEY in space.spaces:
        return observation[OBSERVATIONS_KEY]
    return {key: value for key, value in observation.items() if key != MASK_KEY}


def map_space(function: Callable[..., Any], space: gym.Space, *trees: Any) -> Any:
    """`function(leaf space, leaves...)` over a space and trees of its structure."""
    if isinstance(space, spaces.Dict):
        return {
            key: map_space(function, sub, *(tree[key] for tree in trees)) for key, sub in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(map_space(function, *parts) for parts in zip(space.spaces, *trees, strict=True))
    return function(space, *trees)


def leaves(space: gym.Space, *, convolve: bool = False, path: Path = ()) -> list[Leaf]:
    """The leaves of an observation space (without a mask), in a fixed order.

    :param convolve: treat small images as images too, because `conv_filters` is written
    :param path: of the space within the whole observation
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        keys = sorted(space.spaces, key=str) if isinstance(space, spaces.Dict) else range(len(space.spaces))
        return [leaf for key in keys for leaf in leaves(space[key], convolve=convolve, path=(*path, key))]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return [Leaf(path, space, "onehot")]
    if isinstance(space, spaces.MultiBinary):
        return [Leaf(path, space, "vector")]
    if isinstance(space, spaces.Box):
        return [Leaf(path, space, "image" if is_image(space, convolve=convolve) else "vector")]
    where = f" at {'.'.join(map(str, path))!r}" if path else ""
    raise ModelError(
        f"observation space {type(space).__name__}{where} has no encoder",
        "observations may be Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of those; "
        "wrap the environment, or write a custom_model",
    )


def is_image(space: spaces.Box, *, convolve: bool = False) -> bool:
    """Whether a Box is encoded by convolutions."""
    if len(space.shape) not in (2, 3):
        return False
    height, width, _, _ = image_layout(space)
    return min(height, width) >= SMALLEST_IMAGE or (convolve and len(space.shape) == 3)


def image_layout(space: spaces.Box) -> tuple[int, int, int, bool]:
    """(height, width, channels, channels come first) of an image Box.

    Three axes: the channels are the last, unless the first is smaller (a stack of 4 frames of
    84x84 is (4, 84, 84)). Two axes: one channel.
    """
    if len(space.shape) == 2:
        return space.shape[0], space.shape[1], 1, True
    first, middle, last = space.shape
    if first < last and first <= 32:
        return middle, last, first, True
    return first, middle, last, False


def default_filters(height: int, width: int) -> list[list[int]]:
    """Convolutions for an image of this size: halve it until its longer side is at most 6 pixels.

    Padding is "same", so a stride s turns n pixels into ceil(n / s) and no image is too small.
    """
    filters: list[list[int]] = []
    if min(height, width) >= 48:
        filters.append([32, 8, 4])
        height, width = math.ceil(height / 4), math.ceil(width / 4)
    elif max(height, width) < 16:
        filters.append([32, 3, 1])
    while max(height, width) > 6:
        small = max(height, width) < 16
        filters.append([32 if not filters else 64, 3 if small else 4, 2])
        height, width = math.ceil(height / 2), math.ceil(width / 2)
    return [*filters, [64, 3, 1]]


def onehot_sizes(space: gym.Space) -> tuple[list[int], list[int]]:
    """(categories, first value) of each component of a Discrete or MultiDiscrete space."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)], [int(space.start)]
    assert isinstance(space, spaces.MultiDiscrete)
    start = getattr(space, "start", None)
    sizes = np.asarray(space.nvec).reshape(-1)
    first = np.zeros_like(sizes) if start is None else np.asarray(start).reshape(-1)
    return [int(n) for n in sizes], [int(s) for s in first]


def action_outputs(space: gym.Space) -> int:
    """How many numbers parametrise the action distribution: logits, or means and log deviations."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(np.sum(space.nvec))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return 2 * int(np.prod(space.shape))
    raise ModelError(
        f"action space {space} has no action distribution",
        "actions may be Discrete, MultiDiscrete or Box with float numbers; wrap the environment",
    )


def as_arrays(observation: Any, space: gym.Space, lead: int, name: str = "observation") -> Any:
    """An observation as arrays of the space's structure, with `lead` axes in front of each leaf.

    :raises RayfishError: a part is missing or has another shape than the space
    """
    hint = "give the observation as the environment gives it"
    got = type(observation).__name__
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping) or not set(space.spaces) <= set(observation):
            has = sorted(map(str, observation)) if isinstance(observation, Mapping) else got
            raise RayfishError(
                f"{name} should be a dict with {sorted(map(str, space.spaces))}, got {has}", hint
            )
        return {
            key: as_arrays(observation[key], sub, lead, f"{name}[{key!r}]")
            for key, sub in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        if not isinstance(observation, Sequence) or len(observation) != len(space.spaces):
            raise RayfishError(f"{name} should be a tuple of {len(space.spaces)} parts, got {got}", hint)
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
