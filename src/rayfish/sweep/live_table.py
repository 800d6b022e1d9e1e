"""A sweep as a picture in the terminal, drawn for a width and a height."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rayfish import text
from rayfish.metrics import spark
from rayfish.metrics.panel import ACCENT, BORDER, CURVE, LABEL
from rayfish.sweep.importance import caveat
from rayfish.sweep.records import DONE, FAILED, PAUSED, PENDING, RUNNING, STOPPED, Trial
from rayfish.sweep.view import STATES, Point, SweepView, about, figure, short_names, shown, written

WIDEST = 160
LOOK = {
    RUNNING: ("▶", ACCENT),
    PAUSED: ("‖", "#c07ae0"),
    PENDING: ("·", LABEL),
    DONE: ("✓", "#6abf5e"),
    STOPPED: ("◼", "#e0b050"),
    FAILED: ("✗", "#e05f5f"),
}
"""Sign and colour of each state, the same in the counts and in the rows."""

_LABELS, _CURVE, _LONGEST_VALUE, _GAP = 9, 12, 16, 2


def draw(
    view: SweepView, shares: Mapping[str, float], width: int, height: int, *, ended: bool = False
) -> RenderableType:
    """The panel for a terminal of this size.

    :param shares: of the parameters in the variation of the score, as far as they are known
    :param ended: this is the last picture, which stays
    """
    width = min(width, WIDEST)
    roomy = height >= 30
    inner = width - 6
    facts = _facts(view, shares, inner)
    parts: list[RenderableType] = [_progress(view, inner), _counts(view, inner), facts]
    # Frame, padding, progress, counts, the table's head, a blank line above it, and the cursor's line.
    rest = height - (2 + 2 * roomy + 2 + facts.row_count + 2 + 1)
    rows = _rows(view, max(1, rest))
    if rows and rest >= 1:
        parts += [Text(), _table(view, rows, shares, inner)]
    return Panel(
        Group(*parts),
        title=Text.assemble(("rayfish tune", f"bold {ACCENT}"), (" · ", LABEL), (view.title, "bold default")),
        title_align="left",
        subtitle=None if ended else Text("Ctrl-C: stop, and keep everything", style=LABEL),
        subtitle_align="right",
        border_style=BORDER,
        padding=(1 if roomy else 0, 2),
        width=width,
    )


def _progress(view: SweepView, width: int) -> Text:
    """A bar of the trials that have ended, coloured by state."""
    counts = view.counts()
    finished = view.finished()
    total = max(view.total, finished, 1)
    figures = f"  {text.count(finished)} of {text.counted(total, 'trial')}"
    room = max(8, width - len(figures))
    bar, used, reached = Text(no_wrap=True), 0, 0
    for state in (DONE, STOPPED, FAILED, RUNNING):
        reached += counts[state]
        cells = round(room * min(1.0, reached / total)) - used
        bar.append(("━" if state != RUNNING else "╍") * cells, style=LOOK[state][1])
        used += cells
    bar.append("─" * (room - used), style=BORDER)
    bar.append(figures, style="bold")
    return bar


def _counts(view: SweepView, width: int) -> Text:
    line, gap = Text(no_wrap=True, overflow="ellipsis"), "   " if width >= 100 else "  "
    for state, number in view.counts().items():
        if number or state in (RUNNING, DONE):
            sign, style = LOOK[state]
            line.append(f"{sign} ", style=style)
            line.append(text.count(number), style="bold")
            line.append(f" {STATES[state]}{gap}", style=LABEL)
    return line


def _facts(view: SweepView, shares: Mapping[str, float], width: int) -> Table:
    """The best so far, what matters, the time: a line each, cut where it gets too long."""
    table = Table.grid()
    table.add_column(width=_LABELS, style=LABEL)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=width - _LABELS)
    table.add_row("best", _best(view))
    if shares:
        names = short_names(view.space.keys)
        line = Text(no_wrap=True, overflow="ellipsis")
        for key, share in shares.items():
            if share >= 0.01:
                line.append(f"{names[key]} ")
                line.append(f"{text.percent(share)}   ", style=LABEL)
        doubt = caveat(view)
        line.append(f"  ({doubt})" if doubt else "", style=LABEL)
        table.add_row("matters", line)
    line = Text(text.duration(view.seconds), style="bold")
    left = view.time_left()
    if left is not None and view.finished() != view.total:
        line.append(f"   about {about(left)} left", style=f"not bold {LABEL}")
    table.add_row("time", line)
    return table


def _best(view: SweepView) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    point = view.best_point()
    if point is None:
        return line.append("no score yet", style=LABEL)
    line.append(_interval(point), style=f"bold {CURVE[0]}")
    line.append("   point " if view.search.repeat > 1 else "   trial ", style=LABEL)
    line.append(str(point.number if view.search.repeat > 1 else point.trials[-1].number), style="bold")
    for name, value in written(short_names(view.space.keys), point.params, 40).items():
        line.append(f"   {name} ", style=LABEL)
        line.append(value)
    return line


def _interval(point: Point) -> str:
    if point.value is None:
        return ""
    if point.low == point.high:
        return figure(point.value)
    return f"{figure(point.value)} [{figure(point.low)}, {figure(point.high)}]"


def _rows(view: SweepView, most: int) -> list[Point]:
    """The points that run, at most half of the room when there are others; then the best that have ended."""
    points = view.points()
    running = [point for point in points if point.state == RUNNING]
    active = running + [point for point in points if point.state == PAUSED]
    ended = [point for point in points if point.state in (DONE, STOPPED)]
    room = most - min(len(ended), most // 2)
    return [*active[:room], *ended[: most - min(len(active), room)]]


def _table(view: SweepView, rows: Sequence[Point], shares: Mapping[str, float], width: int) -> Table:
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, show_edge=False, header_style=LABEL)
    best = view.best_point()
    cells = [_cells(view, row, wide=width >= 100, best=row == best) for row in rows]
    heads = ["point" if view.search.repeat > 1 else "trial", "", "score", _unit(view.time), "time", "curve"]
    for index, head in enumerate(heads):
        table.add_column(head, justify="right" if index in (0, 2, 3, 4) else "left", no_wrap=True)
    used = sum(max(cell_len(head), *(c[i].cell_len for c in cells)) + _GAP for i, head in enumerate(heads))
    chosen = fitting(view, [row.params for row in rows], shares, width - used + _GAP)
    for key in chosen:
        table.add_column(chosen[key], no_wrap=True, overflow="ellipsis")
    for row, first in zip(rows, cells, strict=True):
        values = [shown(row.params[key], _LONGEST_VALUE) if key in row.params else "" for key in chosen]
        style = LABEL if row.state == STOPPED and row != best else ""
        table.add_row(*first, *(Text(value, style=style) for value in values))
    return table


def _cells(view: SweepView, row: Point, *, wide: bool, best: bool) -> list[Text]:
    """A row up to its parameters; curve and step are those of the trial that runs, else of the last one."""
    repeat, stopped = view.search.repeat, row.state == STOPPED
    latest = next((trial for trial in row.trials if trial.state == RUNNING), row.trials[-1])
    ended = sum(trial.finished for trial in row.trials)
    failures = sum(trial.state == FAILED for trial in row.trials) if repeat > 1 else 0
    name = f"{row.number}  {ended}/{max(repeat, len(row.trials))}" if repeat > 1 else str(latest.number)
    sign, style = LOOK[row.state]
    state = Text(sign + (f" {STATES[row.state].split()[0]}" if wide else ""), style=style)
    if failures:
        state.append(f" {LOOK[FAILED][0]}{failures}", style=LOOK[FAILED][1])
    width = min(len(latest.curve), _CURVE if wide else 8)  # a mark per report: two reports are no curve
    curve = spark.area([value for _, value in latest.curve], width)[0]
    steps = text.rate(latest.step) if latest.step >= 10_000 else f"{latest.step:g}"
    return [
        Text(name, style="bold" if best else LABEL),
        state,
        Text(_interval(row), style=f"bold {CURVE[0]}" if best else LABEL if stopped else ""),
        Text(steps, style=LABEL),
        Text(text.duration(sum(trial.seconds for trial in row.trials)), style=LABEL),
        Text(curve, style=CURVE[0] if best else BORDER if stopped else CURVE[2]),
    ]


def _unit(time: str) -> str:
    """What a scheduler counts, in few characters: `iter` for run/iteration."""
    last = time.rpartition("/")[2].rpartition(".")[2]
    return {"iteration": "iter", "env_steps": "steps", "training_iteration": "iter"}.get(last, last[:8])


def fitting(
    view: SweepView, points: Iterable[Mapping[str, Any]], shares: Mapping[str, float], room: int
) -> dict[str, str]:
    """The parameters whose columns fit into so many characters, with their headings.

    Those that matter most are kept, in the order of the search space, so that columns do not change places.
    """
    points = list(points)
    names = short_names(view.space.keys)
    kept = []
    for key in [*shares, *(key for key in view.space.keys if key not in shares)]:
        values = [cell_len(shown(point[key], _LONGEST_VALUE)) for point in points if key in point]
        needed = max([min(cell_len(names[key]), _LONGEST_VALUE), *values]) + _GAP
        if values and needed <= room:
            kept.append(key)
            room -= needed
    return {key: _cut(names[key]) for key in view.space.keys if key in kept}


def _cut(name: str) -> str:
    return name if cell_len(name) <= _LONGEST_VALUE else "…" + name[-(_LONGEST_VALUE - 1) :]


def final_table(view: SweepView, console: Console) -> RenderableType:
    """The end of a sweep: the best points, and the failed trials with their errors."""
    parts: list[RenderableType] = []
    points = view.points()
    best = [point for point in points if point.value is not None and point.state != FAILED][:10]
    if best:
        what = "point" if view.search.repeat > 1 else "trial"
        title = f"The best {len(best)} of {text.counted(len(points), what)} by {view.metric}"
        columns = _best_points(view, best, what, in_columns=True)
        wide = Measurement.get(console, console.options.update(width=10_000), columns).maximum
        fits = wide <= console.width
        parts.append(Text(title, style="bold"))
        parts.append(columns if fits else _best_points(view, best, what, in_columns=False))
    failed = [trial for trial in view.trials.values() if trial.state == FAILED]
    if failed:
        parts += [*([Text()] if best else []), _failures(failed)]
    return Group(*parts) if parts else Text("no trial has a score", style=LABEL)


def _best_points(view: SweepView, points: Sequence[Point], what: str, *, in_columns: bool) -> Table:
    """Points with all of their parameters: a column each, or a line where columns do not fit."""
    keys = [key for key in view.space.keys if any(key in point.params for point in points)]
    names = short_names(view.space.keys)
    table = Table(box=SIMPLE_HEAD, header_style=LABEL, border_style=BORDER, pad_edge=False)
    table.add_column(what, justify="right", style=LABEL)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for key in keys if in_columns else ["parameters"]:
        table.add_column(names.get(key, key), no_wrap=in_columns)
    for rank, point in enumerate(points):
        sign, style = LOOK[point.state]
        values = written(names, point.params, 40)
        line = "  ".join(f"{name}={value}" for name, value in values.items())
        table.add_row(
            str(point.number if what == "point" else point.trials[-1].number),
            Text(_interval(point), style=f"bold {CURVE[0]}" if rank == 0 else ""),
            Text(sign, style=style),
            *map(Text, [values.get(names[key], "") for key in keys] if in_columns else [line]),
        )
    return table


def _failures(failed: Sequence[Trial]) -> Text:
    """One line per kind of error with its trials; the first one's error stands for all."""
    grouped: dict[str, list[Trial]] = {}
    for trial in failed:
        kind = re.sub(r"[-+]?\d[\d.]*(e[-+]?\d+)?", "0", trial.error.replace(trial.name, ""))
        grouped.setdefault(kind, []).append(trial)
    lines = Text()
    for trials in grouped.values():
        error = trials[0].error or "it gave no reason"
        numbers = ", ".join(str(trial.number) for trial in trials[:8]) + (", …" if len(trials) > 8 else "")
        lines.append(f"{LOOK[FAILED][0]} ", style=LOOK[FAILED][1])
        lines.append(f"{text.counted(len(trials), 'trial')} failed ", style="bold")
        lines.append(f"({numbers}): ", style=LABEL)
        lines.append(f"{error}\n")
    lines.rstrip()
    return lines
