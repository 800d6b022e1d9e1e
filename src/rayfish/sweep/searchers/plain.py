"""Grid and random search: points that depend on nothing but their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rayfish.errors import ConfigError, Problem
from rayfish.sweep.searchers.base import Known, Searcher, drawn, generator
from rayfish.sweep.space import Space


class RandomSearcher(Searcher):
    """Every parameter at random, a grid's values like choices.

    :param start: points to try first; what they leave out is drawn
    """

    def __init__(self, space: Space, start: Sequence[Mapping[str, Any]] = (), *, seed: int = 0) -> None:
        self._space = space
        self._start = list(start)
        self._seed = seed

    def ask(self, number: int) -> dict[str, Any] | None:
        """Point `number`, the same one whenever it is asked for."""
        given = self._start[number - 1] if number <= len(self._start) else {}
        return drawn(self._space, given, generator(self._seed, number))

    def report(self, number: int, step: float, value: float) -> None:
        """Learns nothing."""

    def tell(self, number: int, value: float | None, *, pruned: bool = False) -> None:
        """Learns nothing."""

    def recall(self, points: Sequence[Known]) -> None:
        """Has nothing to remember."""


class GridSearcher(RandomSearcher):
    """Every combination of the grid's values, `samples` times; the other parameters are drawn each time.

    :raises ConfigError: where nothing in the space is a grid
    """

    def __init__(
        self, space: Space, start: Sequence[Mapping[str, Any]] = (), *, samples: int = 1, seed: int = 0
    ) -> None:
        if len(space) and not any(p.kind in ("grid", "sample_from") for p in space):
            shown = ", ".join(f"{p.key} ({p.kind})" for p in space)
            hint = "write grid(...) for the keys to go through, or set search.method=random"
            raise ConfigError([Problem("search.method", f"grid, but nothing is a grid: {shown}", hint)])
        points = space.grid * samples
        for point in start:  # it is tried first, not twice
            if dict(point) in points:
                points.remove(dict(point))
        super().__init__(space, [*start, *points], seed=seed)
        self.total = len(self._start)

    def ask(self, number: int) -> dict[str, Any] | None:
        """Point `number`; None after the last one."""
        return super().ask(number) if number <= len(self._start) else None
