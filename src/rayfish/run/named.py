"""Which of many folders a word means: runs and sweeps are named alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rayfish.errors import RunNotFound, did_you_mean


class Named(Protocol):
    """A folder that answers to its name, its id, and where it lies."""

    path: Path
    data: dict[str, Any]


def answering(word: str, folders: Sequence[Named], root: str | Path, kind: str, none_yet: str) -> Path:
    """The folder that `word` means: a name (its newest), an id or its beginning, or `last`.

    :param folders: newest first
    :param root: where they were looked for
    :param kind: what they are, in one word
    :param none_yet: the next step where there are none at all
    :raises RunNotFound: with what was meant, perhaps
    """
    if word == "last" and folders:
        return folders[0].path
    for folder in folders:
        if word in (folder.data.get("name"), folder.path.parent.name):
            return folder.path
    begun = [f for f in folders if f.path.name.startswith(word) or _id(f.data).startswith(word)]
    if len(begun) == 1:
        return begun[0].path
    if begun:
        raise RunNotFound(
            f"{word!r} is the beginning of {len(begun)} {kind}s: {few([str(f.path) for f in begun])}",
            "give more of the id, or the path",
        )
    place = f"{Path(root)}/"
    if not folders:
        raise RunNotFound(f"no {kind} answers to {word!r}: there are no {kind}s under {place}", none_yet)
    names = list(dict.fromkeys(str(folder.data.get("name")) for folder in folders))
    what = f"no {kind} under {place} answers to {word!r}"
    close = did_you_mean(word, ["last", *names, *(_id(folder.data) for folder in folders)])
    if close:
        raise RunNotFound(what, f"did you mean {' or '.join(close)}? `rayfish runs list` shows all")
    raise RunNotFound(f"{what}; there are {kind}s of {few(names)}", "rayfish runs list")


def few(words: Sequence[str], most: int = 4) -> str:
    """The first of many words, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def _id(data: Mapping[str, Any]) -> str:
    return str(data.get("id"))
