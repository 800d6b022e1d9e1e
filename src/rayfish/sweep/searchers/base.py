"""What every search method can do: be asked for a point, be told its score, and remember after a break."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rayfish.errors import RayfishError
from rayfish.sweep.records import plain
from rayfish.sweep.space import Parameter, Space

DONE, STOPPED, FAILED, OPEN = "done", "stopped", "failed", "open"


@dataclass(frozen=True)
class Known:
    """A point that was asked for before the sweep was interrupted.

    :param number: the point's number, from 1
    :param params: its parameters, by dotted key, the active ones only
    :param state: done, stopped (early), failed, or open: it will be told later
    :param value: its score, None where it has none
    :param curve: (step, score) of every report
    """

    number: int
    params: Mapping[str, Any]
    state: str
    value: float | None = None
    curve: Sequence[tuple[float, float]] = field(default_factory=list)


class Searcher(ABC):
    """A search method. Points are asked for in the order of their numbers, and told in any order."""

    total: int | None = None
    """How many points there are at most; None: as many as are asked for."""

    @abstractmethod
    def ask(self, number: int) -> dict[str, Any] | None:
        """The parameters of point `number`, the active ones only; None: there are no more points."""

    @abstractmethod
    def report(self, number: int, step: float, value: float) -> None:
        """A score on the way; most methods have no use for it."""

    @abstractmethod
    def tell(self, number: int, value: float | None, *, pruned: bool = False) -> None:
        """A point is over.

        :param value: its score; None: it failed
        :param pruned: it was ended early, so the score is not what it might have become
        """

    @abstractmethod
    def recall(self, points: Sequence[Known]) -> None:
        """What was asked before an interruption, by number; called once, before anything is asked."""


def generator(seed: int, number: int) -> np.random.Generator:
    """Point `number` has its own random numbers, so that neither order nor a break changes it."""
    return np.random.default_rng([seed % 2**32, number])


def is_active(space: Space, parameter: Parameter, params: Mapping[str, Any]) -> bool:
    """Whether a parameter matters beside the ones chosen; a condition on a key that is not searched holds."""
    keys = space.keys
    return all(
        key not in keys or (key in params and params[key] in allowed) for key, allowed in parameter.when
    )


def drawn(space: Space, given: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A point: the values given, random ones for the others, without what is not active."""
    point: dict[str, Any] = {}
    for parameter in space:
        if is_active(space, parameter, point):
            known = parameter.key in given
            point[parameter.key] = given[parameter.key] if known else parameter.sample(rng, point)
    return point


def position(values: Sequence[Any], value: Any) -> int | None:
    """Where a value stands in a list of choices; None where it does not.

    True is not 1 here, and a tuple that went through JSON is still found.
    """
    for same in (_same, _equal, _written_alike):
        for index, candidate in enumerate(values):
            if same(candidate, value):
                return index
    return None


def allowed(parameter: Parameter, value: Any) -> bool:
    """Whether a value that was read from a file may be a parameter's: a number, or one of its choices."""
    known = value is None or isinstance(value, int | float) or parameter.kind == "sample_from"
    return known or position(parameter.values, value) is not None


def require_point(space: Space, params: Mapping[str, Any], where: str) -> None:
    """A point that was read from a file is one of the space: it must not set anything else.

    :param where: the file
    :raises RayfishError: it has another key, or a text that is none of the key's choices
    """
    for key, value in params.items():
        if key not in space.keys or not allowed(space[key], value):
            raise RayfishError(
                f"{where} has a trial with {key}={value}, which is not in the sweep's space",
                "the file was changed since: put back a copy of it, or begin a new sweep",
            )


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(np.all(a == b))


def _equal(a: Any, b: Any) -> bool:
    return isinstance(a, bool) == isinstance(b, bool) and bool(np.all(a == b))


def _written_alike(a: Any, b: Any) -> bool:
    return json.dumps(a, default=plain, sort_keys=True) == json.dumps(b, default=plain, sort_keys=True)
