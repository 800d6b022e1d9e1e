"""`progress.csv`: the same lines as a table. A metric that appears later adds a column."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from rayfish.metrics import names
from rayfish.metrics.sinks import lines
from rayfish.metrics.sinks.jsonl import FileSink, each_line


class CsvSink(FileSink):
    """Appends rows; when a new metric appears, the file is rewritten once with the wider header."""

    def __init__(self, path: Path, resume_at: int | None = None) -> None:
        self._path = path
        self._columns: list[str] = []
        self.notes = lines.note_if_gone(path, resume_at)
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
        self._file.write(_row(map(metrics.get, self._columns)))
        self._file.flush()

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
            again = "is made again from metrics.jsonl" if self._rebuild() else "starts again"
            what = f"the header is damaged, and the table {again}"
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
        self.notes = lines.roll_back(self._path, at, number, sound=sound, quick=sound, begun=bytes.isascii)

    def _rebuild(self) -> bool:
        """Writes the table of `metrics.jsonl`, which is rolled back already; False where that is empty."""
        source = self._path.with_name("metrics.jsonl")
        self._columns = list(dict.fromkeys(name for metrics in each_line(source) for name in metrics))
        head = [_row(self._columns).encode()] if self._columns else []
        body = (_row(map(metrics.get, self._columns)).encode() for metrics in each_line(source))
        lines.replace_lines(self._path, chain(head, body))
        return bool(self._columns)

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


def _row(cells: Iterable[str | float | None]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()
