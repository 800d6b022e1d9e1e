"""The interface of every search method, and what the methods share."""

from __future__ import annotations

import inspect
import io
import json
import logging
import math
import random
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from rayfish.errors import ConfigError, Problem, RayfishError, suggest
from rayfish.sweep.records import FAILED, STOPPED, finite, plain
from rayfish.sweep.settings import Search
from rayfish.sweep.space import Parameter, Space

CATEGORY, WHOLE, REAL = "category", "whole", "real"
_NORMAL_PARTS = 10_000
"""A normal distribution is searched over its quantiles 1/10000 to 9999/10000: 3.7 deviations each way."""

OPEN = "open"
METHOD_CONFIG = "search.method_config"


@dataclass(frozen=True)
class Known:
    """A point that was asked for before the sweep was interrupted.

    :param params: by dotted key, the active ones only
    :param state: done, stopped (early), failed, or open: its score is still to come
    """

    number: int
    params: Mapping[str, Any]
    state: str
    value: float | None = None
    curve: Sequence[tuple[float, float]] = field(default_factory=list)


class Searcher(ABC):
    """A search method, see `open_searcher`. Points are asked for in order; scores come in any order."""

    total: int | None = None
    """How many points there are at most; None: no limit."""

    def __init__(self, search: Search, space: Space, start: Sequence[Mapping[str, Any]], seed: int) -> None:
        self._search, self._space, self._start, self._seed = search, space, list(start), seed

    @abstractmethod
    def ask(self, number: int) -> dict[str, Any] | None:
        """The parameters of point `number`, the active ones only; None: there are no more points."""

    def report(self, number: int, step: float, value: float) -> None:  # noqa: B027
        """An intermediate score; most methods do not use it."""

    def tell(self, number: int, value: float | None, *, pruned: bool = False) -> None:  # noqa: B027
        """The final score of a point.

        :param value: None: it failed
        :param pruned: it was stopped early, so the score is not what it might have become
        """

    def recall(self, points: Sequence[Known]) -> None:
        """Restores the points of an interrupted sweep; called once, before the first `ask`."""
        for point in sorted(points, key=lambda known: known.number):
            self._take(point.number, point.params)
            for step, value in point.curve:
                self.report(point.number, step, value)
            if point.state != OPEN:
                score = None if point.state == FAILED else point.value
                self.tell(point.number, score, pruned=point.state == STOPPED)

    def _take(self, number: int, params: Mapping[str, Any]) -> None:  # noqa: B027
        """Makes a recorded point one that the method has proposed; for methods that learn."""

    def _start_point(self, number: int) -> Mapping[str, Any]:
        """The starting point of that number, {} after the last one."""
        return self._start[number - 1] if number <= len(self._start) else {}


def generator(seed: int, number: int) -> np.random.Generator:
    """The random numbers of point `number`, the same in any order and after a resume."""
    return np.random.default_rng([seed % 2**32, number])


@contextmanager
def isolated(*seed: Any) -> Iterator[None]:
    """Seeds Python's and NumPy's global random numbers for a library, and restores them afterwards.

    Meanwhile log lines below an error, warnings and printed output are dropped.
    """
    python_state, numpy_state, disabled = (
        random.getstate(),
        np.random.get_state(),
        logging.root.manager.disable,
    )
    random.seed(" ".join(str(part) for part in seed))
    np.random.seed(random.getrandbits(32))
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        logging.disable(disabled)


def arguments(function: Callable[..., Any], *without: str) -> list[str]:
    """The parameters of a function or class by name, except some."""
    found = inspect.signature(function).parameters.values()
    return [
        p.name for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in without
    ]


def check_settings(given: Mapping[str, Any], known: Iterable[str], where: str, what: str) -> None:
    """Refuses settings that a method or scheduler (`what`) does not take.

    :param where: the section they are written in: `search.method_config`
    :raises ConfigError: with every unknown key
    """
    known = sorted(set(known))
    takes = f"it takes {', '.join(known)}" if known else "it takes none"
    problems = [
        Problem(f"{where}.{key}", f"{what} has no such setting", suggest(str(key), known, takes))
        for key in given
        if key not in known
    ]
    if problems:
        raise ConfigError(problems)


def built(make: Callable[..., Any], given: Mapping[str, Any], where: str, what: str) -> Any:
    """`make(**given)` of a library.

    :raises ConfigError: with the library's message, where it refuses a value
    """
    try:
        return make(**given)
    except (ValueError, TypeError, AssertionError) as error:
        why = (str(error) or type(error).__name__).strip().splitlines()[0].rstrip(".")
        refused = Problem(where, f"{what} refuses these settings: {why}", f"change {where}")
        raise ConfigError([refused]) from error


def position(values: Sequence[Any], value: Any) -> int | None:
    """The index of a value in a list of choices; None where it is not in it.

    True is not 1 here, and a tuple that went through JSON is still found.
    """

    def as_json(choice: Any) -> str:
        return json.dumps(choice, default=plain, sort_keys=True)

    tests: list[Callable[[Any], Any]] = [
        lambda other: type(other) is type(value) and np.all(other == value),
        lambda other: isinstance(other, bool) == isinstance(value, bool) and np.all(other == value),
        lambda other: as_json(other) == as_json(value),
    ]
    found = (index for test in tests for index, other in enumerate(values) if test(other))
    return next(found, None)


@dataclass(frozen=True)
class Axis:
    """One parameter in a form that every search method knows: a category, a whole number, a number.

    A value and its code stand for each other exactly, so a resumed method that is given the recorded values
    knows what it knew before.

    :param form: category (codes are places in its list), whole, or real
    :param high: included
    :param log: whether it is searched by magnitude
    """

    parameter: Parameter
    form: str
    low: float
    high: float
    log: bool = False

    @property
    def size(self) -> int:
        """How many codes there are, of a category or a whole number."""
        return int(self.high) - int(self.low) + 1

    def decode(self, code: Any) -> Any:
        """The value that a code stands for."""
        parameter = self.parameter
        if self.form == CATEGORY:
            return parameter.values[int(code)]
        if parameter.kind == "normal":
            return NormalDist(*parameter.values).inv_cdf(int(code) / _NORMAL_PARTS)
        if parameter.kind.startswith("q"):
            value = parameter.rounded(int(code) * parameter.values[2])
            return int(value) if parameter.is_integer else float(value)
        return int(code) if self.form == WHOLE else float(parameter.rounded(float(code)))

    def encode(self, value: Any) -> Any:
        """The code of a value, the nearest one where a value is not quite of this parameter."""
        parameter = self.parameter
        if self.form == CATEGORY:
            return position(parameter.values, value) or 0
        if parameter.kind == "normal":
            code = NormalDist(*parameter.values).cdf(float(value)) * _NORMAL_PARTS
        elif parameter.kind.startswith("q"):
            code = float(value) / parameter.values[2]
        else:
            code = float(value)
        code = min(max(code, self.low), self.high)
        return round(code) if self.form == WHOLE else code

    def holds(self, value: Any) -> bool:
        """Whether a value can be one of this parameter's at all."""
        if self.form == CATEGORY:
            return position(self.parameter.values, value) is not None
        return finite(value) is not None


def axes(space: Space) -> list[Axis]:
    """The parameters that a method chooses; `sample_from` follows from the others and is none."""
    return [_axis(parameter) for parameter in space if parameter.kind != "sample_from"]


def _axis(parameter: Parameter) -> Axis:
    if parameter.is_list:
        return Axis(parameter, CATEGORY, 0, len(parameter.values) - 1)
    if parameter.kind == "normal":
        return Axis(parameter, WHOLE, 1, _NORMAL_PARTS - 1)
    low, high = parameter.bounds
    if parameter.kind.startswith("q"):
        step = parameter.values[2]
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        first = max(first, 1) if parameter.is_log else first
        return Axis(parameter, WHOLE, first, max(first, last), parameter.is_log)
    return Axis(parameter, WHOLE if parameter.is_integer else REAL, low, high, parameter.is_log)


def allowed(parameter: Parameter, value: Any) -> bool:
    """Whether a value that was read from a file may be a parameter's: a number, or one of its choices."""
    known = value is None or isinstance(value, int | float) or parameter.kind == "sample_from"
    return known or position(parameter.values, value) is not None


def require_point(space: Space, params: Mapping[str, Any], where: str) -> None:
    """A point that was read from a file must be one of the space: it must not set anything else.

    :raises RayfishError: it has another key, or a text that is none of the key's choices
    """
    for key, value in params.items():
        if key not in space.keys or not allowed(space[key], value):
            raise RayfishError(
                f"{where} has a trial with {key}={value}, which is not in the sweep's space",
                "the file was changed since: restore a copy of it, or begin a new sweep",
            )
