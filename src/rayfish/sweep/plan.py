"""What a sweep is made of, before it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rayfish.sweep.searchers import method_of
from rayfish.sweep.settings import DEFAULT_SAMPLES, POPULATIONS, Search
from rayfish.sweep.space import Space
from rayfish.sweep.work import Target


@dataclass
class Plan:
    """One sweep.

    :param kind: experiment, function or program
    :param name: its folder's name
    :param title: what it is, in one line
    :param target: what is tuned
    :param space: what varies
    :param search: how
    :param metric: what counts, by its name in a report
    :param source: what the target is made from, for a resume
    :param seed: of the search
    :param seeds: the first of the seeds of a point's repetitions
    :param paths: folders where the user's modules are
    :param start: points to try first
    :param notes: lines for the user to see first
    """

    kind: str
    name: str
    title: str
    target: Target
    space: Space
    search: Search
    metric: str
    source: dict[str, Any]
    seed: int
    seeds: int = 0
    root: str = "runs"
    paths: tuple[str, ...] = ()
    start: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def time(self) -> str:
        """What schedulers count."""
        return self.search.time or self.target.step_name

    @property
    def population(self) -> bool:
        """Whether all trials run side by side and learn from each other."""
        return self.search.scheduler in POPULATIONS

    @property
    def points(self) -> int:
        """How many points are tried."""
        if method_of(self.search, self.space) == "grid":
            return len(self.space.grid) * (self.search.num_samples or 1)
        return self.search.num_samples or DEFAULT_SAMPLES
