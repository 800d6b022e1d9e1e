"""From a point of the search space to the words of a command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rayfish.errors import RayfishError

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")
_PLAIN = re.compile(r"[a-z_/][\w./:+\-%@]*", re.ASCII | re.IGNORECASE)
_NOT_TEXT = ("true", "false", "null", "nan", "inf")
"""Words that Hydra reads as something else than a text; numbers begin with a digit, sign or point."""


def names_in(words: Iterable[str]) -> list[str]:
    """What the words name in braces, each once, in their order."""
    found = [match[1].strip() for word in words for match in _PLACE.finditer(word) if match[1]]
    return list(dict.fromkeys(found))


def filled(text: str, values: Mapping[str, Any]) -> str:
    """A text with its `{names}` replaced, and `{{` as one brace."""

    def replaced(match: re.Match[str]) -> str:
        if not match[1]:
            return match[0][0]
        name = match[1].strip()
        if name not in values:
            known = ", ".join(sorted(values))
            raise RayfishError(f"{{{name}}} in {text!r} has no value here", f"there are {known}")
        return plain(values[name])

    return _PLACE.sub(replaced, text)


def words_of(
    command: Sequence[str], arguments: str | None, params: Mapping[str, Any], built_in: Mapping[str, Any]
) -> list[str]:
    """The command of one trial; a value stays one word, whatever is in it.

    :param arguments: how parameters are appended that the command does not name: hydra or flags
    :param built_in: what may be named besides parameters; a parameter of the same name comes first
    """
    values = {**built_in, **params}
    words = [filled(word, values) for word in command]
    named = set(names_in(command))
    for key, value in params.items():
        if key not in named:
            words += _flag(key, value) if arguments == "flags" else [f"{key}={for_hydra(value)}"]
    return words


def plain(value: Any) -> str:
    """A value as programs read it from their command line."""
    value = _python(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping | list | tuple):
        return for_hydra(value)
    return str(value)


def for_hydra(value: Any) -> str:
    """A value in the grammar of Hydra's overrides (hydra.cc/docs/advanced/override_grammar/basic)."""
    value = _python(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{for_hydra(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(for_hydra(inner) for inner in value) + "]"
    text = plain(value)
    is_text = not isinstance(value, int | float | None)
    if not is_text or (_PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT):
        return text
    escaped = re.sub(r"\\+(?='|\Z)", lambda found: 2 * found[0], text).replace("'", "\\'")
    return f"'{escaped}'"


def _flag(key: str, value: Any) -> list[str]:
    """`--key value`; a true one stands alone, a false one or none at all is left out."""
    flag, value = key if key.startswith("-") else f"--{key}", _python(value)
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, list | tuple):
        return [flag, *(plain(inner) for inner in value)]
    return [flag, plain(value)]


def _python(value: Any) -> Any:
    """NumPy's and torch's numbers and arrays as Python's numbers and lists."""
    return value.tolist() if hasattr(value, "tolist") else value
