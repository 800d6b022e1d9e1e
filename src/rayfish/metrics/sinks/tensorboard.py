"""`events/`: the same lines for TensorBoard, drawn over environment steps."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayfish.metrics.sinks.jsonl import step_of

FLUSH_EVERY_S = 1.0


class TensorBoardSink:
    """Writes one TensorBoard event per line (all scalars in it), which is far cheaper than one each.

    It writes in the calling thread: tensorboardX's own writer queues events for a thread, and its flush
    does not wait for the queue, so that a run killed after a checkpoint could lack the point before it.

    :param folder: where the event files go; the file is made with the first line
    :param purge_step: TensorBoard hides what earlier sessions wrote at this step or later
    """

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        self._folder = folder
        self._purge_step = purge_step
        self._events: Any = None
        self._flushed = 0.0

    def write(self, metrics: Mapping[str, float]) -> None:
        """Append one event."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        if self._events is None:
            self._events = self._open()
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()]
        event = Event(wall_time=time.time(), step=step_of(metrics), summary=Summary(value=values))
        self._events.write_event(event)
        if time.monotonic() - self._flushed > FLUSH_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Put every event on the disk."""
        if self._events is not None:
            self._events.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush and close the event file."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _open(self) -> Any:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self._folder.mkdir(parents=True, exist_ok=True)
        events = EventsWriter(str(self._folder / "events"), f".{os.getpid()}")
        if self._purge_step is not None:
            start = SessionLog(status=SessionLog.START)
            events.write_event(Event(wall_time=time.time(), step=self._purge_step, session_log=start))
        return events
