"""What becomes of an old key: translated, safely ignored, or refused; nothing else, and never nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rayfish.errors import did_you_mean

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


Rule = Callable[[Any, Context], Outcome | list[Outcome]]
"""Decides the fate of a key from its value and from the keys beside it."""


def became(dotted: str, value: Any, why: str = "", *, changed: bool = False, inner: str = "") -> Outcome:
    """It is today's `dotted`."""
    return Outcome("translated", {dotted: value}, why, changed, inner)


def ignored(why: str = "none given", inner: str = "") -> Outcome:
    """It may go, for this reason."""
    return Outcome("ignored", why=why, inner=inner)


def refused(why: str, inner: str = "") -> Outcome:
    """A person must decide; `why` says what is wrong, then after a colon what to do."""
    return Outcome("refused", why=why, inner=inner)


def no_setting(context: Context, inner: str = "") -> Outcome:
    """It may go, because the algorithm has no such setting."""
    return ignored(f"{context.algo} has no such setting", inner)


def if_given(dotted: str) -> Rule:
    """Today's `dotted` with the same value, unless that is empty."""
    return lambda value, _: became(dotted, value) if value else ignored()


def unless_off(key: str, value: Any, reasons: tuple[str, str], inner: str = "") -> Outcome:
    """Ignored when it is off, for the first reason; refused when it is on, with the second."""
    off, instead = reasons
    if not value:
        return ignored(off, inner)
    return refused(instead if ": " in instead else f"{key} has no place in today's RLlib: {instead}", inner)


def unknown(key: object, section: str, known: Iterable[str]) -> Outcome:
    """A key inside another that no Ray had: most likely a typo."""
    close = did_you_mean(str(key), known)
    meant = f"did you mean {close[0]}?" if close else "remove it"
    return refused(f"{section} has no key {key!r}: {meant}", str(key))


def decided(rule: Callable[[], Outcome | list[Outcome]], key: str, value: Any, manual: str) -> list[Outcome]:
    """What a rule finds; a value that it cannot handle is refused."""
    try:
        found = rule()
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        found = refused(f"{key} cannot be {value!r}: write it as {manual} manual of that time has it")
    return [found] if isinstance(found, Outcome) else found
