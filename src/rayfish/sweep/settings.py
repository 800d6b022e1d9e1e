"""The `search` section, checked: how a sweep searches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rayfish.errors import ConfigError, Problem, suggest
from rayfish.experiment.sections import SECTIONS, Field, SearchKeys

DEFAULT_SAMPLES = 20
POPULATIONS = ("pbt", "pb2")
PAUSING = ("hyperband", "pbt", "pb2")
"""Schedulers that let trials wait, which a trial must survive: it has to be able to resume."""

_LEAST = {"num_samples": 1, "repeat": 1, "max_concurrent": 1, "max_failures": 0, "time_budget_s": 1}
_KINDS = {
    "str": str,
    "list": list | tuple,
    "dict": Mapping,
    "bool": bool,
    "int": int,
    "float": int | float,
    "null": type(None),
}


class Search(SearchKeys):
    """How a sweep searches; its keys are declared and documented in `experiment/sections.py`, once."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)

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
    given = {key: value for key, value in values.items() if value is not None}
    if not isinstance(given.get("start_from", []), list | tuple):
        given["start_from"] = [given["start_from"]]
    problems = checked(given, known, "search", where, "`rayfish config keys search` explains it")
    for key, least in _LEAST.items():
        if type(given.get(key)) in (int, float) and given[key] < least:
            problems.append(Problem(f"search.{key}", f"is {given[key]}", f"give {least} or more", where))
    if problems:
        raise ConfigError(problems)
    search = Search(**{k: v.lower() if known[k].choices else v for k, v in given.items()})
    problems = [Problem(f"search.{key}", what, hint, where) for key, what, hint in _contradictions(search)]
    if problems:
        raise ConfigError(problems)
    return search


def to_dict(search: Search) -> dict[str, Any]:
    """The settings as plain values."""
    values = {key: getattr(search, key) for key in SECTIONS["search"].own}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def checked(
    values: Mapping[str, Any], known: Mapping[str, Field], section: str, where: str = "", explained: str = ""
) -> list[Problem]:
    """What is wrong with a section's keys and with the kinds of their values.

    :param explained: the next step for a value of a wrong kind
    """
    problems = []
    for name, value in values.items():
        rule, what, hint = known.get(name), "", ""
        if rule is None:
            what, hint = "there is no such key", suggest(str(name), known, f"there are {', '.join(known)}")
        elif value is None:
            continue
        elif (isinstance(value, bool) and "bool" not in rule.type) or not any(
            isinstance(value, _KINDS.get(kind, object)) for kind in rule.type.split(" | ")
        ):
            what, hint = f"takes {rule.type}, not {value!r}", explained
        elif rule.choices and str(value).lower() not in rule.choices:
            what = f"cannot be {value!r}"
            hint = suggest(str(value).lower(), rule.choices, f"one of {', '.join(rule.choices)}")
        elif rule.type == "float" and not 0 < value < math.inf:
            what, hint = f"is {value}", "give a number above 0"
        if what:
            problems.append(Problem(f"{section}.{name}" if section else str(name), what, hint, where))
    return problems


def _contradictions(search: Search) -> Iterator[tuple[str, str, str]]:
    """Settings that exclude each other: the key of one, what is wrong, and the next step."""
    scheduler, method = search.scheduler, search.method
    if scheduler in POPULATIONS and search.repeat > 1:
        what = f"search.repeat={search.repeat} with {scheduler}, which changes points on the way"
        yield "repeat", what, "leave one of the two out"
    if scheduler in POPULATIONS and method not in ("auto", "random", "grid"):
        what = f"{scheduler} moves a population by itself; {method} would propose points as well"
        yield "method", what, "set search.method=random"
    if scheduler == "pruner" and method not in ("auto", "optuna"):
        what = f"the scheduler pruner is Optuna's, the method is {method}"
        yield "scheduler", what, "set search.method=optuna, or scheduler=median"
    if method == "bohb" and scheduler not in ("none", "hyperband"):
        what = f"BOHB is Bayesian optimisation with HyperBand; {scheduler} cannot take HyperBand's place"
        yield "scheduler", what, "leave search.scheduler out"
