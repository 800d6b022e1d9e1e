"""`progress.csv`: the same lines as a table. A metric that appears later adds a column."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path

from rayfish.files import atomic_write
from rayfish.metrics import names


class CsvSink:
    """Appends rows; when a new metric appears, the file is rewritten once with the wider header.

    :param path: the file
    :param resume_at: iteration after which existing rows are dropped; None keeps all
    """

    def __init__(self, path: Path, resume_at: int | None = None) -> None:
        self._path = path
        self._columns: list[str] = []
        if path.exists():
            rows = self._read()
            if resume_at is not None:
                rows = [row for row in rows if float(row.get(names.ITERATION) or 0) <= resume_at]
            self._rewrite(rows)
        self._file = path.open("a", encoding="utf-8", newline="")

    def write(self, metrics: Mapping[str, float]) -> None:
        """Append one row."""
        new = [name for name in metrics if name not in self._columns]
        if new:
            self._file.close()
            rows = self._read() if self._path.exists() else []
            self._columns += new
            self._rewrite(rows)
            self._file = self._path.open("a", encoding="utf-8", newline="")
        self._file.write(self._row([_cell(metrics.get(name)) for name in self._columns]))
        self._file.flush()

    def flush(self) -> None:
        """Sync the file to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self) -> list[dict[str, str]]:
        with self._path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            self._columns = list(reader.fieldnames or [])
            # A row cut short by a crash has too few cells (their value is None).
            return [row for row in reader if None not in row.values()]

    def _rewrite(self, rows: list[dict[str, str]]) -> None:
        body = [self._row([row.get(name, "") for name in self._columns]) for row in rows]
        atomic_write(self._path, "".join([self._row(self._columns), *body]) if self._columns else "")

    @staticmethod
    def _row(cells: list[str]) -> str:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow(cells)
        return out.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else repr(value)
