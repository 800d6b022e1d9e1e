"""`rayfish config migrate`: an old file in, files of today out, with the comments and what was left out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError
from rayfish.experiment import tree
from rayfish.experiment.compose import preset_file
from rayfish.experiment.experiment import dump
from rayfish.experiment.files import key_lines, read_marked, show
from rayfish.experiment.sections import SECTIONS
from rayfish.files import atomic_write
from rayfish.legacy.file_format import read_old
from rayfish.legacy.outcome import Fate
from rayfish.legacy.translate import Translation, translate

_FOLDER = "migrated"
_WRITTEN = "by `rayfish config migrate"  # which a migrated file says of itself
_LEFT_OUT: dict[Fate, str] = {
    "ignored": "Left out, because it has no meaning any more:",
    "refused": "To decide, before this file can be trained:",
}
_MUST_SAY = {"algo.name": ("run", "algo"), "environment.env": ("env", "config.env")}


def migrate(name: str, out: Path | None = None, *, closest: bool = False) -> list[tuple[Translation, Path]]:
    """Write each experiment of an old file as a file of today; returns the translations with their files.

    :param out: the folder for the new files, `migrated/` beside the old one when not given
    :raises RayfishError: it is no old file, or a file of that name with other content is there
    """
    file = preset_file(name)
    experiments = read_old(file)
    if experiments is None:
        read_marked(file)  # what is wrong with its text, if anything
        raise RayfishError(
            f"{show(file)} is no old RLlib file: it has no `run:` and `config:` below a name",
            f"if it is an experiment of today, train it: rayfish train -f {show(file)}",
        )
    text, folder = file.read_text(encoding="utf-8"), out or file.parent / _FOLDER
    found: list[tuple[Translation, Path]] = []
    for old in experiments:
        translation = translate(old, closest=closest)
        found.append((translation, folder / _file_name(old.name, {path.name for _, path in found})))
    for _, path in found:
        if path.exists() and _WRITTEN not in path.read_text(encoding="utf-8", errors="replace"):
            what = f"{show(path)} is there already, and was not written by this command"
            raise RayfishError(what, "name another folder: --out DIR")
    for translation, path in found:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, as_today(translation, text, closest))
        except OSError as error:
            what = f"{path} cannot be written: {error.strerror or error}"
            raise RayfishError(what, "name another folder: --out DIR") from error
    return found


def _file_name(experiment: str, taken: Collection[str]) -> str:
    """The experiment's name in letters that every disk takes; numbered where that is taken."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", experiment).strip("-.") or "experiment"
    names = (f"{stem}.yaml", *(f"{stem}-{number}.yaml" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


@dataclass
class Comments:
    """What is written about one key: whole lines before it, and the end of its own line."""

    before: list[str] = field(default_factory=list)
    beside: str = ""


def as_today(translation: Translation, old_text: str, closest: bool = False) -> str:
    """The text of today's file.

    :param old_text: the old file, for its comments
    """
    text = dump(_ordered(translation))
    found, loose = comments_of(old_text, translation.experiment.lines) if old_text else ({}, [])
    top = found.pop("", Comments())
    comments, unmoved = _moved(translation, found)
    source = Path(translation.experiment.file).name
    command = f"{_WRITTEN} {source}{' --closest' if closest else ''}`."
    head = [f"# {translation.experiment.name}, from {source} {command}", *top.before]
    lines = text.splitlines()
    for dotted, number in sorted(key_lines(text).items(), key=lambda item: item[1], reverse=True):
        note = comments.get(dotted, Comments())
        if note.beside:
            lines[number - 1] += f"  {note.beside}"
        indent = " " * (len(lines[number - 1]) - len(lines[number - 1].lstrip()))
        lines[number - 1 : number - 1] = [f"{indent}{comment}" for comment in note.before]
    head += [top.beside] if top.beside else []
    return "\n".join([*head, *lines, *_left_out(translation, unmoved), *_others(loose)]) + "\n"


def _ordered(translation: Translation) -> dict[str, Any]:
    """The sections in the order people know them; `???` for a required key whose old value is refused."""
    config = dict(translation.config)
    for dotted, olds in _MUST_SAY.items():
        refused = any(entry.old in olds for entry in translation.of("refused"))
        if refused and tree.get(config, dotted) is None:
            tree.put(config, dotted, "???")
    return {name: config[name] for name in SECTIONS if config.get(name) not in (None, {})}


def _moved(
    translation: Translation, comments: Mapping[str, Comments]
) -> tuple[dict[str, Comments], dict[str, Comments]]:
    """Today's dotted key -> the comments of the old key it came from, each once; and those left over."""
    left, found = dict(comments), {}
    for entry in translation.entries:
        for dotted in entry.outcome.values:
            if entry.old in left:
                found[dotted] = left.pop(entry.old)
    for old, today in (("config.model", "training.model"), ("stop", "stop_conditions")):
        if old in left:
            found.setdefault(today, left.pop(old))
    return found, left


def _others(loose: list[str]) -> list[str]:
    lines = [f"#   {text.lstrip('# ')}" for text in loose]
    return ["#", "# Other comments of the old file:", *lines] if loose else []


def _left_out(translation: Translation, comments: dict[str, Comments]) -> Iterable[str]:
    for fate, title in _LEFT_OUT.items():
        entries = translation.of(fate)
        yield from ("#", f"# {title}") if entries else ()
        for entry in entries:
            note = comments.pop(entry.old, Comments())
            written = dump({entry.old.removeprefix("config."): entry.value}).strip()
            lines = [*note.before, *f"{written}  ({entry.outcome.why})".splitlines()]
            yield from (f"#   {text}" for text in lines)
            if note.beside:
                yield f"#     {note.beside}"
    yield from _others([text for note in comments.values() for text in [*note.before, note.beside] if text])


def comments_of(text: str, lines: Mapping[str, int]) -> tuple[dict[str, Comments], list[str]]:
    """Dotted key -> its comments; and those that belong to no key (inside a list, at the end).

    :param lines: dotted key -> the line (from 1) it is written on; "" is that of what holds the keys
    """
    found = _by_line(text)
    keys = {line: key for key, line in sorted(lines.items(), key=lambda item: len(item[0]), reverse=True)}
    start = lines.get("", 0)
    result: dict[str, Comments] = {}
    waiting: list[str] = []
    loose: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if start and number > start and line[:1].strip():
            break  # what follows belongs to the next of several
        if number < start and line[:1].isspace():
            continue  # of the one before
        comment = found.get(number, "")
        if comment and line.strip().startswith("#"):
            waiting.append(comment)
        elif number in keys:
            if comment or waiting:
                result[keys[number]] = Comments(waiting, comment)
            waiting = []
        elif line.strip():
            loose += [*waiting, *filter(None, [comment])] if number > start else []
            waiting = []
    return result, loose + waiting


def _by_line(text: str) -> dict[int, str]:
    """Line number -> the comment on it: what begins with # outside every scalar of the YAML scanner."""
    import yaml

    covered: dict[int, list[tuple[int, int]]] = {}
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if isinstance(token, yaml.ScalarToken):
            _cover(covered, token)
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        for column, sign in enumerate(line):
            if sign == "#" and not any(low <= column < high for low, high in covered.get(number, ())):
                found[number] = line[column:].rstrip()
                break
    return found


def _cover(covered: dict[int, list[tuple[int, int]]], token: Any) -> None:
    """A scalar's columns on each of its lines."""
    start, end = token.start_mark, token.end_mark
    for line in range(start.line, end.line + 1):
        low = start.column if line == start.line else 0
        high = end.column if line == end.line else 10_000
        if token.style in ("|", ">") and line == start.line:
            continue  # a block's text begins on the next line; after its sign there may be a comment
        covered.setdefault(line + 1, []).append((low, high))
