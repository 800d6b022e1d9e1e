"""What remains of a sweep: its best point as a ready file, the best trial linked, the table, the result."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError, RunNotFound
from rayfish.experiment import Experiment
from rayfish.experiment.experiment import dump
from rayfish.experiment.result_names import todays_metric
from rayfish.files import atomic_link, atomic_write, parse_json
from rayfish.run.directory import DEFAULT_ROOT, find_checkpoint, note_once
from rayfish.sweep import messages
from rayfish.sweep.directory import RUNNING, SweepDirectory, find_sweep
from rayfish.sweep.experiment import ExperimentTarget
from rayfish.sweep.function import configuration
from rayfish.sweep.plan import Plan
from rayfish.sweep.records import FAILED, Trial
from rayfish.sweep.settings import POPULATIONS
from rayfish.sweep.view import SweepView, stored_view

_FIRST, _LAST = ("trial", "point", "state"), ("seed", "step", "seconds", "moves", "error", "folder")
BEST_FILE, BEST_LINK, TABLE = "best.yaml", "best", "trials.csv"


class Result:
    """The return value of `rayfish.tune`.

    Its `trials` are in order, each with `params`, `value`, `state`, `curve` and `error`; `metric` and `mode`
    say what was scored, `seconds` how long all sessions took together.

    :param status: done, failed, or stopped by a signal
    :param fixed: the arguments of a function that do not vary; None for anything else
    """

    def __init__(self, view: SweepView, status: str, fixed: dict[str, Any] | None = None) -> None:
        self.view, self.status, self.fixed = view, status, fixed
        self.folder, self.metric, self.mode = view.folder, view.metric, view.search.mode
        self.seconds = view.seconds
        self.trials = [view.trials[number] for number in sorted(view.trials)]

    @property
    def best(self) -> Trial | None:
        """The best trial; with repetitions, the best of the best point."""
        return self.view.best()

    @property
    def best_config(self) -> dict[str, Any]:
        """The best point: by dotted key, for a function as its argument."""
        return self._config(self._required())

    @property
    def best_value(self) -> float:
        """The best point's score; with repetitions, their mean."""
        self._required()
        point = self.view.best_point()
        return float(point.value if point is not None and point.value is not None else math.nan)

    @cached_property
    def importance(self) -> dict[str, float]:
        """Share of each parameter in the variation of the scores; empty with too little data."""
        from rayfish.sweep.importance import importances

        return importances(self.view)

    @property
    def failed(self) -> list[Trial]:
        """The trials that failed."""
        return [trial for trial in self.trials if trial.state == FAILED]

    def get_best_config(self, metric: str | None = None, mode: str | None = None) -> dict[str, Any]:
        """The point with the best last report of any metric, as in Ray Tune's results."""
        return self._config(self.get_best_trial(metric, mode))

    def get_best_trial(self, metric: str | None = None, mode: str | None = None) -> Trial:
        """The trial with the best last report of any metric, as in Ray Tune's results."""
        name = (todays_metric(metric) or metric) if metric else self.metric
        if name == self.metric and mode in (None, self.mode):
            return self._required()
        sign = -1.0 if (mode or self.mode) == "min" else 1.0
        known = [trial for trial in self.trials if isinstance(trial.metrics.get(name), int | float)]
        if not known:
            raise RayfishError(f"no trial reported {name!r}", f"they were judged by {self.metric!r}")
        return max(known, key=lambda trial: sign * trial.metrics[name])

    def get_best_checkpoint(
        self, trial: Trial | None = None, metric: str | None = None, mode: str | None = None
    ) -> Path:
        """The best checkpoint of a trial, of the best one by default, as in Ray Tune's results."""
        chosen = trial or self.get_best_trial(metric, mode)
        return find_checkpoint(self.folder / "trials" / chosen.name)

    def dataframe(self) -> Any:
        """One row per trial, as in Ray Tune's results (needs pandas)."""
        try:
            import pandas
        except ImportError:
            raise RayfishError("a data frame needs pandas", "pip install pandas, or use rows()") from None
        return pandas.DataFrame(self.rows())

    def rows(self) -> Iterator[dict[str, Any]]:
        """One flat dictionary per trial, for a data frame: `pandas.DataFrame(result.rows())`."""
        return rows_of(self.view)

    def _config(self, trial: Trial) -> dict[str, Any]:
        if self.fixed is None:
            return dict(trial.earned_with)
        return configuration(self.fixed, trial.earned_with)

    def _required(self) -> Trial:
        if self.best is None:
            errors = "; ".join(trial.error.splitlines()[0] for trial in self.failed[:2] if trial.error)
            raise RayfishError(f"no trial of {self.folder} has a score", errors or "let it run longer")
        return self.best


def load_sweep(sweep: str | Path, root: str | Path = DEFAULT_ROOT) -> Result:
    """A sweep that has run, or still runs, read from its folder; imports neither Ray nor torch.

    :param sweep: its path, its name (the newest of that name), its id or the beginning of that, or `last`
    :param root: the folder of all runs
    """
    folder = SweepDirectory.open(find_sweep(sweep, root))
    view = stored_view(folder)
    if view.damage:
        note_once(f"{folder.path}: {view.damage}")
    result = Result(view, str(folder.data.get("status")))
    if folder.data.get("kind") == "function":
        result.fixed = _fixed(folder, result.trials)
    return result


def _fixed(folder: SweepDirectory, trials: list[Trial]) -> dict[str, Any]:
    """The arguments of a function that do not vary, from the folder of a trial."""
    for trial in trials:
        with suppress(OSError, ValueError):
            given: dict[str, Any] = parse_json((folder.trials / trial.name / "params.json").read_bytes())
            return {key: value for key, value in given.items() if key != "seed" or trial.seed is None}
    return {}


def rows_of(view: SweepView) -> Iterator[dict[str, Any]]:
    """One flat dictionary per trial, in the order of their numbers.

    A parameter or metric with the name of another column is `param/NAME` or `metric/NAME`.
    """
    score = _column("metric", view.metric, (*_FIRST, *_LAST))
    for _, trial in sorted(view.trials.items()):
        taken = (*_FIRST, score, *_LAST)
        yield {
            "trial": trial.number,
            "point": trial.point,
            "state": trial.state,
            score: trial.value,
            **{_column("param", key, taken): value for key, value in trial.earned_with.items()},
            "seed": trial.seed,
            "step": trial.step,
            "seconds": trial.seconds,
            **({"moves": len(trial.moves) - trial.unearned} if view.search.scheduler in POPULATIONS else {}),
            "error": trial.error,
            "folder": str(view.folder / "trials" / trial.name),
        }


def table_of(view: SweepView) -> str:
    """The trials as CSV: the columns of `rows_of`, a parameter that some trials lack included."""
    rows = list(rows_of(view))
    found = dict.fromkeys((*_FIRST, *(key for row in rows for key in row)))
    columns = sorted(found, key=lambda name: name in _LAST)
    out = io.StringIO()
    table = csv.DictWriter(out, columns, lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow({key: _cell(value) for key, value in row.items()})
    return out.getvalue()


def _column(kind: str, name: str, taken: tuple[str, ...]) -> str:
    return f"{kind}/{name}" if name in taken else name


def _cell(value: Any) -> Any:
    return json.dumps(value, default=str) if isinstance(value, list | tuple | dict | bool) else value


def write(plan: Plan, view: SweepView) -> list[tuple[str, str]]:
    """Writes best.yaml, the link to the best trial and the table; returns commands for the user."""
    here = shown(view.folder)
    atomic_write(view.folder / TABLE, table_of(view))
    steps = []
    best = view.best()
    if best is not None:
        atomic_write(view.folder / BEST_FILE, _best_file(plan, view, best))
        atomic_link(view.folder / BEST_LINK, f"trials/{best.name}")
        if plan.kind == "experiment":
            steps.append((f"rayfish train -f {here}/{BEST_FILE}", "train the best point"))
            steps.append((f"rayfish evaluate {here}/{BEST_LINK}", "score the best trial"))
        else:
            steps.append((f"cat {here}/{BEST_FILE}", "the best point"))
    return steps + _retries(view, f"rayfish tune --resume {here}")


def _retries(view: SweepView, resume: str) -> list[tuple[str, str]]:
    """Commands for the trials that failed: another metric for those that lack it, a retry for the others."""
    failed = [trial for trial in view.trials.values() if trial.state == FAILED]
    metrics = {t.number: messages.other_metric(view.metric, t.metrics) for t in failed if t.unscored}
    metric = next(filter(None, metrics.values()), "")
    others = [trial.failures for trial in failed if not metrics.get(trial.number)]
    steps = [(f"{resume} search.metric={metric}", "score the trials by a metric that they report")]
    more = [(f"{resume} search.max_failures={max(others, default=0) + 1}", "try the failed trials again")]
    return steps * bool(metric) + more * bool(others)


def best_run(sweep: Path) -> Path:
    """The run of the best trial of a sweep by its scores; of a running sweep, the best so far.

    :raises RunNotFound: there is none, with the reason
    """
    folder = SweepDirectory.open(sweep)
    if folder.data.get("kind") in ("function", "program"):
        raise RunNotFound(
            f"{sweep} is a sweep of a function or a program: its trials have no policy",
            f"rayfish runs show {sweep}; its best point is in {sweep / BEST_FILE}",
        )
    view, running = stored_view(folder), folder.status == RUNNING
    scored = [t for p in view.points() for t in view.ranked(p.trials)]
    found = [(trial, folder.trials / trial.name) for trial in scored]
    for trial, run in found:
        if not (run / "run.json").is_file() or (running and not any(run.glob("checkpoints/[0-9]*"))):
            continue
        if running:
            best = f"its best trial with a checkpoint so far is {trial.number}"
            note_once(f"the sweep {sweep} is running; {best}")
        elif trial is not scored[0]:
            gone = f"the folder of its best trial {scored[0].number} is gone ({found[0][1]})"
            note_once(f"{sweep}: {gone}; trial {trial.number} is the next best")
        return run.resolve()
    if running:
        what = f"the sweep {sweep} is running, and none of its trials has a score and a checkpoint yet"
        raise RunNotFound(what, f"wait for one: rayfish runs show {sweep}")
    if scored:
        what = f"the folders of all trials with a score are gone from {folder.trials}"
        raise RunNotFound(what, f"train the best point again: rayfish train -f {sweep / BEST_FILE}")
    go_on = f"rayfish tune --resume {sweep} goes on with it"
    raise RunNotFound(
        f"the sweep {sweep} has no best trial yet: no trial has a score",
        f"{go_on}; or name one of its trials: {folder.trials}/...",
    )


def _best_file(plan: Plan, view: SweepView, best: Trial) -> str:
    """The best point as something to run: an experiment file, or the parameters."""
    point, params = view.best_point(), best.earned_with
    score = point.value if point is not None else best.value
    which = f"trial {best.number} of {shown(view.folder)}"
    if view.search.repeat > 1:
        which = f"mean of {view.search.repeat} seeds of a point, the best of them {which}"
    head = f"# Best of {len(view.trials)} trials: {view.metric} {score:.6g}, {which}\n"
    if isinstance(plan.target, ExperimentTarget):
        experiment: Experiment = plan.target.payload(params, None)
        origins = {**experiment.origins, **dict.fromkeys(params, f"tune, trial {best.number}")}
        runtime = {**experiment.section("runtime"), "name": f"{plan.name}-best"}
        config = {**experiment.config, "runtime": runtime}
        given = plan.source.get("env")
        if given:  # a file cannot name it
            head += f"# The environment {given} was given from Python: rayfish.train(FILE, env=...)\n"
            config["environment"] = {**config["environment"], "env": given}
        return head + replace(experiment, config=config, origins=origins).to_yaml()
    values = configuration({}, params)
    if plan.kind == "program":
        return head + dump({"params": values, "command": plan.target.command_line(params)})  # type: ignore[attr-defined]
    return head + dump(json.loads(json.dumps(values, default=str)))


def shown(folder: Path) -> str:
    """A folder relative to the current one, where that is shorter."""
    near = os.path.relpath(folder)
    return near if len(near) < len(str(folder)) else str(folder)
