"""`metrics.jsonl`: one flat JSON object per iteration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from rayfish.files import atomic_write
from rayfish.metrics import names


def read_jsonl(path: Path) -> list[dict[str, float]]:
    """The lines of a `metrics.jsonl`; a line cut short by a crash ends the list."""
    if not path.exists():
        return []
    lines = []
    with path.open(encoding="utf-8") as file:
        for text in file:
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                break
    return lines


def step_of(metrics: Mapping[str, float]) -> int:
    """The step a line is drawn at: environment steps, or iterations when nothing is sampled."""
    return int(metrics.get(names.ENV_STEPS) or metrics.get(names.ITERATION) or 0)


class JsonlSink:
    """Appends each line and flushes it, so that another program can follow the file.

    :param path: the file
    :param resume_at: iteration after which existing lines are dropped; None keeps all
    """

    def __init__(self, path: Path, resume_at: int | None = None) -> None:
        kept = read_jsonl(path)
        if resume_at is not None:
            kept = [line for line in kept if line.get(names.ITERATION, 0) <= resume_at]
        if path.exists():
            # Also without a resume: a line cut short by a crash must not swallow the next one.
            atomic_write(path, "".join(_text(line) for line in kept))
        self.last_step = step_of(kept[-1]) if kept else 0
        self._file = path.open("a", encoding="utf-8")

    def write(self, metrics: Mapping[str, float]) -> None:
        """Append one line."""
        self._file.write(_text(metrics))
        self._file.flush()

    def flush(self) -> None:
        """Sync the file to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _text(line: Mapping[str, float]) -> str:
    return json.dumps(line) + "\n"
