"""Nested dictionaries by dotted keys: the one place where `training.lr` is split at its dots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MISSING = object()


def get(tree: Mapping[str, Any], dotted: str, default: Any = None) -> Any:
    """The value at `dotted`, or `default` where there is none."""
    node: Any = tree
    for part in dotted.split("."):
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        else:
            return default
    return node


def put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    """Set `dotted` to `value`, making the dictionaries on the way."""
    *parents, last = dotted.split(".")
    node: Any = tree
    for part in parents:
        if isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
            continue
        child = node.get(part)
        if not isinstance(child, dict | list):
            child = node[part] = {}
        node = child
    if isinstance(node, list):
        node[int(last)] = value
    else:
        node[last] = value


def drop(tree: dict[str, Any], dotted: str) -> Any:
    """Remove `dotted` and return what was there (`MISSING` where nothing was)."""
    parent, _, last = dotted.rpartition(".")
    node = get(tree, parent) if parent else tree
    return node.pop(last, MISSING) if isinstance(node, dict) else MISSING


def merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid upon `base` in place: dictionaries merge, everything else is replaced."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = value
    return base


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its dotted key; an empty dictionary counts as a leaf."""
    for key, value in tree.items():
        dotted = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            yield from leaves(value, dotted)
        else:
            yield dotted, value
