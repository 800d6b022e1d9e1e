"""A sweep for display: everything there is to show at any moment, and how values are written."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rayfish import text
from rayfish.errors import RayfishError, RunNotFound
from rayfish.metrics.stats import mean_ci
from rayfish.sweep.directory import SweepDirectory
from rayfish.sweep.records import (
    DONE,
    FAILED,
    FINISHED,
    PAUSED,
    PENDING,
    RUNNING,
    STOPPED,
    Trial,
    comparable,
    damage_in,
    fold,
    read_events,
)
from rayfish.sweep.settings import Search
from rayfish.sweep.space import Space, parameters_in

STATES = {
    RUNNING: "running",
    PAUSED: "paused",
    PENDING: "waiting",
    DONE: "done",
    STOPPED: "stopped early",
    FAILED: "failed",
}
"""Every state of a trial as it is displayed, in the order of the counts."""

_SAY_NOTHING = ("name", "type", "class", "kind", "value", "size", "id")


@dataclass
class Point:
    """One point of the search space with all of its repetitions.

    :param value: the mean of their scores, without failed ones; None before there is one
    :param low: lower end of the mean's 95 % interval, `high` the upper one; the mean itself with one score
    :param state: running, paused or pending while one repetition is, then done, stopped or failed
    """

    number: int
    params: dict[str, Any]
    trials: list[Trial]
    value: float | None
    low: float | None
    high: float | None
    state: str

    @property
    def finished(self) -> bool:
        """Whether all of its repetitions have ended."""
        return self.state in FINISHED

    @property
    def scored(self) -> bool:
        """Whether it has ended with a score that counts."""
        return self.finished and self.value is not None


@dataclass
class SweepView:
    """Everything there is to show about a sweep.

    :param time: the name of what schedulers count
    :param total: points times repeats planned; 0 where that is unknown
    :param begun: the clock at the start of the first session
    :param seconds: spent so far, over all sessions
    :param slots: how many trials can run at once
    :param notes: for the reader, a sentence each
    :param over: whether this session has ended
    :param damage: a message on lines of the table that could not be read; "" for none
    :param best_command: trains the best point; "" where it has no experiment
    """

    title: str
    folder: Path
    search: Search
    space: Space
    trials: Mapping[int, Trial]
    metric: str
    time: str
    total: int = 0
    begun: float = 0.0
    seconds: float = 0.0
    running: int = 0
    slots: int = 1
    notes: list[str] = field(default_factory=list)
    over: bool = False
    damage: str = ""
    best_command: str = ""

    def counts(self) -> dict[str, int]:
        """How many trials are in each state; planned ones without a point count as waiting."""
        found = dict.fromkeys(STATES, 0)
        for trial in list(self.trials.values()):
            found[trial.state] += 1
        found[PENDING] += max(0, self.total - len(self.trials))
        return found

    def finished(self) -> int:
        """How many trials have ended."""
        return sum(trial.finished for trial in list(self.trials.values()))

    def points(self) -> list[Point]:
        """The trials grouped by point, best first; unfinished points after that, failed ones last."""
        grouped: dict[int, list[Trial]] = {}
        for trial in list(self.trials.values()):
            grouped.setdefault(trial.point, []).append(trial)
        found = [self._point(number, trials) for number, trials in grouped.items()]
        return sorted(found, key=self._rank)

    def best(self) -> Trial | None:
        """The best trial; with repetitions, the best of the best point."""
        point = self.best_point()
        return next(iter(self.ranked(point.trials)), None) if point is not None else None

    def ranked(self, trials: Iterable[Trial]) -> list[Trial]:
        """Trials with a score, the best first; failed ones left out."""
        scored = [trial for trial in trials if has_score(trial) and trial.state != FAILED]
        return sorted(scored, key=lambda trial: -self.search.sign * (trial.value or 0.0))

    def best_point(self) -> Point | None:
        """The point with the best mean: of those that have ended well, else of those under way."""
        good = [point for point in self.points() if point.value is not None and point.state != FAILED]
        ended = [point for point in good if point.finished]
        sign = self.search.sign
        return max(ended or good, key=lambda p: (sign * (p.value or 0.0), -p.number), default=None)

    def time_left(self) -> float | None:
        """Seconds to the end, estimated from the trials that have ended; None without any, and at the end."""
        if self.over:
            return None
        trials = list(self.trials.values())
        ended = [trial.seconds for trial in trials if trial.state in (DONE, STOPPED)]
        budget = self.search.time_budget_s
        left = None if budget is None else max(0.0, budget - self.seconds)
        if not ended or not self.total:
            return left
        usual = sum(ended) / len(ended)
        ahead = self.total - sum(trial.finished for trial in trials)
        done = sum(min(trial.seconds, usual) for trial in trials if trial.state in (RUNNING, PAUSED))
        work = max(0.0, usual * ahead - done) / max(1, min(self.slots, ahead))
        return work if left is None else min(left, work)

    def _point(self, number: int, trials: list[Trial]) -> Point:
        values = tuple(comparable(trials, self.search.sign, self.search.score))
        mean, low, high = _interval(values) if values else (None, None, None)
        states = {trial.state for trial in trials}
        # The state of a repetition that runs, else waits; failed if all have failed, and stopped early if
        # one was: the score is of the step that all of them have reached.
        state = next(state for state in STATES if state in states)
        state = STOPPED if state == DONE and STOPPED in states else state
        return Point(number, trials[-1].earned_with, trials, mean, low, high, state)

    def _rank(self, point: Point) -> tuple[int, float, int]:
        group = 0 if point.scored and point.state != FAILED else 2 if point.state == FAILED else 1
        return group, 0.0 if group else -self.search.sign * (point.value or 0.0), point.number


def stored_view(folder: SweepDirectory) -> SweepView:
    """A sweep read from its folder.

    :raises RunNotFound: its files are damaged
    """
    folder.require_table()
    try:
        return _read(folder)
    except (RayfishError, LookupError, TypeError, ValueError, AttributeError) as error:
        why = error.what if isinstance(error, RayfishError) else f"{type(error).__name__}: {error}"
        raise RunNotFound(
            f"the sweep {folder.path} is damaged: {why}", f"its trials are kept: {folder.trials}"
        ) from None


def _read(folder: SweepDirectory) -> SweepView:
    data = folder.data
    search = Search(**data.get("search") or {})
    damaged: list[int] = []
    trials = fold(read_events(folder.table_file, damaged), sign=search.sign, score=search.score)
    return SweepView(
        title=str(data.get("title")),
        folder=folder.path,
        search=search,
        space=parameters_in(data.get("space") or {}),
        trials=trials,
        metric=str(data.get("metric")),
        time=str(data.get("time")),
        seconds=float(data.get("seconds") or 0.0),
        total=int(data.get("total") or 0) if data.get("status") != DONE else 0,
        over=data.get("status") != RUNNING,
        damage=damage_in(folder.table_file, damaged),
    )


_interval = lru_cache(maxsize=8192)(mean_ci)


def has_score(trial: Trial) -> bool:
    """Whether a trial has a score that can be drawn."""
    return trial.value is not None and math.isfinite(trial.value)


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Each dotted key by as few of its last parts as are unique, and meaningful."""
    keys = list(keys)
    parts = {key: key.split(".") for key in keys}
    names = {}
    for key in keys:
        fewest = 2 if parts[key][-1] in _SAY_NOTHING and len(parts[key]) > 1 else 1
        for length in range(fewest, len(parts[key]) + 1):
            tail = parts[key][-length:]
            if all(other == key or parts[other][-length:] != tail for other in keys):
                break
        names[key] = ".".join(tail)
    return names


def written(names: Mapping[str, str], params: Mapping[str, Any], most: int = 0) -> dict[str, str]:
    """A point as people read it: its values (see `shown`) by the short names of its keys."""
    return {names.get(key, key): shown(value, most) for key, value in params.items()}


def figure(value: float | None) -> str:
    """A score: 487.2, 1.2e+30, "" for none."""
    if value is None:
        return ""
    return f"{value:.4g}" if abs(value) >= 1e9 else text.number(value)


def shown(value: Any, most: int = 0) -> str:
    """A parameter's value on one line: 0.00031, [64,64], relu.

    :param most: the longest it may be, in characters; 0 for any length
    """
    if isinstance(value, float):
        line = f"{value:.4g}"
    elif isinstance(value, str):
        line = " ".join(value.split())
    elif isinstance(value, Sequence | Mapping):
        line = json.dumps(value, separators=(",", ":"), default=str, ensure_ascii=False).replace('"', "")
    else:
        line = str(value)
    return line if not most or len(line) <= most else line[: most - 1] + "…"


def about(seconds: float) -> str:
    """A span of time in round numbers: 40 s, 3 min, 2 h 10 min."""
    if seconds < 90:
        return f"{max(1, round(seconds / 5) * 5) if seconds >= 10 else max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(round(minutes / 10) * 10, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{round(seconds / 86400)} d"
