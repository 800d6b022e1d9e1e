"""Comments of a YAML file, each with the key it speaks of, so that a migrated file keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Comments:
    """What is written about one key: whole lines before it, and the end of its own line."""

    before: list[str] = field(default_factory=list)
    beside: str = ""


def comments_of(text: str, lines: Mapping[str, int]) -> tuple[dict[str, Comments], list[str]]:
    """Dotted key -> its comments; and those that stand by no key (inside a list, at the end).

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
    """Line number -> the comment on it: what begins with # outside every token of the YAML scanner."""
    import yaml

    covered: dict[int, list[tuple[int, int]]] = {}
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        _cover(covered, token)
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        for column, sign in enumerate(line):
            if sign == "#" and not any(low <= column < high for low, high in covered.get(number, ())):
                found[number] = line[column:].rstrip()
                break
    return found


def _cover(covered: dict[int, list[tuple[int, int]]], token: Any) -> None:
    """A token's columns on each of its lines; only scalars may hold the sign of a comment."""
    if type(token).__name__ != "ScalarToken":
        return
    start, end = token.start_mark, token.end_mark
    for line in range(start.line, end.line + 1):
        low = start.column if line == start.line else 0
        high = end.column if line == end.line else 10_000
        if token.style in ("|", ">") and line == start.line:
            continue  # a block's text begins on the next line; after its sign a comment may stand
        covered.setdefault(line + 1, []).append((low, high))
