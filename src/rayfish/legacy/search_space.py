"""Search spaces in old files: `grid_search` and its like become `tunables`; a single run takes one value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_SAME = ("choice", "uniform", "loguniform", "quniform", "qloguniform", "randint", "qrandint", "lograndint")
_KINDS = {"grid_search": "grid", "randn": "normal", "normal": "normal", **{kind: kind for kind in _SAME}}
"""Functions of Tune's -> the type in `tunables`."""

_CODE = ("sample_from", "eval", "function", "lambda")


@dataclass(frozen=True)
class OldSearchSpace:
    """One search space.

    :param path: the keys that lead to it
    :param kind: its type in `tunables`; "" when it is code, which is not run
    :param values: the values to try, or the bounds
    """

    path: tuple[str, ...]
    kind: str
    values: list[Any]

    @property
    def choices(self) -> list[Any]:
        """Values that a run could take: all of a list, one of a range."""
        if self.kind in ("grid", "choice"):
            return self.values
        return [_middle(self.kind, self.values)]


def find(value: Any, path: tuple[str, ...] = ()) -> Iterator[OldSearchSpace]:
    """Every search space in a value, however deep."""
    if not isinstance(value, Mapping):
        return
    if len(value) == 1:
        word, inner = next(iter(value.items()))
        known = ("grid_search",) if _is_the_users(path) else tuple(_KINDS)
        if word in known and isinstance(inner, list) and _bounds(word, inner):
            yield OldSearchSpace(path, _KINDS[word], inner)
            return
        if word in _CODE and isinstance(inner, str) and not _is_the_users(path):
            yield OldSearchSpace(path, "", [inner])
            return
    for key, inner in value.items():
        yield from find(inner, (*path, str(key)))


def _is_the_users(path: tuple[str, ...]) -> bool:
    """Whether the keys here are the user's own, which may well be called `choice` or `function`."""
    return any(part in ("env_config", "custom_model_config") for part in path)


def _bounds(word: str, values: list[Any]) -> bool:
    """Whether a list can be what it says: values to choose from, or two numbers that are a range."""
    if word in ("grid_search", "choice"):
        return bool(values)
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return 2 <= len(values) == len(numbers) and not ("log" in word and min(numbers[:2]) <= 0)


def settled(value: Any, chosen: Mapping[tuple[str, ...], Any], path: tuple[str, ...] = ()) -> Any:
    """The value with every search space replaced by the one chosen for it."""
    if path in chosen:
        return chosen[path]
    if isinstance(value, Mapping):
        return {key: settled(inner, chosen, (*path, str(key))) for key, inner in value.items()}
    return value


def _middle(kind: str, bounds: list[Any]) -> Any:
    low, high = bounds[:2]
    if kind.endswith("randint") or kind == "normal":
        return low  # of a normal distribution, the mean
    return math.sqrt(low * high) if "log" in kind else (low + high) / 2
