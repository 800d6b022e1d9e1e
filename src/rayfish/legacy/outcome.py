"""What becomes of an old key: translated, safely ignored, or refused; nothing else, and never nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Fate = Literal["translated", "ignored", "refused"]
FATES: tuple[Fate, ...] = ("translated", "ignored", "refused")


@dataclass(frozen=True)
class Outcome:
    """The fate of one old key, or of one key inside it.

    :param values: today's dotted keys with their values (translated only)
    :param why: what changed (translated), why it may go (ignored), what to do instead (refused)
    :param changed: it means something else today, which a person should know
    :param inner: the key inside the old one that this is about, "" for the whole
    """

    fate: Fate
    values: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    changed: bool = False
    inner: str = ""


@dataclass(frozen=True)
class Context:
    """What a rule may look at besides its own value.

    :param algo: today's algorithm
    :param env: the environment's old name, "" where none is named
    :param config: the old `config`, search spaces replaced by their first value
    :param closest: take the closest thing there is in place of refusing
    """

    algo: str
    env: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    closest: bool = False


Rule = Callable[[Any, Context], list[Outcome]]
"""What decides the fate of a key from its value and what stands beside it."""


def became(dotted: str, value: Any, why: str = "", *, changed: bool = False, inner: str = "") -> Outcome:
    """It is today's `dotted`."""
    return Outcome("translated", {dotted: value}, why, changed, inner)


def ignored(why: str, inner: str = "") -> Outcome:
    """It may go, for this reason."""
    return Outcome("ignored", why=why, inner=inner)


def refused(why: str, inner: str = "") -> Outcome:
    """A person must decide; `why` says what is wrong, then after a colon what to do."""
    return Outcome("refused", why=why, inner=inner)


def unless_off(key: str, value: Any, reasons: tuple[str, str], inner: str = "") -> Outcome:
    """Ignored when it is off, for the first reason; refused when it is on, with the second."""
    off, instead = reasons
    if not value:
        return ignored(off, inner)
    return refused(instead if ": " in instead else f"{key} has no place in today's RLlib: {instead}", inner)
