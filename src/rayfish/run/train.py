"""One run from start to end: the training loop, with everything people expect around it.

`several` trains several experiments in turn (`--multirun`, `--seeds`): one Ray, one table at the end.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from rayfish.algorithm.batched.eligibility import fit
from rayfish.algorithm.keys import remarks
from rayfish.compat.ray_node import end_local_ray
from rayfish.envs.build import EnvInfo
from rayfish.errors import ConfigError, RayfishError, RunFailed
from rayfish.experiment import Experiment
from rayfish.experiment.result_names import todays_metric
from rayfish.experiment.words import Override
from rayfish.metrics import names
from rayfish.metrics.console import RunConsole, open_console
from rayfish.metrics.sinks import last_with, newest_first, open_sinks, sample_jsonl
from rayfish.metrics.stats import bootstrap_ci
from rayfish.metrics.stop import StopConditions
from rayfish.metrics.system import SystemUsage
from rayfish.metrics.timing import bottleneck
from rayfish.run import autotune, preflight, resources, signing
from rayfish.run.checkpoint import (
    Checkpoints,
    adopt,
    in_words,
    read_header,
    require_same_task,
    require_whole,
)
from rayfish.run.choose import with_fitting_algorithm
from rayfish.run.directory import DONE, STOPPED, RunDirectory, find_checkpoint, find_resumable
from rayfish.run.engine import RayOptions, running_ray
from rayfish.run.lease import Taken
from rayfish.run.trainer import Trainer, as_experiment, extended, with_warm_start
from rayfish.run.trust import require_checkpoint, require_run
from rayfish.run.worker_failures import LearnerLost
from rayfish.supervise import watchdog
from rayfish.supervise.error_messages import ending, explained, keep_traceback, of_files
from rayfish.supervise.logs import capture, to_terminal
from rayfish.supervise.signals import Interrupts
from rayfish.terminal import Console

_ADVISE_AT = 3
_WIDEST_SETTING = 40  # leaves room for the other columns of a terminal of 80


def train(
    experiment: Any = None,
    *overrides: Override,
    resume: str | Path | None = None,
    restore: str | Path | None = None,
    env: Any = None,
    config_dir: str | Path | None = None,
    fit: bool = False,
    plain: bool | None = None,
    command: str | None = None,
    ray_options: RayOptions | None = None,
    trust: bool = False,
) -> Path:
    """Trains an experiment until a stop condition holds; returns the run's folder.

    :param experiment: an `Experiment`, the name of a preset or file, or RLlib's config (`PPOConfig()`)
    :param overrides: `key=value` words, as on the command line, or dictionaries: `{"training.lr": 1e-3}`
    :param resume: a run to continue (path, name, id or `last`) in place of starting a new one
    :param restore: a checkpoint, or a run (its last one): a new run goes on from its whole state, with this
        experiment, or with the checkpoint's own where none is named
    :param env: an environment class or creator function, in place of `environment.env`
    :param config_dir: a folder with the user's own Hydra groups
    :param fit: shrink the request to what the machine has, and note what was changed
    :param plain: plain lines in place of the live display; None decides by the terminal
    :param command: what the user typed, kept in the run's `command.txt`
    :param ray_options: how to start Ray
    :param trust: go on with, or start from, what another user made, which runs the code in it
    """
    options = ray_options or RayOptions()
    directory: RunDirectory | None = None
    donor: Path | None = None
    if resume is not None:
        directory = RunDirectory.open(find_resumable(resume))
        experiment = _continued(directory, overrides, trust=trust)
        finished = note_on_end(directory, experiment)
        if finished:
            print(finished)
            return directory.path
        directory.require_idle()
        Checkpoints(directory.checkpoints, experiment.checkpoint).require_continuable()
        experiment = experiment if env is None else replace(experiment, env=env)
    else:
        donor = _donor(str(restore), trust=trust) if restore is not None else None
        if donor is not None and experiment is None:
            experiment = replace(extended(Experiment.load(donor / "config.yaml"), overrides), env=env)
        else:
            experiment = as_experiment(experiment, *overrides, env=env, config_dir=config_dir)
        experiment = with_fitting_algorithm(with_warm_start(experiment, trust=trust))
        if donor is not None:
            require_same_task(donor, read_header(donor), experiment)
    experiment, info, notes = _checked(experiment, options, fit=fit)
    if directory is None:
        directory = RunDirectory.create(experiment, command=command or sys.argv)
    resumed = resume is not None
    run = Run(experiment, directory, options, info, plain=plain, notes=notes, resumed=resumed, donor=donor)
    with run:
        while not run.over:
            run.iterate()
        run.finish()
    return directory.path


def _continued(directory: RunDirectory, overrides: Sequence[Override], *, trust: bool) -> Experiment:
    """The experiment of a run that is resumed, with what the resume changes."""
    saved = Experiment.load(directory.config_file)
    require_run(directory.path, saved, trust=trust)
    return extended(saved, overrides)


def _checked(
    experiment: Experiment, options: RayOptions, *, fit: bool
) -> tuple[Experiment, EnvInfo, list[str]]:
    """The experiment (shrunk to the machine, if need be), its environment, and notes for the user.

    :raises ConfigError: with every problem
    """
    notes = [*experiment.notes, signing.note()]
    if fit or experiment.fit:
        experiment, changes = resources.fit(experiment, options)
        notes += changes
    info = preflight.require(experiment, options)
    notes += preflight.remarks(experiment, info)
    notes += [*info.notices, preflight.note_on_saving(experiment, info)]
    return experiment, info, [note for note in notes if note]


def _donor(named: str, *, trust: bool) -> Path:
    """The checkpoint to go on from: whole, and made by this user or trusted."""
    folder = find_checkpoint(named, order=("last", "best"))
    require_whole(folder, read_header(folder))
    require_checkpoint(folder, trust=trust)
    return folder


def note_on_end(directory: RunDirectory, experiment: Experiment) -> str:
    """That a run has reached its goal, and how to extend it; "" where a resume has something to do.

    :param experiment: the run's own, with what the resume changes
    """
    line = next(newest_first(directory.metrics_file), {})
    last = directory.checkpoints / "last"
    if directory.status != DONE or last.resolve().name != f"{line.get(names.ITERATION, 0):06.0f}":
        return ""
    conditions = experiment.section("stop_conditions")
    held = {key: StopConditions({key: limit}).reached(line) for key, limit in conditions.items()}
    held = {key: reason for key, reason in held.items() if reason}
    if not held:
        return ""
    longer = {}
    for key in held:
        name = todays_metric(key) or key
        counted = name in (*names.COUNTERS, names.TIME_TOTAL)
        limit = StopConditions({key: conditions[key]}).limits.get(name)
        longer[f"stop_conditions.{key}"] = (
            f"{2 * max(limit, line[name]):.0f}" if counted and limit else "null"
        )
    words = [word for word in experiment.overrides if word.partition("=")[0].lstrip("+") not in longer]
    words += [f"{key}={value}" for key, value in longer.items()]
    return (
        f"{directory.path} is finished: {', '.join(map(str, held.values()))}\n"
        f"  to extend it: rayfish train --resume {directory.path} {shlex.join(words)}"
    )


@dataclass(eq=False)
class Run:
    """One run held open: its parts, one iteration of its loop, and its end whatever happens.

    :param info: what the check found of the environment
    :param notes: lines for the user to see first
    :param resumed: go on from the last checkpoint in `directory`
    :param donor: a checkpoint of another run to go on from
    """

    experiment: Experiment
    directory: RunDirectory
    options: RayOptions
    info: EnvInfo
    _: KW_ONLY
    plain: bool | None = None
    notes: Sequence[str] = ()
    resumed: bool = False
    donor: Path | None = None

    def __post_init__(self) -> None:
        self.over = ""
        self.stop = StopConditions(self.experiment.section("stop_conditions"))
        self.checkpoints = Checkpoints(self.directory.checkpoints, self.experiment.checkpoint)
        self.usage = SystemUsage() if self.experiment.debugging.log_sys_usage else None
        self.resumed = self.resumed or self.donor is not None
        self._doubted = False
        self._open = ExitStack()

    def __enter__(self) -> Run:
        try:
            self._start()
        except BaseException as error:
            self._end(error)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._end(error)
            return
        try:
            self._open.close()
        except OSError as late:
            raise of_files(late, self.directory.path) from late

    def iterate(self) -> None:
        """One turn of the loop: train, write, show, save; `over` says why there is no next one.

        A remote learner that dies in it costs the way back to the last checkpoint.
        """
        try:
            self._iterate()
        except LearnerLost as lost:
            path, _ = self.checkpoints.newest()
            back_to = f"iteration {int(path.name)}" if path else "the beginning"
            self.trainer.losses.learner_died(lost, back_to)
            self._go_back(path)

    def _iterate(self) -> None:
        metrics = self.trainer.step()
        self.directory.require_held()
        if self.usage is not None:
            metrics.update(self.usage.read())
        self.sinks.write(metrics)
        self.console.update(metrics)
        self._doubt_metrics(metrics)
        if self.trainer.iteration == _ADVISE_AT:
            self._advise(metrics)
        if self.checkpoints.due(self.trainer.iteration):
            self._save()
        self.directory.progress(metrics, self.checkpoints.best)
        self.over = self.interrupts.requested or self.stop.reached(metrics) or ""
        self.trainer.losses.require_steps(metrics, self.over)

    def _doubt_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Note once which stop conditions and which best metric the first episodes do not report."""
        if self._doubted or not metrics.get(names.EPISODES):
            return
        self._doubted = True
        wanted = {f"stop_conditions.{name}": name for name, _ in self.stop.bounds}
        key = "checkpoint.checkpoint_score_attribute"
        wanted[key] = str(self.experiment.get(key) or names.RETURN_MEAN)
        for line in names.unreported(wanted, metrics):
            self.console.note(line)

    def finish(self) -> None:
        """The last checkpoint, the final status, and what the user can do now."""
        status = "stopped" if self.interrupts.requested else "done"
        wanted = self.checkpoints.at_end or self.interrupts.requested
        if wanted and self.trainer.iteration and not self.checkpoints.saved(self.trainer.iteration):
            self._save()
        self.sinks.flush()
        self.directory.finish(status, self.over)
        self.console.finish(status, self.over)
        self.interrupts.close()

    def _advise(self, metrics: dict[str, float]) -> None:
        """Once per run, when the first iterations with their imports and allocations are past."""
        part = "acting" if bottleneck(metrics) == "inference" else "learning"
        hint = resources.advice(metrics, self.experiment, self.trainer.threads[part])
        if hint:
            self.console.note(hint)

    def open_console(self) -> RunConsole:
        """What shows the run while it goes on."""
        return open_console(self.directory.title, self.stop, self.directory.path, plain=self.plain)

    def _start(self) -> None:
        folder, level = self.directory.path, self.experiment.debugging.log_level
        self.console = self._open.enter_context(self.open_console())
        self.interrupts = self._open.enter_context(Interrupts(self.console.note))
        self._open.enter_context(capture(self.directory.log_file, self.console.log, level))
        for note in self.notes:
            self.console.note(note)
        if self.donor is not None:
            adopt(self.directory.checkpoints, self.donor)
            self.directory.update(restored_from=str(self.donor))
            self.console.note(f"goes on from {self.donor}")
        autotune.tune(self)
        for remark in remarks(self.experiment, self.info):
            self.console.note(remark)
        fitting = fit(self.experiment, self.info)
        self.directory.begin(fitting.runner, autotune.why_this_way(self.experiment, fitting.why))
        if not fitting.batched and self.experiment.rollouts.runner == "auto":
            self.console.note(f"RLlib's env runner samples: {fitting.why}")
        self.console.status("starting Ray and building the algorithm")
        self._open.enter_context(watchdog.with_last_words(self._last_words))
        self.trainer = self._open.enter_context(self._open_trainer())
        self.interrupts.begin()
        resume_at = self._restore() if self.resumed else None
        self.sinks = self._open.enter_context(open_sinks(folder, self.experiment, resume_at=resume_at))
        for note in self.sinks.notes if self.donor is None else ():  # its files are in another run
            self.console.note(note, "WARNING")
        if self.resumed and self.donor is None:
            self.directory.continued(self.experiment, resume_at or 0)
        if resume_at:
            file = self.directory.metrics_file
            self.console.recall(sample_jsonl(file), last_with(file, names.EVAL_RETURN_MEAN))
        if self.trainer.metrics:
            self.over = self.stop.reached(self.trainer.metrics) or ""

    def _open_trainer(self) -> Trainer:
        """The trainer of a run that begins or goes on; what it loses is reported on the run's console."""
        experiment = self.experiment
        if self.resumed and self.checkpoints.any():  # they hold all that is needed of a warm start
            experiment = experiment.with_values({"algo.checkpoint_path": None}, "resumed")
        trainer = Trainer(experiment, ray_options=self.options, info=self.info)
        trainer.losses.tell = self.console.note
        if self.resumed:
            trainer.losses.load_state(self.directory.data.get("counters"))
        return trainer

    def _restore(self) -> int:
        """Back to the last checkpoint of an earlier session; returns its iteration."""
        path, damaged = self.checkpoints.newest()
        if path is None:
            self.checkpoints.drop_after(0)  # the draft of a first checkpoint, say
            self.console.note("this run ended before its first checkpoint: starting it from the beginning")
            return 0
        notes = self.trainer.restore(path)
        self.checkpoints.recall(path)
        self.checkpoints.drop_after(self.trainer.iteration)
        for note in (*damaged, f"resumed at iteration {self.trainer.iteration}", *notes):
            self.console.note(note)
        return self.trainer.iteration

    def _go_back(self, path: Path | None) -> None:
        """Algorithm, metrics and sinks as they were at a checkpoint; without one, at the beginning."""
        self.trainer.rebuild()
        if path is not None:
            self.trainer.restore(path)
            self.sinks.close()
        resume_at = self.trainer.iteration
        self.sinks.sinks = open_sinks(self.directory.path, self.experiment, resume_at=resume_at).sinks

    def _last_words(self, reason: RunFailed) -> None:
        """Ends a process that hangs: the run still gets its final status and its message."""
        with suppress(Exception):
            self.directory.finish("failed", reason.what)
        with suppress(Exception):
            self.console.finish("failed", "see below")
            end_local_ray()
        to_terminal(f"error: {reason}\n")
        os._exit(reason.exit_code)

    def _save(self) -> None:
        self.directory.require_held()
        self.interrupts.saving()
        self.sinks.flush()
        with explained(self.experiment, self.trainer.watch), self.trainer.losses.of_learners(self.trainer):
            saved = self.checkpoints.save(self.trainer)
        self.console.saved(in_words(saved))
        self.directory.progress(self.trainer.metrics, self.checkpoints.best)

    def _end(self, error: BaseException) -> None:
        """Ends a run that an exception ended, and raises what the user is to see, if that is another one."""
        failure = of_files(error, self.directory.path)
        if failure is not error:
            keep_traceback(error)
        recorded = self._failed(failure)
        with suppress(OSError):  # files that cannot be written cannot be closed either
            self._open.close()
        if isinstance(failure, RayfishError) and not recorded:
            lost = "so that rayfish runs list shows the run as lost"
            failure.hint += f"; run.json could not be written either, {lost}"
        if failure is not error:
            raise failure from error

    def _failed(self, error: BaseException) -> bool:
        """A failed run keeps what it finished; its status says that it failed.

        :returns: whether the status could be written
        """
        status, why = ending(error)
        if hasattr(self, "interrupts"):
            self.interrupts.close()
            why = self.interrupts.reason or why
        recorded = True
        if (self.directory.path / "run.json").is_file():  # else it is being removed: leave it so
            try:
                self.directory.finish(status, why)
            except Taken:
                status = "taken over"
            except OSError:
                recorded = False
        if hasattr(self, "console"):
            self.console.finish(status, why if status == "stopped" else "see below")
        return recorded


def several(
    experiments: list[tuple[tuple[str, ...], Experiment]],
    options: RayOptions,
    common: dict[str, Any],
    refused: Mapping[str, RayfishError] | None = None,
) -> int:
    """Trains each experiment; one that fails stops no other. Returns how many failed or were not started.

    :param refused: experiments of the same file that cannot be trained, reported first and in the table
    """
    experiments = [(words, with_fitting_algorithm(experiment)) for words, experiment in experiments]
    strict = [] if common.get("fit") else [experiment for _, experiment in experiments if not experiment.fit]
    problems = {str(p): p for experiment in strict for p in preflight.check(experiment, options)}
    if problems:  # all of them before the first run, not an hour later
        raise ConfigError(list(problems.values()))
    console = Console()
    rows: list[tuple[str, Path | None, str]] = []
    for name, error in (refused or {}).items():
        shown = name.removeprefix("./")
        console.print(f"[red]left out:[/red] {escape(f'{shown}: {error}')}", highlight=False, soft_wrap=True)
        rows.append((name.rpartition(":")[2], None, "left out, see above"))
    paths = tuple(dict.fromkeys(path for _, experiment in experiments for path in experiment.paths))
    alone = len(experiments) == 1  # of an old file, say, whose other experiments are refused
    shared = set() if alone else set(experiments[0][0]).intersection(*(words for words, _ in experiments))
    with running_ray(options, paths):
        for number, (words, experiment) in enumerate(experiments, 1):
            label = " ".join(word for word in words if word not in shared) or "as it is"
            console.rule(f"run {number} of {len(experiments)}: {escape(label)}", style="dim")
            try:
                rows.append((label, train(experiment, ray_options=options, **common), ""))
                if RunDirectory.open(rows[-1][1] or "").status == STOPPED:
                    console.print(f"[yellow]stopped[/yellow] after {number} of {len(experiments)} runs")
                    break
            except RayfishError as error:
                console.print(f"[red]failed:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
                rows.append((label, None, "failed, see above"))
    console.print(_table(rows))
    return len(experiments) - sum(1 for _, path, _ in rows if path is not None)


def _table(rows: list[tuple[str, Path | None, str]]) -> Table:
    table = Table(title="All runs", title_justify="left")
    longest = max((len(word) for label, _, _ in rows for word in label.split()), default=0)
    table.add_column("settings", overflow="fold", min_width=min(longest, _WIDEST_SETTING))
    for column in ("return", "env steps", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("run")
    finals = []
    for label, path, fault in rows:
        if path is None:
            table.add_row(escape(label), "", "", "", f"[red]{fault}[/red]")
            continue
        last = next(newest_first(path / "metrics.jsonl"), {})
        value = last.get("rollout/return_mean")
        finals += [value] if value is not None else []
        table.add_row(
            escape(label),
            "" if value is None else f"{value:.1f}",
            f"{last.get('run/env_steps', 0):,.0f}",
            f"{last.get('time/total_s', 0):.0f} s",
            path.name.rpartition("-")[2],
        )
    folders = dict.fromkeys(str(path.parent) for _, path, _ in rows if path is not None)
    table.caption = escape(f"runs are in {', '.join(folders)}") if folders else None
    without_seed = {re.sub(r"debugging\.seed=\S*", "", label).strip() for label, _, _ in rows}
    if len(finals) > 1 and len(without_seed) == 1:
        mean, low, high = bootstrap_ci(finals, seed=0)
        interval = f"mean return {mean:.1f}, 95 % interval {low:.1f} to {high:.1f} over {len(finals)} runs"
        table.caption = f"{interval}\n{table.caption}"
    return table
