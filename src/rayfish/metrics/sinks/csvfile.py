"""`progress.csv`: the same lines as a table. A metric that appears later adds a column."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from rayfish.metrics import names
from rayfish.metrics.sinks import lines


class CsvSink:
    """Appends rows; when a new metric appears, the file is rewritten once with the wider header.

    :param path: the file
    :param resume_at: iteration after which existing rows are dropped; None keeps all
    """

    def __init__(self, path: Path, resume_at: int | None = None) -> None:
        self._path = path
        self._columns: list[str] = []
        self.notes: list[str] = []
        if path.exists() and path.stat().st_size:
            self._take_up(resume_at)
        self._file = path.open("a", encoding="utf-8", newline="")

    def write(self, metrics: Mapping[str, float]) -> None:
        """Append one row."""
        new = [name for name in metrics if name not in self._columns]
        if new:
            self._file.close()
            self._widen(new)
            self._file = self._path.open("a", encoding="utf-8", newline="")
        self._file.write(_row([_cell(metrics.get(name)) for name in self._columns]))
        self._file.flush()

    def flush(self) -> None:
        """Sync the file to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _take_up(self, resume_at: int | None) -> None:
        """Columns and rows of an earlier session."""
        with self._path.open("rb") as file:
            head = file.readline()
        try:
            self._columns = next(csv.reader([head.decode()]), [])
        except (UnicodeDecodeError, csv.Error):
            self._columns = []
        if names.ITERATION not in self._columns or not head.endswith(b"\n"):
            kept = lines.set_aside(self._path)
            self._columns = []
            lines.replace_lines(self._path, iter(()))
            what = "the header is damaged, and the table starts again"
            self.notes = [f"{self._path.name}: {what}; the original is kept as {kept.name}"]
            return
        place, commas = self._columns.index(names.ITERATION), len(self._columns) - 1

        def number(row: bytes) -> float | None:
            try:
                return 0 if row == head else float(row.split(b",", place + 1)[place])
            except (ValueError, IndexError):
                return None

        def sound(row: bytes) -> bool:
            cells = row.count(b",") == commas and row.isascii() and number(row) is not None
            return cells or row == head

        at = 0.5 if resume_at == 0 else resume_at  # the header stays
        self.notes = lines.roll_back(self._path, at, number, sound, sound)

    def _widen(self, new: list[str]) -> None:
        self._columns += new
        more = b"," * len(new) + b"\n"

        def wider() -> Iterator[bytes]:
            yield _row(self._columns).encode()
            with self._path.open("rb") as file:
                file.readline()
                while block := file.read(lines.BLOCK):
                    yield block.replace(b"\n", more)

        lines.replace_lines(self._path, wider())


def _row(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else repr(value)
