"""Nested dictionaries by dotted keys: the one place where `training.lr` is split at its dots."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
MISSING = object()

REFERENCE = "${}"
"""Key of a dictionary that is laid upon an interpolation (`${environment.env_config}`), which it keeps."""

_VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:")
_REFERENCE = re.compile(r"\$\{(\.*)([\w-]+(?:\.[\w-]+)*)\}")


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
            child = node[part] = {REFERENCE: child} if _is_reference(child) else {}
        node = child
    if isinstance(node, list):
        node[int(last)] = value
    else:
        node[last] = value


def nested(dotted: str, value: Any) -> dict[str, Any]:
    """Dictionaries with nothing but `value` at `dotted`."""
    tree: dict[str, Any] = {}
    put(tree, dotted, value)
    return tree


def drop(tree: dict[str, Any], dotted: str) -> Any:
    """Remove `dotted` and return what was there (`MISSING` where nothing was)."""
    parent, _, last = dotted.rpartition(".")
    node = get(tree, parent) if parent else tree
    return node.pop(last, MISSING) if isinstance(node, dict) else MISSING


def nearest(found: Mapping[str, T], dotted: str) -> T | None:
    """What a table of dotted keys holds for `dotted`, or for the nearest key above it."""
    while dotted and dotted not in found:
        dotted = dotted.rpartition(".")[0]
    return found.get(dotted)


def forget(found: dict[str, Any], dotted: str) -> None:
    """Remove `dotted` and all keys below it from a table of dotted keys."""
    for key in [key for key in found if f"{key}.".startswith(f"{dotted}.")]:
        del found[key]


def merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid upon `base` in place: dictionaries merge, everything else is replaced.

    A dictionary laid upon an interpolation keeps it as its `REFERENCE`, to be filled in by `expand`.
    """
    for key, value in over.items():
        current = base.get(key)
        if isinstance(value, Mapping) and isinstance(current, dict):
            merge(current, value)
        elif isinstance(value, Mapping) and _is_reference(current):
            base[key] = {REFERENCE: current, **value}
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


def expand(values: dict[str, Any], origins: dict[str, str]) -> None:
    """Lay every dictionary that has a `REFERENCE` upon a copy of what that leads to, as OmegaConf does.

    Relative interpolations in the copy count from its new place; `origins` gets those of the copied values.
    """
    while places := [place for place, _ in leaves(values) if place.endswith(f".{REFERENCE}")]:
        for place in places:
            _fill(values, origins, place.removesuffix(f".{REFERENCE}"))


def from_environment(values: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves that hold an environment variable (`${oc.env:TOKEN}`), or refer to one that does."""
    texts = {key: value for key, value in leaves(values) if "${" in str(value)}
    found = {key for key, value in texts.items() if _VARIABLE.search(str(value))}
    grown = bool(found)
    while grown:
        more = {
            key
            for key, value in texts.items()
            for match in _REFERENCE.finditer(str(value))
            for target in (_target(values, match[0], key),)
            if any(f"{one}.".startswith(f"{target}.") or f"{target}.".startswith(f"{one}.") for one in found)
        }
        grown = not more <= found
        found |= more
    return {key: texts[key] for key in texts if key in found}


def size(values: Mapping[str, Any]) -> int:
    """How many values there are once every interpolation is replaced by what it leads to."""
    known: dict[str, int] = {}

    def of(node: Any, place: str) -> int:
        if isinstance(node, Mapping):
            return 1 + sum(of(value, f"{place}.{key}" if place else str(key)) for key, value in node.items())
        if isinstance(node, list):
            return 1 + sum(of(value, f"{place}.{index}") for index, value in enumerate(node))
        found = _REFERENCE.finditer(node) if isinstance(node, str) and "${" in node else ()
        return 1 + sum(behind(_target(values, match[0], place)) for match in found)

    def behind(place: str) -> int:
        if place not in known:
            known[place] = 1  # where it leads back to itself, which resolving it reports
            known[place] = of(get(values, place), place)
        return known[place]

    return of(values, "")


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def _fill(values: dict[str, Any], origins: dict[str, str], place: str) -> None:
    own = get(values, place)
    reference = own.pop(REFERENCE, None) if isinstance(own, dict) else None
    if reference is None:
        return
    origins.pop(f"{place}.{REFERENCE}", None)
    source = _target(values, reference, place)
    for above in [source[: dot.start()] for dot in re.finditer(r"\.|$", source)]:
        _fill(values, origins, above)
    found = get(values, source)
    if not isinstance(found, dict) or f"{place}.".startswith(f"{source}."):
        return
    for key, _ in leaves(found):
        if get(own, key, MISSING) is MISSING and f"{source}.{key}" in origins:
            origins[f"{place}.{key}"] = origins[f"{source}.{key}"]
    put(values, place, merge(copy.deepcopy(found), own))


def _target(values: Mapping[str, Any], reference: str, place: str) -> str:
    """The dotted key that an interpolation written at `place` leads to in the end."""
    for _ in range(10):
        dots, name = _REFERENCE.fullmatch(reference).groups()  # type: ignore[union-attr]
        above = place.split(".")[: -len(dots)] if dots else []
        place = ".".join([*above, name])
        found = get(values, place)
        if not _is_reference(found):
            break
        reference = found
    return place
