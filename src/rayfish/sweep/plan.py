"""What a sweep is made of, before it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfish.metrics.sinks.jsonl import read_jsonl
from rayfish.sweep import messages
from rayfish.sweep.records import DONE, PENDING, STOPPED, Trial
from rayfish.sweep.searchers import method_of
from rayfish.sweep.settings import DEFAULT_SAMPLES, POPULATIONS, Search
from rayfish.sweep.space import Space
from rayfish.sweep.task import Target


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

    def with_score(self, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
        """A function's only number is its score, whatever it is called, where nobody named a metric."""
        if self.metric in metrics or self.search.metric is not None or self.kind != "function":
            return metrics
        ours = ("step", self.target.step_name)
        numbers = [
            key for key, value in metrics.items() if key not in ours and messages.number(value) is not None
        ]
        return {**metrics, self.metric: metrics[numbers[0]]} if len(numbers) == 1 else metrics

    def rescored(self, trial: Trial, folder: Path) -> dict[str, Any]:
        """A trial's scores by this metric, from its reports, and its state with them.

        :param folder: of all trials
        """
        curve, state = [], trial.state
        reports = read_jsonl(folder / trial.name / "metrics.jsonl") or [trial.metrics]
        for count, metrics in enumerate(map(self.with_score, reports), 1):
            step, value = messages.number(metrics.get(self.time)), messages.number(metrics.get(self.metric))
            if value is not None:
                curve.append((count if step is None else step, value))
            elif messages.is_not_finite(metrics.get(self.metric)) and self.search.score == "last":
                curve.clear()  # it has no score unless a later report has one
        if trial.unscored or state in (DONE, STOPPED):
            cut_short = state == STOPPED and trial.value is None  # the metric before was the reason
            state = PENDING if cut_short or not curve else DONE if trial.unscored else state
        return {"state": state, "curve": curve}
