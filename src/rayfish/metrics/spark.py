"""A curve in characters: how the return went, small enough for a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_BLOCKS = " ▁▂▃▄▅▆▇█"


class Series:
    """A growing series kept within a bound: neighbours are averaged once it gets too long."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._stride = 1
        self._values: list[float] = []
        self._pending: list[float] = []

    def append(self, value: float) -> None:
        """Add one value."""
        self._pending.append(value)
        if len(self._pending) < self._stride:
            return
        self._values.append(sum(self._pending) / len(self._pending))
        self._pending.clear()
        if len(self._values) >= self._most:
            pairs = zip(self._values[::2], self._values[1::2], strict=False)
            self._values = [(a + b) / 2 for a, b in pairs]
            self._stride *= 2

    def values(self) -> list[float]:
        """The series so far, oldest first."""
        tail = [sum(self._pending) / len(self._pending)] if self._pending else []
        return self._values + tail


def resample(values: Sequence[float], width: int) -> list[float]:
    """Exactly `width` values: bucket means of a longer series, a shorter one drawn out between its points."""
    count = len(values)
    if not count or width <= 0:
        return []
    if count < width:
        places = [index * (count - 1) / max(1, width - 1) for index in range(width)]
        return [
            values[int(at)] + (at - int(at)) * (values[min(count - 1, int(at) + 1)] - values[int(at)])
            for at in places
        ]
    edges = [index * count // width for index in range(width + 1)]
    return [sum(values[low:high]) / (high - low) for low, high in itertools.pairwise(edges)]


def area(values: Sequence[float], width: int, height: int = 1, *, high: float | None = None) -> list[str]:
    """A filled curve as `height` rows of text, top row first, up to `high` (or the largest value)."""
    points = resample(values, width)
    if not points:
        return [""] * height
    low = min(points)
    span = (max(points) if high is None else high) - low
    levels = 8 * height
    # The lowest point keeps one eighth: an empty column would look like a missing value.
    marks = [
        1 + round((levels - 1) * min(1.0, max(0.0, (p - low) / span))) if span > 0 else levels // 2 or 1
        for p in points
    ]
    rows = reversed(range(height))
    return ["".join(_BLOCKS[min(8, max(0, mark - 8 * row))] for mark in marks) for row in rows]
