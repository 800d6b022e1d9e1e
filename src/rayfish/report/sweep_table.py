"""The table of all trials on a sweep's page; the page's script sorts it and filters it."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from rayfish import text
from rayfish.report.sweep_data import colour
from rayfish.sweep.importance import is_number
from rayfish.sweep.records import FAILED, Trial
from rayfish.sweep.view import STATES, SweepView, figure, has_score, short_names, shown

_MOST_DETAILS = 4000


def trial_table(view: SweepView, path: Path) -> str:
    """Every trial as a section of HTML, best first; "" where there is none.

    :param path: of the page, which links to the trials' folders
    """
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
    heads = [_head("trial", "number")]
    heads += [_head("point", "number")] if view.search.repeat > 1 else []
    heads += [_head("state", "text"), _head("score", "number", "down" if view.search.sign > 0 else "up")]
    heads += [_head(view.time.rpartition("/")[2], "number", "down"), _head("time", "number", "down")]
    for key in keys:
        numbers = all(is_number(trial.earned_with[key]) for trial in trials if key in trial.earned_with)
        heads.append(f'<th data-kind="{"number" if numbers else "text"}">{html.escape(names[key])}</th>')
    return "".join([*heads, _head("note", "text")])


def _head(name: str, kind: str, first: str = "up") -> str:
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
    cells += [
        f'<td class="state"><i style="background:{colour(trial.state)}"></i>{STATES[trial.state]}</td>',
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
