"""Reports from text that grows: JSON lines and CSV files, a half-written last line left alone."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CHUNK = 4 << 20


class Lines:
    """The lines of a file that is being written, those that are new at each reading.

    :param offset: bytes at its beginning that are passed over
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path, self.offset = path, offset
        self._rest = b""

    def read(self, final: bool) -> list[str]:
        """The new lines without their ends; the last, unfinished one only when nothing will follow."""
        found: list[str] = []
        try:
            if self.path.stat().st_size < self.offset:  # written anew
                self.offset, self._rest = 0, b""
            with self.path.open("rb") as file:
                file.seek(self.offset)
                while chunk := file.read(_CHUNK):
                    self.offset += len(chunk)
                    *lines, self._rest = (self._rest + chunk).split(b"\n")
                    found += [line.decode(errors="replace") for line in lines]
        except OSError:
            return found
        if final and self._rest:
            found.append(self._rest.decode(errors="replace"))
            self._rest = b""
        return found


class JsonLines:
    """Reports printed as JSON objects, one per line, between whatever else is printed.

    :param step: the key that says how far it is
    :param count: reports so far, where there is no such key
    """

    def __init__(self, path: Path, step: str, offset: int = 0, count: int = 0) -> None:
        self.path, self._step, self._count = path, step, count
        self._lines = Lines(path, offset)
        self.lines_seen = 0

    def read(self, final: bool) -> list[dict[str, float]]:
        """The new reports, in their order."""
        reports = []
        for line in self._lines.read(final):
            self.lines_seen += 1
            values = numbers_in(line)
            if values:
                self._count += 1
                values["step"] = values.get(self._step, self._count)
                reports.append(values)
        return reports


class CsvRows:
    """Reports written as rows below a header.

    A logger that finds a new column writes its whole file anew, with another header; the rows that were
    read before are then passed over.
    """

    def __init__(self, path: Path, step: str, offset: int = 0, count: int = 0) -> None:
        self.path, self._step, self._count = path, step, count
        self._lines = Lines(path, 0)
        self._header: list[str] = []
        self._rows, self._skip = 0, 0
        if offset:
            self._skip = sum(1 for line in self._lines.read(False)[1:] if line.strip())
            self._lines = Lines(path, 0)

    def read(self, final: bool) -> list[dict[str, float]]:
        """The new reports, in their order."""
        if self._header and self._header_now() not in (self._header, []):
            self._lines, self._header, self._skip, self._rows = Lines(self.path), [], self._rows, 0
        before = self._lines.offset
        lines = self._lines.read(final)
        if self._lines.offset < before:
            self._header, self._rows, self._skip = [], 0, 0
        reports = []
        for line in lines:
            row = _cells(line)
            if not row or line.startswith("#"):
                continue
            if not self._header:
                self._header = row
                continue
            if len(row) < len(self._header) and line is lines[-1] and final:
                continue  # its end is missing: what stands there may be half a number
            self._rows += 1
            if self._rows > self._skip:
                reports += self._report(row)
        return reports

    def _report(self, row: list[str]) -> list[dict[str, float]]:
        values = {}
        for name, cell in zip(self._header, row, strict=False):
            try:
                values[name] = float(cell)
            except ValueError:
                continue
        if not values:
            return []
        self._count += 1
        return [values | {"step": values.get(self._step, self._count)}]

    def _header_now(self) -> list[str]:
        try:
            with self.path.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    if not line.startswith("#"):
                        return _cells(line.rstrip("\n")) if line.endswith("\n") else []
        except OSError:
            pass
        return []


def numbers_in(line: str) -> dict[str, float]:
    """The numbers of a JSON object on a line, inner objects' names joined by "/"; {} where there is none."""
    start, end = line.find("{"), line.rfind("}")
    # Another stream's progress bar may stand before it on the same line, so it need not begin there.
    if start < 0 or end < start or (line[:start].strip() and "\r" not in line[:start]):
        return {}
    try:
        value = json.loads(line[start : end + 1])
    except ValueError:
        return {}
    return flat(value) if isinstance(value, Mapping) else {}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a nested mapping by names joined with "/"; everything else is left out."""
    found: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{prefix}{key}"] = value
    return found


def _cells(line: str) -> list[str]:
    cells = next(csv.reader([line.rstrip("\r")]), [])
    return [cell.strip() for cell in cells] if any(cell.strip() for cell in cells) else []
