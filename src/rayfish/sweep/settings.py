"""The `search` section, checked: how a sweep searches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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
        choices = known[key].choices if key in known else ()
        what = hint = ""
        if key not in known:
            close = did_you_mean(key, known)
            hint = f"did you mean search.{close[0]}?" if close else f"there are {', '.join(known)}"
            what = "there is no such key"
        elif not choices:
            what, hint = _wrong(key, value, known[key].type)
        elif str(value).lower() in choices:
            given[key] = str(value).lower()
        else:
            close = did_you_mean(str(value).lower(), choices)
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(choices)}"
            what = f"cannot be {value!r}"
        if what:
            problems.append(Problem(f"search.{key}", what, hint, where))
    if problems:
        raise ConfigError(problems)
    if not isinstance(given.get("start_from", []), list | tuple):
        given["start_from"] = [given["start_from"]]
    search = Search(**given)
    problems = [Problem(f"search.{key}", what, hint, where) for key, what, hint in _contradictions(search)]
    if problems:
        raise ConfigError(problems)
    return search


def to_dict(search: Search) -> dict[str, Any]:
    """The settings as plain values."""
    values = {key: getattr(search, key) for key in SECTIONS["search"].own}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _wrong(key: str, value: Any, kind: str) -> tuple[str, str]:
    """What is wrong with a value, and the next step; "" for nothing."""
    kinds = {"int": int, "float": (int, float), "bool": bool, "dict": Mapping, "str": str, "null": type(None)}
    allowed: tuple[Any, ...] = ()
    for name in kind.split(" | "):
        found = kinds.get(name, object)
        allowed += found if isinstance(found, tuple) else (found,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind != "bool"):
        return f"takes {kind}, not {value!r}", "`rayfish config keys search` explains it"
    least = {"num_samples": 1, "repeat": 1, "max_concurrent": 1, "max_failures": 0, "time_budget_s": 1}
    if key in least and value < least[key]:
        return f"is {value}", f"give {least[key]} or more"
    return "", ""


def _contradictions(search: Search) -> Iterator[tuple[str, str, str]]:
    """Settings that exclude each other: the key of one, what is wrong, and the next step."""
    scheduler, method = search.scheduler, search.method
    if scheduler in POPULATIONS and search.repeat > 1:
        what = f"search.repeat={search.repeat} with {scheduler}, which changes points on the way"
        yield "repeat", what, "leave one of the two out"
    if scheduler in POPULATIONS and method not in ("auto", "random", "grid"):
        what = f"{scheduler} moves a population by itself; {method} would propose points beside it"
        yield "method", what, "set search.method=random"
    if scheduler == "pruner" and method not in ("auto", "optuna"):
        what = f"the scheduler pruner is Optuna's, the method is {method}"
        yield "scheduler", what, "set search.method=optuna, or scheduler=median"
    if method == "bohb" and scheduler not in ("none", "hyperband"):
        what = f"BOHB is Bayesian optimisation with HyperBand; {scheduler} cannot take HyperBand's place"
        yield "scheduler", what, "leave search.scheduler out"
