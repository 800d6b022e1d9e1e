"""Scalars from TensorBoard's event files, while they are being written.

An event file is a row of records (length, checksum of the length, data, checksum of the data), the data
an `Event` protocol buffer. TensorBoard's own readers stop at a record that is still being written and
begin again; here the reading goes on where it ended.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = "tfevents"
"""What names of event files have in common."""

QUIET_S, DOUBTFUL_QUIET_S = 0.3, 5.0
"""So long nothing new: the newest step is complete, when it looks so, and when it does not."""

_CHUNK = 16 << 20
_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 10: "<?", 19: "<e"}  # of a tensor's types


class EventFile:
    """One event file, read from `offset`, then from where the last reading ended."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path, self.offset = path, offset
        self.damaged = False

    def read(self) -> Iterator[tuple[int, str, float]]:
        """The (step, tag, value) that are new; a record still being written is left for the next time."""
        from google.protobuf.message import DecodeError
        from tensorboardX.record_writer import masked_crc32c

        while not self.damaged:
            try:
                with self.path.open("rb") as file:
                    file.seek(self.offset)
                    data = file.read(_CHUNK)
            except OSError:
                return
            used = 0
            while len(data) - used >= 12:
                (length,) = struct.unpack_from("<Q", data, used)
                if masked_crc32c(data[used : used + 8]) != struct.unpack_from("<I", data, used + 8)[0]:
                    self.damaged = True  # where the next record begins is unknown
                    return
                if used + 16 + length > len(data):
                    break
                event = data[used + 12 : used + 12 + length]
                used += 16 + length
                self.offset += 16 + length
                try:
                    yield from scalars(event)
                except DecodeError:
                    continue
            if used == 0:
                if len(data) == _CHUNK and not self.damaged:  # one record larger than all we read: an image
                    self.offset += 16 + length
                    continue
                return


class Steps:
    """Scalars as they come, gathered into one report per step.

    :param metric: the tag that matters most; a step that has it is complete sooner
    """

    def __init__(self, metric: str = "") -> None:
        self._metric = metric
        self._pending: dict[int, dict[str, float]] = {}
        self._late: dict[str, float] = {}
        self._ready: list[dict[str, float]] = []
        self._last: int | None = None
        self._given: dict[str, float] = {}
        self._tag_steps: dict[str, int] = {}
        self._news = time.monotonic()

    def add(self, step: int, tag: str, value: float) -> None:
        """One scalar. What comes too late for its step is part of the next report."""
        self._news = time.monotonic()
        if 2 * step < self._tag_steps.get(tag, step):  # it counts from the beginning again
            self._gather(len(self._pending))
            self._last = None
            self._tag_steps.clear()
        self._tag_steps[tag] = step
        if self._last is not None and step < self._last:
            self._late[tag] = value
            return
        known = self._given if step == self._last else {}
        self._pending.setdefault(step, dict(known))[tag] = value

    def take(self, final: bool) -> list[dict[str, float]]:
        """The reports that are complete, in the order of their steps; all of them where nothing follows."""
        self._gather(len(self._pending) - (0 if final or self._settled() else 1))
        if final and self._late and self._last is not None:
            self._ready.append({**self._given, **self._late, "step": self._last})
            self._late = {}
        ready, self._ready = self._ready, []
        return ready

    def _settled(self) -> bool:
        if not self._pending:
            return True
        newest = self._pending[max(self._pending)]
        looks_complete = self._metric in newest or bool(self._given and self._given.keys() <= newest.keys())
        quiet = time.monotonic() - self._news
        return quiet > (QUIET_S if looks_complete else DOUBTFUL_QUIET_S)

    def _gather(self, count: int) -> None:
        for step in sorted(self._pending)[: max(0, count)]:
            values = self._pending.pop(step)
            self._ready.append({**self._late, **values, "step": step})
            self._last, self._given, self._late = step, values, {}


def scalars(event: bytes) -> Iterator[tuple[int, str, float]]:
    """The (step, tag, value) of one event."""
    from tensorboardX.proto.event_pb2 import Event

    message = Event.FromString(event)
    for value in message.summary.value:
        plugin = value.metadata.plugin_data.plugin_name
        if plugin in ("", "scalars"):
            kind = value.WhichOneof("value")
            scalar = value.simple_value if kind == "simple_value" else None
            if kind == "tensor":
                scalar = _single(value.tensor)
            if scalar is not None:
                yield message.step, value.tag, float(scalar)


def _single(tensor: Any) -> float | None:
    """The one number of a tensor; None where it holds text or many numbers."""
    lists = (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val, tensor.bool_val)
    found = [float(number) for numbers in lists for number in numbers]
    form = _FORMATS.get(tensor.dtype)
    if tensor.tensor_content and form and len(tensor.tensor_content) == struct.calcsize(form):
        found.append(float(struct.unpack(form, tensor.tensor_content)[0]))
    return found[0] if len(found) == 1 else None
