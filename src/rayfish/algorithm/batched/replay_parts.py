"""Small operations on rollouts and trees that the replay buffer is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from rayfish.algorithm.batched.rollout import Rollout, Tree
from rayfish.nested import map_nested

STEP_ARRAYS = ("actions", "rewards", "terminated")
"""What is stored of every step besides the observation."""


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
        if getattr(rollout, name) is not None
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
