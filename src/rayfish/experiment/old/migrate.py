"""An old experiment as a file of today, with its comments and a word about what was left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rayfish.experiment import tree
from rayfish.experiment.experiment import dump
from rayfish.experiment.files import key_lines
from rayfish.experiment.old.comments import Comments, comments_of
from rayfish.experiment.old.outcome import Fate
from rayfish.experiment.old.translate import Entry, Translation
from rayfish.experiment.sections import SECTIONS

_LEFT_OUT: dict[Fate, str] = {
    "ignored": "Left out, because it has no meaning any more:",
    "refused": "To decide, before this file can be trained:",
}
_MUST_SAY = {"algo.name": ("run", "algo"), "environment.env": ("env", "config.env")}


def file_name(translation: Translation) -> str:
    """What the migrated file is called: the experiment's name, in letters that every disk takes."""
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', translation.experiment.name).strip('-.') or 'experiment'}.yaml"


def as_today(translation: Translation, old_text: str, closest: bool = False) -> str:
    """The text of today's file.

    :param old_text: the old file, for its comments
    """
    config = _ordered(translation)
    text = dump(config)
    comments = _moved(translation, comments_of(old_text, translation.experiment.lines)) if old_text else {}
    source = Path(translation.experiment.file).name
    command = f"`rayfish config migrate {source}{' --closest' if closest else ''}`"
    head = [f"# {translation.experiment.name}, from {source} by {command}."]
    lines = text.splitlines()
    for dotted, number in sorted(key_lines(text).items(), key=lambda item: item[1], reverse=True):
        note = comments.get(dotted)
        if note is None:
            continue
        if note.beside:
            lines[number - 1] += f"  {note.beside}"
        indent = " " * (len(lines[number - 1]) - len(lines[number - 1].lstrip()))
        lines[number - 1 : number - 1] = [f"{indent}{comment}" for comment in note.before]
    return "\n".join([*head, *lines, *_left_out(translation)]) + "\n"


def _ordered(translation: Translation) -> dict[str, Any]:
    """The sections in the order people know them; what is refused but must be said is marked so."""
    config = dict(translation.config)
    for dotted, olds in _MUST_SAY.items():
        refused = any(entry.old in olds for entry in translation.of("refused"))
        if refused and tree.get(config, dotted) is None:
            tree.put(config, dotted, "???")
    return {name: config[name] for name in SECTIONS if config.get(name) not in (None, {})}


def _moved(translation: Translation, comments: Mapping[str, Comments]) -> dict[str, Comments]:
    """Today's dotted key -> the comments of the old key it came from; each is told once."""
    left, found = dict(comments), {}
    for entry in translation.entries:
        for dotted in entry.outcome.values:
            if entry.old in left:
                found[dotted] = left.pop(entry.old)
    sections = {"config.model": "training.model", "config": "", "stop": "stop_conditions"}
    for old, comment in left.items():
        today = sections.get(old)
        if today:
            found.setdefault(today, comment)
    return found


def _left_out(translation: Translation) -> Iterable[str]:
    for fate, title in _LEFT_OUT.items():
        entries = translation.of(fate)
        if entries:
            yield "#"
            yield f"# {title}"
            yield from (f"#   {line}" for entry in entries for line in _one(entry))


def _one(entry: Entry) -> list[str]:
    written = dump({entry.old.removeprefix("config."): entry.value}).strip().splitlines()
    return [*written[:-1], f"{written[-1]}  ({entry.outcome.why})"]
