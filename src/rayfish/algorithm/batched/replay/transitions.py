"""Small operations on rollouts and trees that the replay buffer is made of."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rayfish.algorithm.batched.rollout import Rollout, Tree
from rayfish.errors import RayfishError
from rayfish.memory import memory
from rayfish.nested import map_nested
from rayfish.text import size

STEP_ARRAYS = ("actions", "rewards", "terminated")
"""What is stored of every step besides the observation."""


# Python has the constant since 3.13; elsewhere than on Linux no such flag is needed.
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
_ROOM = 0.8  # of the free memory for a suggested capacity


def empty_rows(rows: int, like: Tensor, device: torch.device) -> Tensor:
    """Uninitialised rows like those of `like`, which on the CPU take memory only as they are written.

    torch.empty cannot promise that: Linux refuses it more than the machine has, and under deterministic
    algorithms (any seeded run) torch fills new tensors.
    """
    shape = (rows, *like.shape[1:])
    count = math.prod(shape)
    if device.type != "cpu" or not count:
        return torch.empty(shape, dtype=like.dtype, device=device)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    memory = mmap.mmap(-1, count * like.element_size(), flags=flags)
    return torch.frombuffer(memory, dtype=like.dtype).view(shape)


@contextmanager
def within_memory(capacity: int, like: Tree, device: torch.device) -> Iterator[None]:
    """Turns a failed allocation of a buffer into a message with the capacity that fits."""
    try:
        yield
    except (OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):  # torch's own have no other mark
            raise
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else memory()[0]
        row = sum(leaf[0].numel() * leaf.element_size() for leaf, _ in pairs(like, like))
        fitting = max(1, int(float(f"{_ROOM * free / row:.1e}")))  # to two digits
        raise RayfishError(
            f"there is no memory for a replay buffer of {capacity:,} steps ({size(row * capacity)}): "
            f"{size(free)} are free",
            f"set training.replay_buffer_config.capacity={min(fitting, max(1, capacity // 2))}",
        ) from error


def indexed(rollout: Rollout) -> Rollout:
    """A rollout that has the last observations of ended episodes alone."""
    if rollout.final_index is not None:
        return rollout
    ends = rollout.done.reshape(-1).nonzero().squeeze(-1)
    final_obs = map_nested(lambda leaf: leaf.flatten(0, 1).index_select(0, ends), rollout.final_obs)
    return replace(rollout, final_index=ends, final_obs=final_obs)


def newest(rollout: Rollout, steps: int) -> Rollout:
    """The last steps of a rollout alone."""
    assert rollout.final_index is not None
    total, slots = rollout.shape
    first = total - steps
    ends = rollout.final_index >= first * slots
    cut = {
        name: map_nested(lambda leaf: leaf[first:], getattr(rollout, name))
        for name in ("obs", *STEP_ARRAYS, "done", "valid")
    }
    return replace(
        rollout,
        **cut,
        extras={},
        final_index=rollout.final_index[ends] - first * slots,
        final_obs=map_nested(lambda leaf: leaf[ends], rollout.final_obs),
    )


def copy_rows(array: Tensor, places: Tensor, new: Tensor, chosen: Tensor | None) -> None:
    """Writes rows of `new`, all or those at `chosen`, to places of an array."""
    rows = new if chosen is None else new.index_select(0, chosen)
    array.index_copy_(0, places, rows.to(array.dtype))


def pairs(one: Tree, other: Tree) -> Iterator[tuple[Any, Any]]:
    """The leaves of two trees of the same structure, side by side."""
    if isinstance(one, dict):
        for key, value in one.items():
            yield from pairs(value, other[key])
    elif isinstance(one, tuple):
        for left, right in zip(one, other, strict=True):
            yield from pairs(left, right)
    else:
        yield one, other
