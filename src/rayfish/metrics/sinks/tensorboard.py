"""`events/`: the same lines for TensorBoard, drawn over environment steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayfish.metrics.sinks.jsonl import step_of


class TensorBoardSink:
    """Writes one TensorBoard event per line (all scalars in it), which is far cheaper than one each.

    :param folder: where the event files go; the writer is made with the first line
    :param purge_step: TensorBoard hides what earlier sessions wrote at this step or later
    """

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        self._folder = folder
        self._purge_step = purge_step
        self._writer: Any = None
        self._summary: Any = None

    def write(self, metrics: Mapping[str, float]) -> None:
        """Append one event."""
        if self._writer is None:
            self._open()
        values = [self._summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()]
        self._writer.file_writer.add_summary(self._summary(value=values), step_of(metrics))

    def flush(self) -> None:
        """Write what waits in the writer's queue."""
        if self._writer is not None:
            self._writer.file_writer.flush()

    def close(self) -> None:
        """Flush and close the event file."""
        if self._writer is not None:
            self._writer.close()

    def _open(self) -> None:
        from tensorboardX import SummaryWriter
        from tensorboardX.proto.summary_pb2 import Summary

        self._summary = Summary
        self._writer = SummaryWriter(
            str(self._folder), purge_step=self._purge_step, flush_secs=10, write_to_disk=True
        )
