"""Settings of a method or scheduler, checked against what it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rayfish.errors import ConfigError, Problem, did_you_mean


def arguments(function: Callable[..., Any], *without: str) -> list[str]:
    """The names of what a function or class can be given, less some."""
    found = inspect.signature(function).parameters.values()
    return [
        p.name for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in without
    ]


def check(given: Mapping[str, Any], known: Iterable[str], where: str, what: str) -> None:
    """That every key is known.

    :param where: the section they are written in: `search.method_config`
    :param what: whose settings they are, for the message
    :raises ConfigError: with every key that is not
    """
    known = sorted(set(known))
    problems = []
    for key in given:
        if key in known:
            continue
        close = did_you_mean(str(key), known)
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        hint = f"did you mean {close[0]}?" if close else takes
        problems.append(Problem(f"{where}.{key}", f"{what} has no such setting", hint))
    if problems:
        raise ConfigError(problems)


def refused(where: str, what: str, error: Exception) -> ConfigError:
    """What a library says about a value it does not take, as a problem of the section."""
    said = (str(error) or type(error).__name__).strip().splitlines()[0].rstrip(".")
    return ConfigError([Problem(where, f"{what} refuses these settings: {said}", f"change {where}")])
