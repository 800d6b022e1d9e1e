"""When a run is done: conditions on metrics, and how long until the nearest one.

Imports nothing heavy: `rayfish config check` uses it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rayfish.errors import MOST_SHOWN, Problem, suggest
from rayfish.experiment.result_names import STOP_KEYS, todays_metric, why_gone
from rayfish.metrics import names

_RECENT = 20
"""Lines of history that a rate or a trend is measured on."""

_CLEAR_TREND = 0.8
"""Correlation of a metric with time above which its trend may be prolonged."""

_FARTHEST_S = 7 * 24 * 3600.0
"""A return that would need longer than this is not foreseen at all."""

_FORMS = "write 0.5 or '>= 0.5' (at least), or '<= 0.5' (at most), which are {above: 0.5} and {below: 0.5}"


@dataclass(frozen=True)
class Limit:
    """One bound on a metric: at least `value`, or at most where `is_below`."""

    value: float
    is_below: bool = False

    @property
    def sign(self) -> str:
        """The comparison, as it is written."""
        return "<=" if self.is_below else ">="

    def is_met(self, value: float) -> bool:
        """Whether a metric of this value ends the run."""
        return value <= self.value if self.is_below else value >= self.value


def parse_limits(written: Any) -> list[Limit] | None:
    """The bounds that a stop condition states; [] for null, None for a form that is not understood."""
    if written is None:
        return []
    if isinstance(written, str):
        match = re.fullmatch(r"\s*(<=?|>=?)\s*([^\s<>=]+)\s*", written)
        number = _number(match[2]) if match else None
        return [Limit(number, match[1][0] == "<")] if match and number is not None else None
    if isinstance(written, Mapping):
        numbers = {side: _number(value) for side, value in written.items()}
        if not numbers or set(numbers) - {"above", "below"} or None in numbers.values():
            return None
        return [Limit(number, side == "below") for side, number in numbers.items() if number is not None]
    number = _number(written)
    return None if number is None else [Limit(number)]


def _number(written: Any) -> float | None:
    """A number, also as text; None for anything else, and for NaN."""
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        return None
    try:
        number = float(written)
    except ValueError:
        return None
    return None if math.isnan(number) else number


class StopConditions:
    """Stops a run as soon as one metric reaches a limit: from below, or from above where that is written.

    `limits` are reached from below, `lower_limits` from above; wrong conditions are in `problems`.
    """

    def __init__(self, conditions: Mapping[str, Any]) -> None:
        self.limits: dict[str, float] = {}
        self.lower_limits: dict[str, float] = {}
        self.problems: list[Problem] = []
        for key, limit in conditions.items():
            name = todays_metric(key) or key
            # A suggestion compares the key with all names, so that only problems that are shown get one.
            known = [*STOP_KEYS, *names.fixed()] if len(self.problems) < MOST_SHOWN else []
            problem = _problem(key, name, limit, known)
            if problem is not None:
                self.problems.append(problem)
                continue
            for bound in parse_limits(limit) or ():
                # Two spellings of one metric: the nearer limit would fire first anyway.
                if bound.is_below:
                    self.lower_limits[name] = max(bound.value, self.lower_limits.get(name, -math.inf))
                else:
                    self.limits[name] = min(bound.value, self.limits.get(name, math.inf))

    @property
    def bounds(self) -> list[tuple[str, Limit]]:
        """Every metric with a bound, in the order in which they are looked at."""
        above = [(name, Limit(value)) for name, value in self.limits.items()]
        return above + [(name, Limit(value, True)) for name, value in self.lower_limits.items()]

    def reached(self, metrics: Mapping[str, float]) -> str | None:
        """The first condition that `metrics` fulfil, as a sentence; None when none does."""
        for name, limit in self.bounds:
            value = metrics.get(name)
            if value is not None and limit.is_met(value):
                return f"{name} {_short(value)} {limit.sign} {_short(limit.value)}"
        return None

    def time_left(self, history: Sequence[Mapping[str, float]]) -> tuple[float, str, Limit] | None:
        """Seconds until the first condition is expected to fire, with its metric and limit.

        Counters are prolonged along their recent rate; any other metric only if it has been moving
        steadily towards its limit. None when nothing can be foreseen. `history` has the oldest line first.
        """
        recent = history[-_RECENT:]
        guesses = [
            (seconds, name, limit)
            for name, limit in self.bounds
            if (seconds := _seconds_to(name, limit, recent)) is not None
        ]
        return min(guesses, default=None, key=lambda guess: guess[:2])


def _problem(key: str, name: str, limit: Any, known: Sequence[str]) -> Problem | None:
    where = f"stop_conditions.{key}"
    if not names.is_known(name):
        gone = why_gone(key)
        if gone is not None:
            return Problem(where, f"no result is called {key!r} any more", gone)
        hint = (
            f"use a metric, such as {names.RETURN_MEAN}, {names.ENV_STEPS}, {names.TIME_TOTAL}, or "
            f"{names.env(key)} for a number that a callback or the environment reports"
        )
        what = f"no metric is called {key!r}, so this condition would never stop the run"
        return Problem(where, what, suggest(key, known, hint))
    if limit is None:
        return None
    bounds = parse_limits(limit)
    if bounds is None:
        what = f"is {limit!r}, which is not a number" + ("" if _is_plain(limit) else " with a comparison")
        return Problem(where, what, "give a number, or null for no limit" if _is_plain(limit) else _FORMS)
    counts = name in names.COUNTERS
    early = [bound for bound in bounds if counts and (bound.value <= 0 or bound.is_below)]
    if early:
        shown = limit if isinstance(limit, int | float) else f"{early[0].sign} {early[0].value:g}"
        what = f"is {shown}, which is reached before the run begins"
        return Problem(where, what, "give a number above 0, or null for no limit")
    return None


def _is_plain(limit: Any) -> bool:
    """Whether a wrong limit was meant as a bare number."""
    return not isinstance(limit, Mapping) and not (isinstance(limit, str) and re.search("[<>=]", limit))


def _seconds_to(name: str, limit: Limit, history: Sequence[Mapping[str, float]]) -> float | None:
    points = [
        (line[names.TIME_TOTAL], line[name]) for line in history if name in line and names.TIME_TOTAL in line
    ]
    if not points:
        return None
    if limit.is_met(points[-1][1]):
        return 0.0
    if name == names.TIME_TOTAL:
        return limit.value - points[-1][1]
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    if name in names.COUNTERS:
        rate = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
        return (limit.value - points[-1][1]) / rate if rate > 0 else None
    if limit.is_below:  # the mirror image of a metric that rises
        return _along_trend([(at, -value) for at, value in points], -limit.value)
    return _along_trend(points, limit.value)


def _along_trend(points: Sequence[tuple[float, float]], limit: float) -> float | None:
    import statistics

    if len(points) < _RECENT // 2:
        return None
    times, values = zip(*points, strict=True)
    try:
        if statistics.correlation(times, values) < _CLEAR_TREND:
            return None
    except statistics.StatisticsError:  # one of them is constant
        return None
    slope, start = statistics.linear_regression(times, values)
    seconds = max(0.0, (limit - start) / slope - times[-1])
    return seconds if seconds <= _FARTHEST_S else None


def _short(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
