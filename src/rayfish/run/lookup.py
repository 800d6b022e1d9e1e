"""Which of many folders a word means: runs and sweeps are named alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from rayfish.errors import RunNotFound, did_you_mean
from rayfish.files import parse_json
from rayfish.run.lease import HeldFolder


def answering(word: str, folders: Sequence[HeldFolder], root: str | Path, kind: str, none_yet: str) -> Path:
    """The folder that `word` means: a name (its newest), an id or its beginning, or `last`.

    :param folders: newest first
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
        copies = len({_id(folder.data) for folder in begun}) == 1
        raise RunNotFound(
            f"{word!r} is the beginning of {len(begun)} {kind}s: {few([str(f.path) for f in begun])}",
            "they have the same id: give the path" if copies else "give more of the id, or the path",
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


def few(words: Sequence[str]) -> str:
    """The first four of many words, and how many more there are."""
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")


def _id(data: Mapping[str, Any]) -> str:
    return str(data.get("id"))


class SweepFolder(HeldFolder):
    """A sweep among the runs; `rayfish.sweep.directory` has all of it."""

    RECORD = "sweep.json"


def sweeps_at(root: Path, pattern: str) -> list[SweepFolder]:
    """The sweeps there, in any order; one that cannot be read has the name and id of its folder."""
    found = []
    for file in root.glob(pattern):
        folder = file.parent
        data: Any = None
        with suppress(OSError, ValueError):
            data = parse_json(file.read_bytes())
        of_folder = {"name": folder.parent.name, "id": folder.name.rpartition("-")[2]}
        read = data if isinstance(data, dict) else {"status": "damaged"}
        found.append(SweepFolder(folder, of_folder | read))
    return found


def newest_first(folders: Sequence[Any]) -> list[Any]:
    """Runs and sweeps by when they were made, then the damaged ones."""

    def age(folder: HeldFolder) -> tuple[bool, str, str]:
        times = folder.data.get("times")
        created = (times if isinstance(times, dict) else folder.data).get("created") or ""
        return folder.data.get("status") != "damaged", str(created), folder.path.name

    return sorted(folders, key=age, reverse=True)


def wrong_types(data: Mapping[str, Any]) -> str:
    """What of run.json is not what it should be; "" for nothing."""
    kinds: dict[type, tuple[str, ...]] = {
        dict: ("counters", "best", "times", "runner", "process"),
        str: ("id", "name", "status", "algo", "env", "reason"),
        list: ("tags", "resumes"),
        int: ("layout",),
    }
    for kind, keys in kinds.items():
        for key in keys:
            value = data.get(key)
            if value is not None and not isinstance(value, kind):
                return f"{key} is {value!r:.40}"
    for name, value in (data.get("counters") or {}).items():
        if not isinstance(value, int | float):
            return f"counters.{name} is {value!r:.40}"
    for entry in data.get("resumes") or []:
        changed = entry.get("changed") if isinstance(entry, dict) else None
        pairs = changed.values() if isinstance(changed, dict) else [None]
        sound = all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
        if not sound or not isinstance(entry.get("iteration"), int):
            return f"resumes has {entry!r:.40}"
    best = (data.get("best") or {}).get("value")
    if best is not None and not isinstance(best, int | float):
        return f"best.value is {best!r:.40}"
    for name, stamp in (data.get("times") or {}).items():
        try:
            stamp is None or datetime.fromisoformat(stamp)
        except (TypeError, ValueError):
            return f"times.{name} is {stamp!r:.40}"
    return ""
