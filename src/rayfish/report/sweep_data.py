"""The numbers behind the pictures of a sweep's page: plain values, worked out once in Python."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rayfish.sweep.records import DONE, FAILED, PAUSED, PENDING, RUNNING, STOPPED, Trial, finite
from rayfish.sweep.space import Parameter
from rayfish.sweep.view import STATES, SweepView, figure, has_score, short_names, shown, written

NOT_USED = -0.13
"""Where a line crosses the axis of a parameter that its point does not use."""

STATE_COLOURS = {
    DONE: "#3f9d5a",
    STOPPED: "#d39a2f",
    RUNNING: "#2f9fc4",
    PAUSED: "#a765c9",
    PENDING: "#8a94a0",
    FAILED: "#d85252",
}
"""Of the marks of each state, legible on light and on dark ground."""

_MOST_CURVE_POINTS, _MOST_POINTS_IN_ALL, _LONGEST_LABEL = 160, 40_000, 16


@dataclass(frozen=True)
class ChartAxis:
    """One parameter, or the score, as an axis of the pictures.

    :param key: dotted; "" for the score
    :param log: whether magnitudes count
    :param labels: the values of an axis without numbers, from its lower end up; () with numbers
    :param optional: whether some points do not use it
    """

    key: str
    name: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    labels: tuple[str, ...] = ()
    optional: bool = False

    def place(self, value: Any) -> float:
        """Where a value lies, 0 at the lower end, 1 at the upper one."""
        if self.labels:
            return self.place_of(self.labels.index(label(value)))
        low, high, at = self.low, self.high, float(value)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        # Halved first: the ends of a float's range are further apart than a float can tell.
        return min(1.0, max(0.0, (at / 2 - low / 2) / (high / 2 - low / 2))) if high > low else 0.5

    def ticks(self) -> list[tuple[float, str]]:
        """Where it is marked, and with what."""
        if not self.labels:
            return [(self.place(at), written) for at, written in ticks(self.low, self.high, log=self.log)]
        every = -(-len(self.labels) // 12)
        return [(self.place_of(i), cut(name)) for i, name in enumerate(self.labels) if i % every == 0]

    def place_of(self, index: int) -> float:
        """Where the value with that index lies."""
        return index / (len(self.labels) - 1) if len(self.labels) > 1 else 0.5


def label(value: Any) -> str:
    """A value as the name of a place on an axis."""
    return shown(value, 80)


def cut(name: str) -> str:
    """A name short enough to stand at an axis."""
    return name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…"


def axes(view: SweepView, scored: Sequence[Trial], shares: Mapping[str, float]) -> list[ChartAxis]:
    """The parameters that some trial with a score has, those that matter most first."""
    names = short_names(view.space.keys)
    found = []
    for key in [*shares, *(key for key in view.space.keys if key not in shares)]:
        given = [trial.earned_with[key] for trial in scored if key in trial.earned_with]
        if given:
            found.append(_axis(view.space[key], names[key], given, len(given) < len(scored)))
    return found


def _axis(parameter: Parameter, name: str, given: Sequence[Any], optional: bool) -> ChartAxis:
    key = parameter.key
    if parameter.is_list or not all(finite(value) is not None for value in given):
        # In the order of the space; values that are none of its own (population based training) come after.
        own = parameter.values if parameter.is_list else ()
        labels = dict.fromkeys([*map(label, own), *sorted(map(label, given))])
        return ChartAxis(key, name, labels=tuple(labels), optional=optional)
    ends = parameter.bounds if parameter.kind not in ("sample_from", "normal") else (given[0], given[0])
    low, high = float(min(*given, ends[0])), float(max(*given, ends[1]))
    return ChartAxis(key, name, low, high, parameter.is_log and low > 0, optional=optional)


def score_axis(view: SweepView, scored: Sequence[Trial]) -> ChartAxis:
    """The axis of scores: all of them, or the bulk where a few lie so far off that nothing else shows."""
    low, high = bulk([float(trial.value or 0.0) for trial in scored], 0.1, 5)
    return ChartAxis("", view.metric.rpartition("/")[2], low, high)


def covering(score: ChartAxis, points: Sequence[Mapping[str, Any]]) -> ChartAxis:
    """The axis of scores, wide enough for the intervals of these points."""
    ends = [point[end] for point in points for end in ("low", "high") if math.isfinite(point[end])]
    if not ends or (min(ends) >= score.low and max(ends) <= score.high):
        return score
    low, high = bulk([*ends, score.low, score.high], 0.1, 5)
    return replace(score, low=low, high=high)


def ticks(low: float, high: float, *, log: bool = False, most: int = 6) -> list[tuple[float, str]]:
    """Round numbers from low to high, with how they are written."""
    if not high > low or not math.isfinite(high - low):
        return [(low, figure(low))]
    if log:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        decades = [10.0**power for power in range(first, last + 1, max(1, (last - first) // most + 1))]
        if len(decades) > 2:
            return [(value, _written(value)) for value in decades]
        found = [m * 10.0**p for p in range(first - 1, last + 1) for m in (1, 2, 5)]
        kept = [value for value in found if low * 0.999 <= value <= high * 1.001]
        if len(kept) > 1:
            return [(value, _written(value)) for value in kept]
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next((m * size for m in (1, 2, 2.5, 5, 10) if m * size >= rough), 10 * size)
    start = math.ceil(low / step - 1e-9)
    return [
        ((start + i) * step, _written((start + i) * step))
        for i in range(int((high * 1.0000001 - start * step) / step) + 1)
    ]


def _written(value: float) -> str:
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return f"{value:.6g}"


def trial_rows(view: SweepView, axes: Sequence[ChartAxis], score: ChartAxis | None) -> list[dict[str, Any]]:
    """Every trial: what its marks and its card need. Worst first, so that the best are drawn on top."""
    sign = view.search.sign
    scored = sorted((t for t in view.trials.values() if has_score(t)), key=lambda t: sign * (t.value or 0.0))
    rest = [t for t in view.trials.values() if not has_score(t)]
    ended = sorted(view.trials.values(), key=lambda t: (not t.finished, t.ended or math.inf, t.number))
    order = {t.number: place for place, t in enumerate((t for t in ended if has_score(t)), 1)}
    names, rows = short_names(view.space.keys), []
    for rank, trial in enumerate([*rest, *scored]):
        row: dict[str, Any] = {"trial": trial.number, "point": trial.point, "state": STATES[trial.state]}
        row["facts"] = list(written(names, trial.earned_with, 60).items())
        row["took"] = round(trial.seconds, 1)
        if has_score(trial) and score is not None:
            row |= {"score": trial.value, "written": figure(trial.value), "order": order[trial.number]}
            row["shade"] = round((rank - len(rest)) / (len(scored) - 1), 4) if len(scored) > 1 else 1.0
            row["age"] = round(order[trial.number] / len(scored), 4)
            row["ys"] = [_place(axis, trial) for axis in axes] + [round(score.place(trial.value), 4)]
            row["jitter"] = round((trial.number * 0.618034) % 1, 3)
            for i, axis in enumerate(axes):
                if axis.key in trial.earned_with:
                    value = trial.earned_with[axis.key]
                    row[f"p{i}"] = label(value) if axis.labels else value
        rows.append(row)
    return rows


def _place(axis: ChartAxis, trial: Trial) -> float:
    return round(axis.place(trial.earned_with[axis.key]), 4) if axis.key in trial.earned_with else NOT_USED


def best_so_far(view: SweepView, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How the best score rose (or fell) from one trial that ended to the next."""
    found, best = [], None
    for row in sorted((row for row in rows if "order" in row), key=lambda row: row["order"]):
        if row["state"] != STATES[FAILED] and view.search.better(row["score"], best):
            best = row["score"]
        if best is not None:
            found.append({"order": row["order"], "best": best})
    return found


def curves(view: SweepView, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The curve of every trial that has one, thinned out; in the order of the rows."""
    with_curve = [row for row in rows if _clean(view.trials[row["trial"]])]
    most = max(12, min(_MOST_CURVE_POINTS, _MOST_POINTS_IN_ALL // max(1, len(with_curve))))
    found = []
    for row in with_curve:
        curve = _clean(view.trials[row["trial"]])
        if len(curve) > most:
            curve = [curve[i] for i in np.linspace(0, len(curve) - 1, most).astype(int)]
        steps, values = zip(*curve, strict=True)
        rounded = [float(f"{value:.6g}") for value in values]
        shade = row.get("shade", 0.0)
        found.append({"trial": row["trial"], "shade": shade, "steps": list(steps), "values": rounded})
    return found


def _clean(trial: Trial) -> list[tuple[float, float]]:
    return [(step, value) for step, value in trial.curve if math.isfinite(step) and math.isfinite(value)]


def moves(view: SweepView) -> list[dict[str, Any]]:
    """Where population based training gave a trial another's state, on its curve."""
    found = []
    for trial in view.trials.values():
        curve = _clean(trial)
        for step, source, _ in trial.moves:
            if curve:
                near = min(curve, key=lambda at: abs(at[0] - step))
                found.append({"trial": trial.number, "step": near[0], "value": near[1], "source": source})
    return found


def curve_ends(found: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """The least and the largest step, the least and the largest value worth drawing: see `bulk`."""
    steps = [step for curve in found for step in curve["steps"]]
    values = [value for curve in found for value in curve["values"]]
    return [(min(steps), max(steps)), bulk(values, 0.02, 3)]


def bulk(values: Sequence[float], tail: float, reach: float) -> tuple[float, float]:
    """From the least to the largest value with a little room; without the few that lie so far off that
    nothing else would show: beyond `reach` times the span between the quantiles `tail` and 1 - `tail`.
    """
    low, high = min(values), max(values)
    with np.errstate(over="ignore"):  # the ends of a float's range have no difference
        inner_low, inner_high = (float(v) for v in np.quantile(values, [tail, 1 - tail]))
    far = reach * (inner_high - inner_low)
    if far > 0 and math.isfinite(far):
        kept = [v for v in values if inner_low - far <= v <= inner_high + far]
        low, high = min(kept), max(kept)
    room = 0.04 * (high - low) if high > low else 0.05 * abs(high) or 1.0
    return (low - room, high + room) if math.isfinite(high - low + 2 * room) else (low, high)


def point_rows(view: SweepView, most: int = 30) -> list[dict[str, Any]]:
    """The best points with the interval of their mean."""
    names = short_names(view.space.keys)
    ended = [point for point in view.points() if point.value is not None and point.state != FAILED]
    return [
        {
            "point": point.number,
            "rank": rank,
            "mean": point.value,
            "low": point.low,
            "high": point.high,
            "written": f"{figure(point.value)} [{figure(point.low)}, {figure(point.high)}]",
            "trials": [trial.number for trial in point.trials],
            "facts": list(written(names, point.params, 60).items()),
        }
        for rank, point in enumerate(ended[:most])
    ]
