"""`metrics.jsonl`: one flat JSON object per iteration."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from rayfish.metrics import names
from rayfish.metrics.sinks import lines

_WHOLE = 4 * 2**20
"""A file up to this size is read whole where a sample would do."""

_SEARCHED = 256 * 2**20


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, all in memory; damaged ones are left out."""
    return list(each_line(path))


def each_line(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, one after the other; damaged ones are left out."""
    if path.is_file():
        with path.open("rb") as file:
            yield from (line for line in map(_parsed, file) if line is not None)


def sample_jsonl(path: Path, most: int = 2000, last: int = 40) -> list[dict[str, Any]]:
    """Lines enough for a curve: all of a small file, else `most` evenly spaced ones and the `last` few."""
    if not path.is_file():
        return []
    if path.stat().st_size <= _WHOLE:
        return read_jsonl(path)
    tail = [line for _, line in islice(lines.lines_backwards(path), last)][::-1]
    last_ones = set(tail)
    spread = [line for line in lines.sampled(path, most) if line not in last_ones]
    return [line for line in map(_parsed, [*spread, *tail]) if line is not None]


def newest_first(path: Path) -> Iterator[dict[str, Any]]:
    """The lines from the last one backwards, read lazily."""
    if path.is_file():
        yield from (line for _, text in lines.lines_backwards(path) if (line := _parsed(text)) is not None)


def last_with(path: Path, name: str) -> dict[str, Any] | None:
    """The last line that has a metric; looked for in the last 256 MB of the file."""
    key = json.dumps(name).encode()
    blocks = lines.blocks_backwards(path) if path.is_file() else iter(())
    for _, block in islice(blocks, _SEARCHED // lines.BLOCK):
        if key in block:
            for text in reversed(block.split(b"\n")):
                line = _parsed(text) if key in text else None
                if line is not None and name in line:
                    return line
    return None


def roll_back(path: Path, counter: str, at: int | None) -> list[str]:
    """Removes the lines whose `counter` is above `at`, and damaged ones; a message where there were any."""
    pattern = re.compile(re.escape(json.dumps(counter).encode()) + rb": ?(\d+)[,}]")

    def number(text: bytes) -> float | None:
        found = pattern.search(text)
        if found:
            return int(found[1])
        line = _parsed(text)
        with suppress(TypeError, ValueError):
            return None if line is None or counter not in line else float(line[counter])
        return None

    def sound(text: bytes) -> bool:
        return counter in (_parsed(text) or {})

    return lines.roll_back(path, at, number, sound=sound, quick=_looks_whole, begun=_begun)


def step_of(metrics: Mapping[str, float]) -> int:
    """The step a line is drawn at: environment steps, or iterations when nothing is sampled."""
    return int(metrics.get(names.ENV_STEPS) or metrics.get(names.ITERATION) or 0)


class FileSink:
    """What sinks of one text file share."""

    _file: TextIO

    def flush(self) -> None:
        """Sync the file to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JsonlSink(FileSink):
    """Appends each line and flushes it, so that another program can follow the file."""

    def __init__(self, path: Path, resume_at: int | None = None) -> None:
        # Also without a resume: a line cut short by a crash must not swallow the next one.
        self.notes = lines.note_if_gone(path, resume_at)
        self.notes += roll_back(path, names.ITERATION, resume_at) if path.exists() else []
        self.last_step = step_of(next(newest_first(path), {}))
        self._file = path.open("a", encoding="utf-8")

    def write(self, metrics: Mapping[str, float]) -> None:
        """Append one line."""
        self._file.write(json.dumps(metrics) + "\n")
        self._file.flush()


def _parsed(text: bytes) -> dict[str, Any] | None:
    """A line's content; None where it is damaged."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _begun(text: bytes) -> bool:
    """Whether bytes begin as a line of JSON does."""
    return b'{"'.startswith(text[:2]) and b"\0" not in text


def _looks_whole(text: bytes) -> bool:
    return text.startswith(b'{"') and text.endswith(b"}\n") and text.isascii()
