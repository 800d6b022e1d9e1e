"""Reports from text that grows: JSON lines and CSV files, a half-written last line left alone."""

from __future__ import annotations

import codecs
import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rayfish.files import parse_json
from rayfish.sweep.function import flat
from rayfish.text import printable

_CHUNK = 4 << 20
_TAIL = 8 << 10


@dataclass(frozen=True)
class Earlier:
    """What a file was before the program was started: its size, its last bytes, see `stamp`."""

    size: int
    tail: bytes = b""
    stamp: tuple[int, int, int] | None = None

    @classmethod
    def of(cls, path: Path) -> Earlier:
        """What it is now."""
        try:
            with path.open("rb") as file:
                now = stamp(os.fstat(file.fileno()))
                file.seek(max(0, now[0] - _TAIL))
                return cls(now[0], file.read(_TAIL), now)
        except OSError:
            return cls(0)


NOTHING = Earlier(0)


def stamp(status: os.stat_result) -> tuple[int, int, int]:
    """Size, place on the disk and time of the last change: others after a file was written."""
    return status.st_size, status.st_ino, status.st_mtime_ns


class Lines:
    """The lines of a file that is being written, those that are new at each reading.

    :param earlier: what the file was before, which is passed over
    """

    def __init__(self, path: Path, earlier: Earlier = NOTHING) -> None:
        self.path, self._earlier = path, earlier
        self._offset, self._tail, self._rest = earlier.size, earlier.tail, b""
        self.restarted = False
        """Whether the last reading began at the beginning again, as the file was written again."""

    def passed(self) -> list[str]:
        """The whole lines of before; none where they are gone."""
        try:
            with self.path.open("rb") as file:
                data = file.read(self._earlier.size) if self._earlier.tail else b""
        except OSError:
            return []
        lines = data.split(b"\n")[:-1] if data.endswith(self._earlier.tail) else []
        return [_text(line) for line in lines]

    def read(self, final: bool) -> list[str]:
        """The new lines without their ends; the last, unfinished one only when nothing will follow."""
        found: list[str] = []
        self.restarted = False
        try:
            with self.path.open("rb") as file:
                if self._written_again(file):
                    self.restarted, self._earlier = True, NOTHING
                    self._offset, self._tail, self._rest = 0, b"", b""
                file.seek(self._offset)
                while chunk := file.read(_CHUNK):
                    self._offset += len(chunk)
                    self._tail = (self._tail + chunk)[-_TAIL:]
                    *lines, self._rest = (self._rest + chunk).split(b"\n")
                    found += [_text(line) for line in lines]
        except OSError:
            return found
        if final and self._rest:
            found.append(_text(self._rest))
            self._rest = b""
        return found

    def _written_again(self, file: BinaryIO) -> bool:
        file.seek(self._offset - len(self._tail))
        if file.read(len(self._tail)) != self._tail:
            return True
        before, now = self._earlier.stamp, stamp(os.fstat(file.fileno()))
        if before is None or now == before:
            return False
        self._earlier = NOTHING
        return now[0] == before[0]  # written, but no longer: the same once more


class _Reports:
    """Reports on the lines of a file, each returned once.

    A file that is written again may hold what was read before: a logger that found a new column, a table
    that is written whole each time. What is the same at the same place is then passed over. What an
    earlier attempt wrote is not, unless this one goes on from there: it may well do the same again.

    :param step: the key that says how far it is
    :param earlier: what the file was before, which is passed over
    :param count: reports so far, where there is no such key; 0: this attempt begins from nothing
    """

    def __init__(self, path: Path, step: str, earlier: Earlier = NOTHING, count: int = 0) -> None:
        self.path, self._step, self._count = path, step, count
        self.lines_seen = 0
        self._lines = Lines(path, earlier)
        self._marks: list[int] = []  # one for each report in the file
        self._place = 0
        for line in self._lines.passed():
            self._is_new(self._values(line, torn=False))
        self._forget = self._place if count == 0 else -1

    def read(self, final: bool) -> list[dict[str, float]]:
        """The new reports, in their order."""
        lines = self._lines.read(final)
        if self._lines.restarted:
            self._begin_again()
        self.lines_seen += len(lines)
        reports = []
        for number, line in enumerate(lines, 1):
            values = self._values(line, torn=final and number == len(lines))
            if self._is_new(values):
                self._count += 1
                reports.append(values | {"step": values.get(self._step, self._count)})
        return reports

    def _begin_again(self) -> None:
        if len(self._marks) == self._forget:  # all of it from an earlier attempt
            self._marks = []
        self._place, self._forget = 0, -1

    def _is_new(self, values: dict[str, float]) -> bool:
        if not values:
            return False
        mark, place = self._mark(values), self._place
        self._place += 1
        if self._marks[place : place + 1] == [mark]:
            return False
        self._marks[place:] = [mark]
        return True

    def _mark(self, values: dict[str, float]) -> int:
        return hash(str(values))

    def _values(self, line: str, torn: bool) -> dict[str, float]:
        """The numbers of a line, whose end may be missing (`torn`)."""
        raise NotImplementedError


class JsonLines(_Reports):
    """Reports printed as JSON objects, one per line, between whatever else is printed."""

    def _values(self, line: str, torn: bool) -> dict[str, float]:
        return numbers_in(line)


class CsvRows(_Reports):
    """Reports written as rows below a header."""

    def __init__(self, path: Path, step: str, earlier: Earlier = NOTHING, count: int = 0) -> None:
        self._header: list[str] = []
        self._first_header: list[str] = []
        super().__init__(path, step, earlier, count)

    def _begin_again(self) -> None:
        super()._begin_again()
        self._header = []

    def _mark(self, values: dict[str, float]) -> int:
        return hash(str([values.get(name) for name in self._first_header]))  # the same with a new column

    def _values(self, line: str, torn: bool) -> dict[str, float]:
        row = [] if line.startswith("#") else _cells(line)
        if not self._header:
            self._header = row
            if not self._first_header or not set(self._first_header) <= set(row):  # another table
                self._first_header, self._marks = row, []
            return {}
        if torn and len(row) < len(self._header):
            return {}  # the last cell may be half a number
        values = {}
        for name, cell in zip(self._header, row, strict=False):
            try:
                values[name] = float(cell)
            except ValueError:
                continue
        return values


def numbers_in(line: str) -> dict[str, float]:
    """The numbers of a JSON object on a line, inner objects' names joined by "/"; {} where there is none."""
    line = "\r".join(map(printable, line.split("\r")))
    start, end = line.find("{"), line.rfind("}")
    # Another stream's progress bar may stand before it on the same line, so it need not begin there.
    if start < 0 or end < start or (line[:start].strip() and "\r" not in line[:start]):
        return {}
    try:
        value = parse_json(line[start : end + 1])
        found = flat(value) if isinstance(value, Mapping) else {}
        return {k: v for k, v in found.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    except ValueError:
        return {}


def _text(line: bytes) -> str:
    return line.removeprefix(codecs.BOM_UTF8).decode(errors="replace")


def _cells(line: str) -> list[str]:
    try:
        cells = [cell.strip() for cell in next(csv.reader([line.rstrip("\r")]), [])]
    except csv.Error:  # a field longer than they may be: text, no report
        return []
    return cells if any(cells) else []
