"""The `search` section, checked: how a sweep searches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rayfish.errors import ConfigError, Problem, did_you_mean
from rayfish.experiment.sections import SECTIONS, SearchKeys

DEFAULT_SAMPLES = 20
POPULATIONS = ("pbt", "pb2")
PAUSING = ("hyperband", "pbt", "pb2")
"""Schedulers that let trials wait, which a trial must survive: it has to be able to resume."""


class Search(SearchKeys):
    """How a sweep searches; its keys are declared and documented in `experiment/sections.py`, once."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Search) and to_dict(self) == to_dict(other)

    __hash__ = None  # type: ignore[assignment]

    def replace(self, **values: Any) -> Search:
        """A copy with some keys set again."""
        return Search(**{**self.values, **values})

    @property
    def sign(self) -> float:
        """1 where more is better, -1 where less is."""
        return 1.0 if self.mode == "max" else -1.0

    def better(self, a: float | None, b: float | None) -> bool:
        """Whether score `a` is better than `b`; a trial without a score is never better."""
        return a is not None and not math.isnan(a) and (b is None or self.sign * a > self.sign * b)


def read(values: Mapping[str, Any], where: str = "") -> Search:
    """The settings in a `search` section.

    :raises ConfigError: with everything that is wrong
    """
    known = SECTIONS["search"].own
    problems = []
    given = {key: value for key, value in values.items() if value is not None}
    for key, value in given.items():
        if key not in known:
            close = did_you_mean(key, known)
            hint = f"did you mean search.{close[0]}?" if close else f"there are {', '.join(known)}"
            problems.append(Problem(f"search.{key}", "there is no such key", hint, where))
        elif known[key].choices and str(value).lower() not in known[key].choices:
            close = did_you_mean(str(value).lower(), known[key].choices)
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(known[key].choices)}"
            problems.append(Problem(f"search.{key}", f"cannot be {value!r}", hint, where))
        elif known[key].choices:
            given[key] = str(value).lower()
        else:
            problems += _wrong(key, value, known[key].type, where)
    if problems:
        raise ConfigError(problems)
    if not isinstance(given.get("start_from", []), list | tuple):
        given["start_from"] = [given["start_from"]]
    search = Search(**given)
    problems += _contradictions(search, where)
    if problems:
        raise ConfigError(problems)
    return search


def to_dict(search: Search) -> dict[str, Any]:
    """The settings as plain values."""
    values = {key: getattr(search, key) for key in SECTIONS["search"].own}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _wrong(key: str, value: Any, kind: str, where: str) -> list[Problem]:
    kinds = {"int": int, "float": (int, float), "bool": bool, "dict": Mapping, "str": str, "null": type(None)}
    allowed: tuple[Any, ...] = ()
    for name in kind.split(" | "):
        found = kinds.get(name, object)
        allowed += found if isinstance(found, tuple) else (found,)
    least = {"num_samples": 1, "repeat": 1, "max_concurrent": 1, "max_failures": 0, "time_budget_s": 1}
    wrong_bool = isinstance(value, bool) and kind != "bool"
    if wrong_bool or not isinstance(value, allowed):
        return [
            Problem(
                f"search.{key}",
                f"takes {kind}, not {value!r}",
                "`rayfish config keys search` explains it",
                where,
            )
        ]
    if key in least and value < least[key]:
        return [Problem(f"search.{key}", f"is {value}", f"give {least[key]} or more", where)]
    return []


def _contradictions(search: Search, where: str) -> list[Problem]:
    found = []
    if search.scheduler in POPULATIONS and search.repeat > 1:
        what = f"search.repeat={search.repeat} with {search.scheduler}, which changes points on the way"
        found.append(Problem("search.repeat", what, "leave one of the two out", where))
    if search.scheduler in POPULATIONS and search.method not in ("auto", "random", "grid"):
        what = (
            f"{search.scheduler} moves a population by itself; {search.method} would propose points beside it"
        )
        found.append(Problem("search.method", what, "set search.method=random", where))
    if search.scheduler == "pruner" and search.method not in ("auto", "optuna"):
        what = f"the scheduler pruner is Optuna's, the method is {search.method}"
        found.append(
            Problem("search.scheduler", what, "set search.method=optuna, or scheduler=median", where)
        )
    if search.method == "bohb" and search.scheduler not in ("none", "hyperband"):
        what = (
            f"BOHB is Bayesian optimisation with HyperBand; {search.scheduler} cannot take HyperBand's place"
        )
        found.append(Problem("search.scheduler", what, "leave search.scheduler out", where))
    return found
