"""What is wrong with a YAML text, in the words of the person who wrote it."""

from __future__ import annotations

import re
from typing import Any

from rayfish.experiment.yaml_reader import Excess

_GENERAL = "check the indentation, the colon after each key and the quotes around this line"


def explain(error: Any, text: str) -> tuple[int, str, str]:
    """(line from 1 or 0 when unknown, what is wrong, the next step) for an exception of PyYAML."""
    if isinstance(error, Excess):
        mark = error.problem_mark
        return mark.line + 1 if mark is not None else 0, str(error.problem), error.hint
    rows = text.splitlines()
    reason = str(getattr(error, "problem", None) or str(error).splitlines()[0])
    mark, context = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    line = mark.line if mark is not None else -1
    opened = context.line if context is not None else line
    if r"\t" in reason:
        return line + 1, "a tab stands where spaces belong", "indent with spaces, two for each level"
    if "duplicate key" in reason:
        key = reason.rpartition(" ")[2]
        first = _first(rows, key, line)
        also = f" (line {first + 1} has it too)" if first >= 0 else ""
        return line + 1, f"the key {key!r} is written twice{also}", "remove one of the two lines"
    if "another document" in reason:
        return line + 1, "a second document begins here", "remove the `---`; one file is one experiment"
    if "constructor for the tag" in reason:
        what = f"the tag in {_row(rows, line)} is not allowed: a file names values, it runs no code"
        return line + 1, what, "write the plain value; code is named by import path, as my_env.py:MyEnv"
    if "mapping values are not allowed" in reason:
        return _missing_colon(rows, line)
    if "flow sequence" in str(getattr(error, "context", "")) or "flow mapping" in str(
        getattr(error, "context", "")
    ):
        bracket = "[" if "sequence" in str(error.context) else "{"
        return opened + 1, f"the {bracket} in {_row(rows, opened)} is not closed", "close it on that line"
    if "quoted scalar" in str(getattr(error, "context", "")):
        return opened + 1, f"the quote in {_row(rows, opened)} is not closed", "close it on that line"
    if "could not find expected ':'" in reason:
        return opened + 1, f"{_row(rows, opened)} has no colon", "write `key: value`, a space after the colon"
    if line >= len(rows):
        line = opened
    return line + 1, f"{reason} in {_row(rows, line)}" if rows else reason, _GENERAL


def _missing_colon(rows: list[str], line: int) -> tuple[int, str, str]:
    """A second colon in one value: the line before lacks its own, or the value needs quotes."""
    before = next((n for n in range(line - 1, -1, -1) if rows[n].strip()), -1)
    if before >= 0 and not re.search(r":(\s|$)", rows[before]):
        return before + 1, f"{_row(rows, before)} has no colon", "write `key: value`, a space after the colon"
    hint = "put the value in quotes, or indent it as the lines around it"
    return line + 1, f"{_row(rows, line)} has a colon too many, or the wrong indentation", hint


def _first(rows: list[str], key: str, before: int) -> int:
    """The last line above `before` that writes the same key as deep as it, -1 when there is none."""
    indent = len(rows[before]) - len(rows[before].lstrip()) if 0 <= before < len(rows) else 0
    pattern = re.compile(rf"\s{{{indent}}}['\"]?{re.escape(key)}['\"]?\s*:")
    return next((n for n in range(before - 1, -1, -1) if pattern.match(rows[n])), -1)


def _row(rows: list[str], line: int) -> str:
    return f"`{rows[line].strip()}`" if 0 <= line < len(rows) else "the last line"
