"""Words of the command line that do not fit its verbs and options, in the form of all other errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer

from rayfish.errors import RayfishError, did_you_mean

# Typer brings a parser of its own or uses Click, by version; its exceptions lead to the right class.
ClickException: type[Any] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def as_error(error: Any, words: Sequence[str]) -> RayfishError:
    """What the parser of the command line refused, as what happened and the next step.

    :param words: what was typed after `rayfish`
    """
    context: Any = getattr(error, "ctx", None)
    verb = f"rayfish {words[0]}" if words and words[0].isalpha() else "rayfish"
    page = f"`{context.command_path if context is not None else verb} --help`"
    text = error.format_message().rstrip(".")
    kind = type(error).__name__
    unknown = re.match("No such command '(.*?)'", text)
    if unknown:
        known = sorted(getattr(getattr(context, "command", None), "commands", ()))
        close = did_you_mean(unknown.group(1), known)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(known)};"
        return RayfishError(f"there is no verb {unknown.group(1)!r}", f"{hint} {page} explains them")
    if kind == "NoSuchOption":
        close = list(getattr(error, "possibilities", None) or ())
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        return RayfishError(f"there is no option {error.option_name}", f"{hint}{page} lists all")
    if kind == "MissingParameter":
        what = text.replace("Missing argument", "the argument").replace("Missing option", "the option")
        return RayfishError(f"{what} is missing", f"{page} explains it")
    refused = re.fullmatch(r"Invalid value for '?([^':]+?)'?: (.*)", text, re.DOTALL)
    if refused:
        option = refused.group(1).rpartition(" / ")[2].strip("' ")
        given = _given(words, option)
        given = given if given.lstrip("-").isdigit() else repr(given)
        what = f"{option} is {given}, but {_wanted(refused.group(2))}"
        return RayfishError(what, f"{page} says what it takes")
    bare = re.fullmatch(r"Option '([^']+)' requires an argument", text)
    if bare:
        return RayfishError(f"{bare.group(1)} needs a value", f"{page} says which")
    return RayfishError(_lower(text), f"{page} explains it")


def _given(words: Sequence[str], option: str) -> str:
    """The value that an option was given on the line; "" where it cannot be told."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _wanted(text: str) -> str:
    """What the parser would have taken, from its reason, whose words differ between versions."""
    least = re.search(r"(?:x>=|greater than or equal to )(\S+)", text)
    if least:
        return f"must be {least.group(1)} or more"
    if "integer" in text:
        return "takes a whole number"
    if "float" in text or "number" in text:
        return "takes a number"
    return _lower(text)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
