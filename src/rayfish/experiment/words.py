"""Settings given from Python (`{"training.lr": 1e-3}`) as the `key=value` words of the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError

Override = str | Mapping[str, Any]
"""One override: a word (`training.lr=1e-3`), or keys and values, dotted or nested."""

_MAIN = "__main__"
_READ_AS_VALUES = {"true", "false", "null", "none", "nan", "inf"}


def as_words(overrides: Override | Sequence[Override]) -> list[str]:
    """Overrides as words; a dictionary gives one word per value, so that its neighbours stay.

    >>> as_words(["algo.name=PPO", {"training": {"lr": 0.001, "model": {"fcnet_hiddens": [32, 32]}}}])
    ['algo.name=PPO', 'training.lr=0.001', 'training.model.fcnet_hiddens=[32,32]']
    """
    given = [overrides] if isinstance(overrides, str | Mapping) else overrides
    words: list[str] = []
    for one in given:
        if isinstance(one, Mapping):
            words += _of_mapping("", one)
        elif isinstance(one, str):
            words.append(one)
        else:
            raise RayfishError(
                f"{one!r} is not an override",
                'write "training.lr=1e-3", or {"training.lr": 1e-3}',
            )
    return words


def word(key: str, value: Any) -> str:
    """`key=value` as Hydra's grammar reads it back."""
    return f"{key}={_written(plain(value, key))}"


def plain(value: Any, key: str) -> Any:
    """A value as a file could hold it: NumPy's numbers and lists as Python's, classes by import path.

    :param key: the setting, for the message
    :raises RayfishError: no file can hold it, a lambda say
    """
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Enum):
        return plain(value.value, key)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(inner, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner, key) for inner in value]
    if callable(value) and hasattr(value, "__qualname__"):
        name = str(value.__qualname__)
        if "<" not in name:
            return f"{value.__module__}:{name}"
        kind = "a lambda" if "<lambda>" in name else f"{name.rpartition('.')[2]}, defined inside a function"
        raise RayfishError(
            f"{key} is {kind}, which no other process can import",
            "define it at the top level of a file, or give its import path: my_file.py:name",
        )
    raise RayfishError(
        f"{key} is {_short(value)}, an object that an experiment cannot hold",
        "give numbers, text, lists and dictionaries, or the import path of a class or function",
    )


def in_main_script(path: str) -> bool:
    """Whether an import path leads into the script or notebook that runs, which workers cannot import."""
    return path.startswith(f"{_MAIN}:")


def _of_mapping(prefix: str, values: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and not key.startswith("stop_conditions."):
            words += _of_mapping(f"{key}.", value)
        else:
            words.append(word(key, value))
    return words


def _written(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_written(inner) for inner in value) + "]"
    text = str(value)
    if re.fullmatch(r"[A-Za-z_./][\w./-]*", text) and text.lower() not in _READ_AS_VALUES:
        return text
    # Backslashes count only where a quote follows them.
    escaped = re.sub(r"\\+$", lambda found: found[0] * 2, re.sub(r"(\\*)'", r"\1\1\\'", text))
    return f"'{escaped}'"


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) < 80 else f"a {type(value).__name__}"
