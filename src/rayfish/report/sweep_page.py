"""A sweep's page: one file that any browser opens, with nothing to fetch from anywhere.

The pictures are Vega-Lite (`sweep_charts`), drawn by the libraries that vl-convert brings along; the page
holds them once. Everything that users wrote is escaped: in HTML as text, in the data as JSON.
"""

from __future__ import annotations

import html
import json
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module, resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rayfish import text
from rayfish.errors import MissingExtra
from rayfish.files import atomic_write
from rayfish.report import sweep_data
from rayfish.report.sweep_data import STATE_COLOURS
from rayfish.sweep.importance import LEAST_POINTS, caveat, importances
from rayfish.sweep.records import DONE, FAILED, PAUSED, RUNNING, STOPPED, Trial, finite
from rayfish.sweep.view import STATES, SweepView, about, figure, has_score, short_names, shown

_RAMP = '<div class="ramp">worst <i></i> best</div>'
_MOST_DETAILS = 4000
_BAR = (DONE, STOPPED, FAILED, RUNNING, PAUSED)


def prepare() -> threading.Thread:
    """Imports what a page needs in a thread during the sweep, which saves seconds at its end."""

    def ahead() -> None:
        with suppress(Exception):  # `write_page` reports it
            _bundle()
            import_module("rayfish.report.sweep_charts")
            import_module("optuna.importance")
            import_module("sklearn.ensemble")

    thread = threading.Thread(target=ahead, daemon=True, name="rayfish-page")
    thread.start()
    return thread


def write_page(view: SweepView, path: Path | str) -> Path:
    """Writes the page of a sweep, whatever state it is in, and gives its place.

    :raises MissingExtra: when Altair or vl-convert is not installed
    """
    path = Path(path)
    data, sections = _pictures(view)
    parts = {
        "title": html.escape(f"{view.title} · rayfish tune"),
        "body": "\n".join([_head(view), *sections, _trial_table(view, path), _foot(view)]),
        "data": _json(data),
        "bundle": _bundle(),
        "script": _file("sweep_page.js"),
    }
    # In one pass, so that braces inside one part are never taken for another part.
    atomic_write(path, re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], _file("sweep_page.html")))
    return path


@lru_cache(maxsize=1)
def _bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script."""
    try:
        import altair
        import vl_convert
    except ImportError as error:
        raise MissingExtra(str(error.name), "tune", "the page of a sweep") from None
    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    known = vl_convert.get_vegalite_versions()
    make: Any = vl_convert.javascript_bundle  # its stub wants a snippet, which it can do without
    script = make(vl_version=version if version in known else None)
    return str(script).replace("</script", "<\\/script").replace("<!--", "<\\!--")


@lru_cache(maxsize=4)
def _file(name: str) -> str:
    return resources.files("rayfish.report").joinpath(name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON without `<`, so that no value can close the script element."""
    written = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=str)
    return written.replace("<", "\\u003c")


def _pictures(view: SweepView) -> tuple[dict[str, Any], list[str]]:
    """The page's data with every chart, and the sections that the charts are put into."""
    scored = [trial for trial in view.trials.values() if has_score(trial)]
    data: dict[str, Any] = {"metric": view.metric, "charts": {}}
    data |= {"best": [], "curves": [], "moves": [], "points": []}
    if not scored:
        data["trials"] = sweep_data.trial_rows(view, [], None)
        return data, [_card("Nothing to draw yet", "", '<p class="empty">No trial has a score.</p>')]
    try:
        from rayfish.report import sweep_charts
    except ImportError as error:
        raise MissingExtra(str(error.name), "tune", "the page of a sweep") from None

    shares = importances(view)
    axes = sweep_data.axes(view, scored, shares)
    score = sweep_data.score_axis(view, scored)
    data["trials"] = sweep_data.trial_rows(view, axes, score)
    data["best"] = sweep_data.best_so_far(view, data["trials"])
    states = [state for state in STATE_COLOURS if any(trial.state == state for trial in scored)]
    charts = data["charts"]
    charts["history"] = sweep_charts.history(score, states, len(scored))
    importance = _importance(view, shares, charts)
    first = _card("History", _history_note(view, scored, score), _place("history"))
    sections = [f'<div class="pair">{first}{importance}</div>']
    if axes:
        charts["parallel"] = sweep_charts.parallel(axes, score, len(scored))
        least = sweep_charts.axis_room([*axes, score]) * (len(axes) + 1)
        inner = f'<div class="wide"><div style="min-width:{least}px">{_place("parallel")}</div></div>'
        what = "One line per trial, through its parameters to its score. Point at a line; click to keep it."
        sections.append(_card("Parameters and score", what, inner, _RAMP))
    sections += _learning(view, data)
    if view.search.repeat > 1:
        data["points"] = sweep_data.point_rows(view)
        charts["repeats"] = sweep_charts.repeats(
            len(data["points"]), sweep_data.covering(score, data["points"])
        )
        what = "The mean of each point with its 95 % interval, and each repetition; best first."
        if any(trial.state == STOPPED for trial in view.trials.values()):
            what += " Where one was stopped early, the mean is of the last step that all have reached."
        sections.append(_card("Repetitions", what, _place("repeats")))
    if axes:
        for index, axis in enumerate(axes):
            charts[f"slice{index}"] = sweep_charts.slice_of(index, axis, score)
        inner = "".join(f"<div>{_place(f'slice{index}')}</div>" for index in range(len(axes)))
        what = "The score over each parameter; later trials stand out more."
        sections.append(_card("Slices", what, f'<div class="slices">{inner}</div>'))
    return data, sections


def _importance(view: SweepView, shares: Mapping[str, float], charts: dict[str, Any]) -> str:
    from rayfish.report import sweep_charts

    if not shares:
        few = f"Shares need {LEAST_POINTS} points that have ended with different scores."
        return _card("What matters", "", f'<p class="empty">{few}</p>')
    charts["importance"] = sweep_charts.importance(shares, short_names(view.space.keys))
    doubt = caveat(view)
    what = "Share of each parameter in how the score varies." + (f" Only a hint: {doubt}." if doubt else "")
    return _card("What matters", what, _place("importance"))


def _learning(view: SweepView, data: dict[str, Any]) -> list[str]:
    from rayfish.report import sweep_charts

    data["curves"] = sweep_data.curves(view, data["trials"])
    if not any(len(curve["steps"]) > 1 for curve in data["curves"]):
        data["curves"] = []
        return []
    data["moves"] = sweep_data.moves(view)
    ends = sweep_data.curve_ends(data["curves"])
    metric = view.metric.rpartition("/")[2]
    data["charts"]["curves"] = sweep_charts.learning(
        view.time, metric, ends, len(data["curves"]), moved=bool(data["moves"])
    )
    what = "One line per trial, the best on top."
    if data["moves"]:
        what += " A diamond: it went on from another trial's state, with new parameters."
    return [_card("Learning curves", what, _place("curves"), _RAMP)]


def _history_note(view: SweepView, scored: Sequence[Trial], score: sweep_data.ChartAxis) -> str:
    outside = sum(not score.low <= float(trial.value or 0.0) <= score.high for trial in scored)
    much = "higher" if view.search.sign > 0 else "lower"
    note = f"The line is the best so far; {much} is better."
    return note if not outside else f"{note} {text.counted(outside, 'score')} far outside: drawn at the edge."


def _place(name: str) -> str:
    return f'<div class="chart" id="{name}"></div>'


def _card(title: str, what: str, inner: str, legend: str = "") -> str:
    words = (f"<p>{html.escape(what)}</p>" if what else "") + legend
    return f'<section class="card"><header><h2>{html.escape(title)}</h2>{words}</header>{inner}</section>'


def _head(view: SweepView) -> str:
    """What was tuned, the state of the sweep, the best point and how to train it."""
    search = view.search
    how = [f"{search.method} search"]
    how += [f"{search.scheduler} scheduler"] if search.scheduler != "none" else []
    goal = f"for the {'highest' if search.sign > 0 else 'lowest'} {view.metric}"
    how.append(goal + (f", {search.repeat} seeds per point" if search.repeat > 1 else ""))
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in view.notes)
    return (
        f'<div class="brand">rayfish tune</div><h1>{html.escape(view.title)}</h1>'
        f'<p class="sub">{html.escape(" · ".join(how))}</p>'
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
        + f'<div class="top"><section class="card">{_standing(view)}</section>'
        + f'<section class="card">{_best(view)}</section></div>'
    )


def _standing(view: SweepView) -> str:
    counts, finished = view.counts(), view.finished()
    total = max(view.total, len(view.trials), 1)
    bar = "".join(
        f'<span style="width:{100 * counts[s] / total:.3f}%;background:{STATE_COLOURS[s]}"></span>'
        for s in _BAR
        if counts[s]
    )
    chips = "".join(
        f'<li><i style="background:{STATE_COLOURS[state]}"></i><b>{counts[state]:,}</b> {name}</li>'
        for state, name in STATES.items()
        if counts[state]
    )
    over = 0 < view.total <= finished
    state = "finished" if over else "running" if view.running else "stopped"
    begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(view.begun)) if view.begun else "not yet"
    facts = {"state": state, "begun": begun, "took" if not view.running else "for": about(view.seconds)}
    work = sum(trial.seconds for trial in view.trials.values())
    facts |= {"at once": text.counted(view.slots, "trial"), "work in all": about(work)} if work else {}
    of = f"{finished:,} of " if view.total else ""
    of += text.counted(view.total or finished, "trial")
    return (
        f'<dl class="facts">{_listed(facts)}</dl><div class="label">{of} ended</div>'
        f'<div class="bar">{bar}</div><ul class="states">{chips}</ul>'
    )


def _best(view: SweepView) -> str:
    trial, point = view.best(), view.best_point()
    if trial is None or point is None:
        return '<div class="label">best score</div><p class="empty">No trial has a score yet.</p>'
    repeated = view.search.repeat > 1
    value, params = (point.value, point.params) if repeated else (trial.value, trial.earned_with)
    whose = f"trial {trial.number}"
    if repeated:
        whose = f"point {point.number}, mean of {text.counted(len(point.trials), 'trial')}"
        whose += f", 95 % in {figure(point.low)} to {figure(point.high)}"
    words = f'<code id="command">{html.escape(view.best_command)}</code><button id="copy">copy</button>'
    return (
        f'<div class="label">best {html.escape(view.metric)} · {html.escape(whose)}</div>'
        f'<div class="big">{figure(value)}</div><dl class="params">{_listed(params)}</dl>'
        + (f'<div class="command">{words}</div>' if view.best_command else "")
    )


def _listed(values: Mapping[str, Any]) -> str:
    return "".join(
        f'<div><dt title="{html.escape(key)}">{html.escape(key)}</dt>'
        f'<dd title="{html.escape(str(value))}">{html.escape(shown(value))}</dd></div>'
        for key, value in values.items()
    )


def _foot(view: SweepView) -> str:
    when = time.strftime("%Y-%m-%d %H:%M")
    return (
        f"<footer>Written {when} from <code>{html.escape(str(view.folder))}</code>. "
        "This file needs no network; <code>trials.jsonl</code> next to it has every report.</footer>"
    )


def _trial_table(view: SweepView, path: Path) -> str:
    """Every trial as a section, best first; "" where there is none. The page's script can sort it."""
    trials = sorted(view.trials.values(), key=lambda trial: _rank(trial, view.search.sign))
    if not trials:
        return ""
    keys = [key for key in view.space.keys if any(key in trial.earned_with for trial in trials)]
    best = view.best()
    rows = "\n".join(_row(view, trial, keys, path, "best" if trial is best else "") for trial in trials)
    head = f"<h2>All {text.counted(len(trials), 'trial')}</h2>"
    head += "<p>Click a heading to sort; a number leads to the trial's folder.</p>"
    head += '<input id="filter" type="search" placeholder="filter: failed, PPO …" aria-label="filter">'
    table = f"<thead><tr>{_heads(view, trials, keys)}</tr></thead><tbody>{rows}</tbody>"
    return (
        f'<section class="card"><header>{head}</header>'
        f'<div class="scroll"><table id="trials">{table}</table></div></section>'
    )


def _rank(trial: Trial, sign: float) -> tuple[bool, bool, float, int]:
    value = -sign * float(trial.value or 0.0) if has_score(trial) else 0.0
    return trial.state == FAILED, not has_score(trial), value, trial.number


def _heads(view: SweepView, trials: Sequence[Trial], keys: Sequence[str]) -> str:
    names = short_names(view.space.keys)
    heads = [_heading("trial", "number")]
    heads += [_heading("point", "number")] if view.search.repeat > 1 else []
    better = "down" if view.search.sign > 0 else "up"
    heads += [_heading("state", "text"), _heading("score", "number", better)]
    heads += [_heading(view.time.rpartition("/")[2], "number", "down"), _heading("time", "number", "down")]
    for key in keys:
        values = [trial.earned_with[key] for trial in trials if key in trial.earned_with]
        numbers = all(finite(value) is not None for value in values)
        heads.append(f'<th data-kind="{"number" if numbers else "text"}">{html.escape(names[key])}</th>')
    return "".join([*heads, _heading("note", "text")])


def _heading(name: str, kind: str, first: str = "up") -> str:
    """A heading; `first` is the direction in which the first click sorts."""
    side = ' class="n"' if kind == "number" else ""
    return f'<th data-kind="{kind}" data-first="{first}"{side}>{html.escape(name)}</th>'


def _row(view: SweepView, trial: Trial, keys: Sequence[str], path: Path, kind: str) -> str:
    folder = os.path.relpath(view.folder / "trials" / trial.name, path.parent)
    score, exact = (figure(trial.value), repr(trial.value)) if has_score(trial) else ("", "")
    link = f'<a href="{html.escape(quote(folder))}/">{trial.number}</a>'
    cells = [f'<td class="n" data-v="{trial.number}">{link}</td>']
    if view.search.repeat > 1:
        cells.append(f'<td class="n" data-v="{trial.point}">{trial.point}</td>')
    colour = STATE_COLOURS[trial.state]
    cells += [
        f'<td class="state"><i style="background:{colour}"></i>{STATES[trial.state]}</td>',
        f'<td class="n score" data-v="{exact}">{score}</td>',
        f'<td class="n" data-v="{trial.step}">{trial.step:,.10g}</td>',
        f'<td class="n" data-v="{trial.seconds:.1f}">{text.duration(trial.seconds)}</td>',
    ]
    for key in keys:
        written = html.escape(shown(trial.earned_with[key])) if key in trial.earned_with else ""
        exact = html.escape(str(trial.earned_with.get(key, "")))
        cells.append(f'<td class="value" data-v="{exact}" title="{exact}">{written}</td>')
    cells.append(f'<td class="why">{_why(trial)}</td>')
    return f'<tr data-trial="{trial.number}" class="{kind}">{"".join(cells)}</tr>'


def _why(trial: Trial) -> str:
    """Why it ended early or failed; the rest of an error unfolds."""
    if trial.state != FAILED:
        return html.escape(trial.why)
    error = html.escape(trial.error or "it gave no reason")
    details = trial.details.strip()
    if not details:
        return error
    details = details if len(details) <= _MOST_DETAILS else "…" + details[-_MOST_DETAILS:]
    return f"<details><summary>{error}</summary><pre>{html.escape(details)}</pre></details>"
