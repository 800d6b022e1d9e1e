"""An old experiment as a file of today, with its comments and a word about what was left out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from rayfish.experiment import tree
from rayfish.experiment.experiment import dump
from rayfish.experiment.files import key_lines
from rayfish.experiment.sections import SECTIONS
from rayfish.legacy.comments import Comments, comments_of
from rayfish.legacy.outcome import Fate
from rayfish.legacy.translate import Entry, Translation

_LEFT_OUT: dict[Fate, str] = {
    "ignored": "Left out, because it has no meaning any more:",
    "refused": "To decide, before this file can be trained:",
}
_MUST_SAY = {"algo.name": ("run", "algo"), "environment.env": ("env", "config.env")}


WRITTEN = "by `rayfish config migrate"
"""How a migrated file tells that it is one."""


def file_name(translation: Translation, taken: Collection[str] = ()) -> str:
    """What the migrated file is called: the experiment's name, in letters that every disk takes."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", translation.experiment.name).strip("-.") or "experiment"
    names = (f"{stem}.yaml", *(f"{stem}-{number}.yaml" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def as_today(translation: Translation, old_text: str, closest: bool = False) -> str:
    """The text of today's file.

    :param old_text: the old file, for its comments
    """
    config = _ordered(translation)
    text = dump(config)
    found, loose = comments_of(old_text, translation.experiment.lines) if old_text else ({}, [])
    top = found.pop("", Comments())
    comments, unmoved = _moved(translation, found)
    source = Path(translation.experiment.file).name
    head = [
        f"# {translation.experiment.name}, from {source} "
        f"{WRITTEN} {source}{' --closest' if closest else ''}`."
    ]
    lines = text.splitlines()
    for dotted, number in sorted(key_lines(text).items(), key=lambda item: item[1], reverse=True):
        note = comments.get(dotted)
        if note is None:
            continue
        if note.beside:
            lines[number - 1] += f"  {note.beside}"
        indent = " " * (len(lines[number - 1]) - len(lines[number - 1].lstrip()))
        lines[number - 1 : number - 1] = [f"{indent}{comment}" for comment in note.before]
    head += [*top.before, *([top.beside] if top.beside else [])]
    return "\n".join([*head, *lines, *_left_out(translation, unmoved), *_others(loose)]) + "\n"


def _ordered(translation: Translation) -> dict[str, Any]:
    """The sections in the order people know them; what is refused but must be said is marked so."""
    config = dict(translation.config)
    for dotted, olds in _MUST_SAY.items():
        refused = any(entry.old in olds for entry in translation.of("refused"))
        if refused and tree.get(config, dotted) is None:
            tree.put(config, dotted, "???")
    return {name: config[name] for name in SECTIONS if config.get(name) not in (None, {})}


def _moved(
    translation: Translation, comments: Mapping[str, Comments]
) -> tuple[dict[str, Comments], dict[str, Comments]]:
    """Today's dotted key -> the comments of the old key it came from, each told once; and those left over."""
    left, found = dict(comments), {}
    for entry in translation.entries:
        for dotted in entry.outcome.values:
            if entry.old in left:
                found[dotted] = left.pop(entry.old)
    sections = {"config.model": "training.model", "stop": "stop_conditions"}
    for old, today in sections.items():
        if old in left:
            found.setdefault(today, left.pop(old))
    return found, left


def _others(loose: list[str]) -> Iterable[str]:
    return (
        ["#", "# Other comments of the old file:", *(f"#   {text.lstrip('# ')}" for text in loose)]
        if loose
        else []
    )


def _left_out(translation: Translation, comments: dict[str, Comments]) -> Iterable[str]:
    for fate, title in _LEFT_OUT.items():
        entries = translation.of(fate)
        if entries:
            yield "#"
            yield f"# {title}"
            for entry in entries:
                note = comments.pop(entry.old, Comments())
                yield from (f"#   {text}" for text in [*note.before, *_one(entry)])
                if note.beside:
                    yield f"#     {note.beside}"
    yield from _others([text for note in comments.values() for text in [*note.before, note.beside] if text])


def _one(entry: Entry) -> list[str]:
    written = dump({entry.old.removeprefix("config."): entry.value}).strip().splitlines()
    return [*written[:-1], f"{written[-1]}  ({entry.outcome.why})"]
