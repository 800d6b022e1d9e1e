"""Where metric lines go: `metrics.jsonl`, `progress.csv`, TensorBoard's `events/`.

`open_sinks` opens those an experiment wants; on a resume they are first rolled back to the checkpoint,
so that the files look as if the run had never been interrupted. That reads as little as it can: a run of a
million iterations resumes as fast as a short one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rayfish.metrics.sinks.csvfile import CsvSink
from rayfish.metrics.sinks.jsonl import JsonlSink, last_with, newest_first, read_jsonl, sample_jsonl
from rayfish.metrics.sinks.tensorboard import TensorBoardSink

__all__ = ["Sinks", "last_with", "newest_first", "open_sinks", "read_jsonl", "sample_jsonl"]


Sink = JsonlSink | CsvSink | TensorBoardSink


class Sinks:
    """Several sinks as one, with notes for the user on damaged lines that were left out."""

    def __init__(self, sinks: list[Sink], notes: list[str]) -> None:
        self.sinks = sinks
        self.notes = notes

    def write(self, metrics: Mapping[str, float]) -> None:
        """Give one line to every sink."""
        for sink in self.sinks:
            sink.write(metrics)

    def flush(self) -> None:
        """Every line so far is on the disk: before a checkpoint, which a resume goes back to."""
        for sink in self.sinks:
            sink.flush()

    def close(self) -> None:
        """Close every sink, also when one of them fails to write what is left."""
        with ExitStack() as closing:
            for sink in reversed(self.sinks):
                closing.callback(sink.close)

    def __enter__(self) -> Sinks:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_sinks(directory: Path, experiment: Any, *, resume_at: int | None = None) -> Sinks:
    """Open the sinks of a run directory; lines after iteration `resume_at` are dropped, None keeps all."""
    directory = Path(directory)
    jsonl = JsonlSink(directory / "metrics.jsonl", resume_at)
    table = CsvSink(directory / "progress.csv", resume_at)
    sinks: list[Sink] = [jsonl, table]
    if experiment.trackers.tensorboard:
        purge = None if resume_at is None else jsonl.last_step + 1
        sinks.append(TensorBoardSink(directory / "events", purge))
    return Sinks(sinks, [*jsonl.notes, *table.notes])
