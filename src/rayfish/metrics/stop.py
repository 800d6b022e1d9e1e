"""When a run is done: conditions on metrics, and how long until the nearest one.

Imports nothing heavy, because `rayfish config check` asks it for problems.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rayfish.errors import Problem, did_you_mean
from rayfish.experiment.old.results import STOP_KEYS, todays_metric, why_gone
from rayfish.metrics import names

_RECENT = 20
"""Lines of history that a rate or a trend is measured on."""

_CLEAR_TREND = 0.8
"""Correlation of a metric with time above which its trend may be prolonged."""

_FARTHEST_S = 7 * 24 * 3600.0
"""A return that would need longer than this is not foreseen at all."""


class StopConditions:
    """Stops a run as soon as one metric reaches its limit (`metric >= limit`).

    What is wrong with the section is in `problems`; such conditions are left out of `limits`.

    :param conditions: the `stop_conditions` section; null limits are ignored
    """

    def __init__(self, conditions: Mapping[str, Any] | None = None) -> None:
        self.limits: dict[str, float] = {}
        self.problems: list[Problem] = []
        for key, limit in (conditions or {}).items():
            name = todays_metric(key) or key
            problem = _problem(key, name, limit)
            if problem is not None:
                self.problems.append(problem)
            elif limit is not None:
                # Two spellings of one metric: the nearer limit would fire first anyway.
                self.limits[name] = min(float(limit), self.limits.get(name, math.inf))

    def reached(self, metrics: Mapping[str, float]) -> str | None:
        """The first condition that `metrics` fulfil, as a sentence; None when none does."""
        for name, limit in self.limits.items():
            value = metrics.get(name)
            if value is not None and value >= limit:
                return f"{name} {_short(value)} >= {_short(limit)}"
        return None

    def time_left(self, history: Sequence[Mapping[str, float]]) -> tuple[float, str] | None:
        """Seconds until the first condition is expected to fire, with its metric.

        Counters are prolonged along their recent rate; any other metric only if it has been rising
        steadily. None when nothing can be foreseen.

        :param history: metric lines, oldest first; only the last few are looked at
        """
        recent = history[-_RECENT:]
        guesses = [
            (seconds, name)
            for name, limit in self.limits.items()
            if (seconds := _seconds_to(name, limit, recent)) is not None
        ]
        return min(guesses, default=None)


def _problem(key: str, name: str, limit: Any) -> Problem | None:
    where = f"stop_conditions.{key}"
    if not names.is_known(name):
        gone = why_gone(key)
        if gone is not None:
            return Problem(where, f"no result is called {key!r} any more", gone)
        close = did_you_mean(key, [*STOP_KEYS, *names.fixed()])
        return Problem(
            where,
            f"no metric is called {key!r}, so this condition would never stop the run",
            f"did you mean {' or '.join(close)}?"
            if close
            else f"use a metric, such as {names.RETURN_MEAN}, {names.ENV_STEPS}, {names.TIME_TOTAL}, or "
            f"{names.env(key)} for a number that a callback or the environment reports",
        )
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | float) or math.isnan(limit):
        return Problem(where, f"is {limit!r}, which is not a number", "give a number, or null for no limit")
    if limit <= 0 and (name in names.COUNTERS or name == names.TIME_TOTAL):
        what = f"is {limit}, which is reached before the run begins"
        return Problem(where, what, "give a number above 0, or null for no limit")
    return None


def _seconds_to(name: str, limit: float, history: Sequence[Mapping[str, float]]) -> float | None:
    points = [
        (line[names.TIME_TOTAL], line[name]) for line in history if name in line and names.TIME_TOTAL in line
    ]
    if not points:
        return None
    if points[-1][1] >= limit:
        return 0.0
    if name == names.TIME_TOTAL:
        return limit - points[-1][1]
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    if name in names.COUNTERS:
        rate = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
        return (limit - points[-1][1]) / rate if rate > 0 else None
    return _along_trend(points, limit)


def _along_trend(points: Sequence[tuple[float, float]], limit: float) -> float | None:
    if len(points) < _RECENT // 2:
        return None
    count = len(points)
    mean_t = sum(t for t, _ in points) / count
    mean_v = sum(v for _, v in points) / count
    s_tt = sum((t - mean_t) ** 2 for t, _ in points)
    s_vv = sum((v - mean_v) ** 2 for _, v in points)
    s_tv = sum((t - mean_t) * (v - mean_v) for t, v in points)
    if s_tt <= 0 or s_vv <= 0 or s_tv / math.sqrt(s_tt * s_vv) < _CLEAR_TREND:
        return None
    slope = s_tv / s_tt
    now_value = mean_v + slope * (points[-1][0] - mean_t)
    seconds = max(0.0, (limit - now_value) / slope)
    return seconds if seconds <= _FARTHEST_S else None


def _short(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
