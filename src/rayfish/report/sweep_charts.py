"""The pictures of a sweep's page, as Vega-Lite written with Altair.

Each is a chart of its own that draws from the page's data by name and listens to `focus`, the numbers of
the trials to highlight: the page sets it in all of them at once. Colours come from the page's theme, by
the names of styles. Marks are named, so that they can be counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from rayfish.report.sweep_data import NOT_USED, STATE_COLOURS, ChartAxis, cut, ticks
from rayfish.sweep.view import STATES

HEIGHT, SLICE_HEIGHT, PARALLEL_HEIGHT = 300, 190, 340
_FOCUSED = "indexof(focus, datum.trial) >= 0"


def _data(name: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name=name))


def _named(name: str, chart: alt.Chart, **encoding: Any) -> alt.Chart:
    """A layer that the page's script can count."""
    return chart.encode(**encoding).properties(name=name)


def _scores(score: ChartAxis, *, title: str | None) -> alt.Y:
    marks = ticks(score.low, score.high)  # Vega would round 2.5 to 3 where the values are given
    axis = alt.Axis(title=title, values=[at for at, _ in marks], labelExpr=_written(marks))
    return alt.Y("score:Q", scale=_clipped(score.low, score.high), axis=axis)


def _clipped(low: float, high: float) -> alt.Scale:
    """What lies outside is drawn at the edge."""
    return alt.Scale(domain=[low, high], nice=False, zero=False, clamp=True)


def _shade() -> alt.Color:
    """From the worst to the best by rank: one diverged trial must not take all of the colours."""
    return alt.Color("shade:Q", scale=alt.Scale(domain=[0, 1]), legend=None)


def _spec(layers: Sequence[Any], height: int, *, focus: bool = True) -> dict[str, Any]:
    chart: Any = alt.layer(*layers).properties(width="container", height=height)
    if focus:
        chart = chart.add_params(alt.param(name="focus", value=[]))
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("config", None)  # the page has a theme
    return spec


def history(score: ChartAxis, states: Sequence[str], count: int) -> dict[str, Any]:
    """The score of every trial in the order in which they ended, and the best so far."""
    whole = [at for at, _ in ticks(1, max(2, count)) if at == int(at)]
    shown = alt.Axis(title="trials in the order they ended", values=whole, format="d", grid=False)
    x = alt.X("order:Q", axis=shown, scale=alt.Scale(domain=[0.5, count + 0.5], nice=False, zero=False))
    named = [STATES[state] for state in states]
    colours = alt.Scale(domain=named, range=[STATE_COLOURS[state] for state in states])
    legend = alt.Legend(title=None, orient="top", symbolType="circle", symbolSize=80)
    trials = _data("trials").transform_filter("isValid(datum.order)")
    best = alt.Y("best:Q", scale=_clipped(score.low, score.high))
    place: dict[str, Any] = {"x": x, "y": _scores(score, title=score.name)}
    colour = alt.Color("state:N", scale=colours, legend=legend)
    chosen = trials.transform_filter(_FOCUSED).mark_point(size=190, style="chosen")
    layers = [
        _named("best", _data("best").mark_line(interpolate="step-after", style="best"), x=x, y=best),
        _named("history", trials.mark_circle(size=64, opacity=0.85), **place, color=colour),
        chosen.encode(**place),
    ]
    return _spec(layers, HEIGHT)


def axis_room(axes: Sequence[ChartAxis]) -> int:
    """So many pixels per axis that neither headings nor labels run into each other."""
    heads = max(8 * len(cut(axis.name)) + 18 for axis in axes)
    labels = max(7 * len(name) + 30 for axis in axes for _, name in axis.ticks())
    return max(110, heads, labels)


def _threads(name: str, data: str, count: int, place: Mapping[str, Any]) -> list[Any]:
    """A line per trial: all of them, fainter where there are many; the chosen ones; what the pointer hits."""
    lines = _data(data)
    faint = 0.8 if count <= 100 else 0.5
    thread = lines.mark_line(style="thread", strokeOpacity=faint)
    place = {**place, "detail": "trial:N"}
    return [
        _named(name, thread, **place, color=_shade()),
        lines.transform_filter(_FOCUSED).mark_line(style="chosen-line").encode(**place),
        lines.mark_line(style="hit").encode(**place),
    ]


def parallel(axes: Sequence[ChartAxis], score: ChartAxis, count: int) -> dict[str, Any]:
    """One line per trial through all of its parameters to its score."""
    every = [*axes, score]
    lowest = NOT_USED - 0.06 if any(axis.optional for axis in axes) else -0.04
    x = alt.X("axis:Q", scale=alt.Scale(domain=[-0.45, len(every) - 0.7], nice=False, zero=False), axis=None)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[lowest, 1.16], nice=False, zero=False), axis=None)
    heads = [
        {"axis": i, "y": 1.1, "name": cut(axis.name), "key": axis.key or axis.name}
        for i, axis in enumerate(every)
    ]
    marks = [{"axis": i, "y": y, "name": name} for i, axis in enumerate(every) for y, name in axis.ticks()]
    marks += [{"axis": i, "y": NOT_USED, "name": "not used"} for i, axis in enumerate(every) if axis.optional]
    rules = [{"axis": i, "y": NOT_USED if axis.optional else 0, "y2": 1} for i, axis in enumerate(every)]
    place: dict[str, Any] = {"x": x, "y": y}
    rule_chart, mark_chart, head_chart = (alt.Chart(alt.Data(values=v)) for v in (rules, marks, heads))
    thread, chosen, hit = _threads("parallel", "lines", count, place)
    tick = mark_chart.mark_tick(style="axis-tick", size=7, thickness=1, orient="horizontal")
    layers = [
        rule_chart.mark_rule(style="axis-rule").encode(x=x, y=y, y2="y2:Q"),
        thread,
        chosen,
        tick.encode(**place),
        _named("axislabels", mark_chart.mark_text(style="axis-label"), **place, text="name:N"),
        head_chart.mark_text(style="axis-head").encode(**place, text="name:N", tooltip="key:N"),
        hit,
    ]
    return _spec(layers, PARALLEL_HEIGHT)


def slice_of(index: int, axis: ChartAxis, score: ChartAxis) -> dict[str, Any]:
    """The score over one parameter."""
    field = f"p{index}"
    trials = _data("trials").transform_filter(f"isValid(datum.{field})")
    encoded: dict[str, Any] = {"y": _scores(score, title=None)}
    if axis.labels:
        shown = alt.Axis(
            title=axis.name,
            labelAngle=0 if len(axis.labels) * max(map(len, axis.labels)) <= 34 else -30,
            labelLimit=110,
            grid=False,
            labelOverlap=len(axis.labels) > 12,
        )
        encoded["x"] = alt.X(f"{field}:N", scale=alt.Scale(domain=list(axis.labels)), axis=shown)
        encoded["xOffset"] = alt.XOffset("jitter:Q", scale=alt.Scale(domain=[-0.6, 1.6]))
    else:
        scale: dict[str, Any] = {"type": "log"} if axis.log else {"type": "linear", "zero": False}
        if axis.high > axis.low:
            scale["domain"] = [axis.low, axis.high]
        written = ticks(axis.low, axis.high, log=axis.log, most=4)
        shown = alt.Axis(
            title=axis.name, values=[at for at, _ in written], labelExpr=_written(written), labelFlush=False
        )
        encoded["x"] = alt.X(f"{field}:Q", scale=alt.Scale(**scale, nice=False, padding=6), axis=shown)
    age = alt.Color("age:Q", scale=alt.Scale(domain=[0, 1]), legend=None)
    points = _named(f"slice{index}", trials.mark_circle(size=46, opacity=0.85), **encoded, color=age)
    chosen = trials.transform_filter(_FOCUSED).mark_point(size=150, style="chosen").encode(**encoded)
    return _spec([points, chosen], SLICE_HEIGHT)


def _written(marks: Sequence[tuple[float, str]]) -> str:
    """An expression that writes a tick as Python did; numbers only, so there is nothing to escape."""
    tests = [f"abs(datum.value - {at!r}) <= {abs(at) * 1e-9!r} ? '{name}'" for at, name in marks]
    return " : ".join([*tests, "datum.label"])


def learning(
    time: str, metric: str, ends: Sequence[tuple[float, float]], count: int, *, moved: bool
) -> dict[str, Any]:
    """The curve of every trial.

    :param ends: the least and the largest step, the least and the largest value that are drawn
    """
    steps, values = ends
    shown = alt.Axis(title=time, grid=False, tickCount=10, tickMinStep=1)
    x = alt.X("step:Q", axis=shown, scale=alt.Scale(domain=list(steps), nice=False, zero=False))
    y = alt.Y("value:Q", axis=alt.Axis(title=metric, tickCount=7), scale=_clipped(*values))
    layers = _threads("curves", "curves", count, {"x": x, "y": y})
    if moved:
        tip = [alt.Tooltip("trial:N", title="trial"), alt.Tooltip("source:N", title="goes on from trial")]
        mark = _data("moves").mark_point(style="move", shape="diamond")
        layers.append(_named("moves", mark, x=x, y=y, tooltip=tip))
    return _spec(layers, HEIGHT)


def importance(shares: Mapping[str, float], names: Mapping[str, str]) -> dict[str, Any]:
    """A bar for each parameter's share."""
    rows = [{"name": names[key], "key": key, "share": share} for key, share in shares.items()][:12]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("name:N", sort=None, axis=alt.Axis(title=None, labelLimit=150, domain=False, ticks=False)),
        x=alt.X("share:Q", axis=None, scale=alt.Scale(domain=[0, min(1.0, 1.22 * max(shares.values()))])),
        tooltip=[alt.Tooltip("key:N", title="parameter"), alt.Tooltip("share:Q", format=".1%")],
    )
    bars = _named("importance", base.mark_bar(style="share", cornerRadiusEnd=3, height={"band": 0.62}))
    figures = base.mark_text(style="share-figure", align="left", dx=6).encode(
        text=alt.Text("share:Q", format=".0%")
    )
    height = max(60, min(44, max(27, 290 // len(rows))) * len(rows))
    return _spec([bars, figures], height, focus=False)


def repeats(count: int, score: ChartAxis) -> dict[str, Any]:
    """The best points: each repetition, the mean and its interval."""
    y = alt.Y("point:N", sort=alt.EncodingSortField("rank"), axis=alt.Axis(title="point", grid=False))
    axis, scale = alt.Axis(title=score.name, tickCount=8), _clipped(score.low, score.high)
    x: dict[str, Any] = {"axis": axis, "scale": scale}
    points, repeated, at = _data("points"), _data("repeats"), alt.X("score:Q", **x)
    interval = points.mark_rule(style="interval")
    chosen = repeated.transform_filter(_FOCUSED).mark_tick(style="chosen-line", size=17, thickness=3)
    layers = [
        _named("intervals", interval, y=y, x=alt.X("low:Q", **x), x2="high:Q"),
        _named("repeats", repeated.mark_tick(style="repeat", size=11), y=y, x=at),
        _named("means", points.mark_circle(style="mean", size=80), y=y, x=alt.X("mean:Q", **x)),
        chosen.encode(y=y, x=at),
    ]
    return _spec(layers, max(80, 21 * count))
