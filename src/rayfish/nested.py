"""Nested values (dicts and tuples of arrays or tensors), leaf by leaf; for every stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def map_nested(function: Callable[..., Any], *trees: Any) -> Any:
    """`function` over the leaves of trees of the same structure; None stays None."""
    first = trees[0]
    if first is None:
        return None
    if isinstance(first, Mapping):
        return {key: map_nested(function, *(tree[key] for tree in trees)) for key in first}
    if isinstance(first, tuple):
        return tuple(map_nested(function, *parts) for parts in zip(*trees, strict=True))
    return function(*trees)


def first_leaf(tree: Any) -> Any:
    """The first of the leaves."""
    while isinstance(tree, Mapping | tuple):
        tree = next(iter(tree.values())) if isinstance(tree, Mapping) else tree[0]
    return tree
