"""The interface of every search method, and what the methods share."""

from __future__ import annotations

import inspect
import io
import json
import logging
import random
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rayfish.errors import ConfigError, Problem, RayfishError, suggest
from rayfish.sweep.records import plain
from rayfish.sweep.settings import Search
from rayfish.sweep.space import Parameter, Space

OPEN = "open"
METHOD_CONFIG = "search.method_config"


@dataclass(frozen=True)
class Known:
    """A point that was asked for before the sweep was interrupted.

    :param number: the point's number, from 1
    :param params: its parameters, by dotted key, the active ones only
    :param state: done, stopped (early), failed, or open: its score will be told later
    :param value: its score, None where it has none
    :param curve: (step, score) of every report
    """

    number: int
    params: Mapping[str, Any]
    state: str
    value: float | None = None
    curve: Sequence[tuple[float, float]] = field(default_factory=list)


class Searcher(ABC):
    """A search method. Points are asked for in the order of their numbers; scores come in any order.

    :param start: points to try first, whole or partial
    :param seed: the same seed and the same scores give the same points
    """

    total: int | None = None
    """How many points there are at most; None: as many as are asked for."""

    def __init__(
        self, search: Search, space: Space, start: Sequence[Mapping[str, Any]] = (), *, seed: int = 0
    ) -> None:
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

    def recall(self, points: Sequence[Known]) -> None:  # noqa: B027
        """Restores the points of an interrupted sweep; called once, before the first `ask`."""

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
    """Refuses settings of a method or scheduler that it does not take.

    :param where: the section they are written in: `search.method_config`
    :param what: whose settings they are, for the message
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
    for same in (_same, _equal, _same_json):
        for index, candidate in enumerate(values):
            if same(candidate, value):
                return index
    return None


def allowed(parameter: Parameter, value: Any) -> bool:
    """Whether a value that was read from a file may be a parameter's: a number, or one of its choices."""
    known = value is None or isinstance(value, int | float) or parameter.kind == "sample_from"
    return known or position(parameter.values, value) is not None


def require_point(space: Space, params: Mapping[str, Any], where: str) -> None:
    """A point that was read from a file must be one of the space: it must not set anything else.

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


def _same_json(a: Any, b: Any) -> bool:
    return json.dumps(a, default=plain, sort_keys=True) == json.dumps(b, default=plain, sort_keys=True)
