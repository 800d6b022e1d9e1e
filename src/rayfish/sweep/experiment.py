"""An experiment as a sweep's target: every trial is a run like any other, in a folder of its own."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfish.experiment import Experiment
from rayfish.experiment.overrides import DEFAULT_SEED
from rayfish.experiment.words import word
from rayfish.metrics import names
from rayfish.metrics.console import RunConsole
from rayfish.metrics.panel import RunView
from rayfish.run import preflight
from rayfish.run import resources as run_resources
from rayfish.run.checkpoint import adopt
from rayfish.run.directory import RunDirectory
from rayfish.run.engine import RayOptions
from rayfish.run.train import Run
from rayfish.run.trainer import with_warm_start
from rayfish.supervise.error_messages import writing
from rayfish.sweep.task import DONE, Resources, Target, Task, Work, unrecorded
from rayfish.terminal import Console as RichConsole

METRIC = names.RETURN_MEAN
_KEPT_FOR_OTHERS = 4  # checkpoints: the trials of a population start from each other's


@dataclass
class ExperimentTarget(Target):
    """One experiment, with its own parameters for every trial.

    :param compose: returns the experiment with more words; called in the sweep's process only
    :param population: trials start from each other's checkpoints, which must still exist then
    :param options: the machine that an old file's trials are shrunk to
    """

    compose: Callable[[tuple[str, ...]], Experiment]
    population: bool = False
    options: RayOptions = field(default_factory=RayOptions)
    _base: Experiment | None = field(default=None, repr=False)
    _last: tuple[Any, Experiment] | None = field(default=None, repr=False)

    step_name = names.ITERATION

    def __getstate__(self) -> dict[str, Any]:
        """Workers get each trial's experiment with its task, and need nothing to compose it."""
        return {**self.__dict__, "compose": None, "_base": None, "_last": None}

    @property
    def base(self) -> Experiment:
        """The experiment without any parameter set."""
        if self._base is None:
            self._base = self.compose(())
        return self._base

    def payload(self, params: Mapping[str, Any], seed: int | None) -> Experiment:
        """The experiment of a trial."""
        asked = (dict(params), seed)
        if self._last is None or self._last[0] != asked:
            self._last = (asked, self._composed(params, seed))
        return self._last[1]

    def _composed(self, params: Mapping[str, Any], seed: int | None) -> Experiment:
        words = [word(key, value) for key, value in params.items()]
        if seed is not None:
            words.append(f"debugging.seed={seed}")
        experiment = self.compose(tuple(words))
        if self.population and (experiment.checkpoint.num_to_keep or _KEPT_FOR_OTHERS) < _KEPT_FOR_OTHERS:
            kept = {"checkpoint.num_to_keep": _KEPT_FOR_OTHERS}
            experiment = experiment.with_values(kept, "population based training")
        return run_resources.fit(experiment, self.options)[0] if experiment.fit else experiment

    def fit_to(self, options: RayOptions) -> list[str]:
        """As `rayfish train` does with old files, whose numbers were made for another machine."""
        self.options, self._last = options, None
        return run_resources.fit(self.base, options)[1] if self.base.fit else []

    def seed(self) -> int:
        """The first of the seeds of a point's repetitions."""
        seed = self.base.debugging.seed
        return DEFAULT_SEED if seed is None else int(seed)

    def check(self, plan: Any, options: RayOptions) -> None:
        """Runs the check of `rayfish train` on a first point."""
        import numpy as np

        point = plan.space.completed({}, np.random.default_rng(plan.seed))
        preflight.require(with_warm_start(self.payload(point, None)), options)

    def begin(self, task: Task) -> Work:
        """Starts or continues the trial's run."""
        return ExperimentWork(task)

    def resources(self, params: Mapping[str, Any]) -> Resources:
        """CPUs and GPUs of the run's own process and of each of its workers."""
        known = self._last is not None and self._last[0][0] == dict(params)
        return needed(self._last[1] if known and self._last else self.payload(params, None))


def needed(experiment: Experiment) -> Resources:
    """The resources of a trial of this experiment: its main process, and a bundle for each remote one."""
    asked = {request.role: request for request in run_resources.requests(experiment)}
    main = asked.pop(run_resources.DRIVER)
    workers = [
        tuple((what, amount) for what, amount in (("CPU", each.cpus), ("GPU", each.gpus)) if amount)
        for each in asked.values()
        for _ in range(each.count)
    ]
    return Resources(cpus=main.cpus, gpus=main.gpus, workers=tuple(workers))


class _TrialRun(Run):
    """A run whose display is the sweep's."""

    def open_console(self) -> RunConsole:
        """Nothing is shown of a single trial; its log.txt has everything."""
        nowhere = RichConsole(file=io.StringIO(), force_terminal=False)
        return RunConsole(RunView(self.directory.title, self.stop, self.directory.path), nowhere)


class ExperimentWork(Work):
    """A run held open by a worker, one iteration per report."""

    def __init__(self, task: Task) -> None:
        experiment: Experiment = with_warm_start(task.payload)
        if task.donor:
            adopt(task.folder / "checkpoints", Path(task.donor))
        resumed = task.resume and (task.folder / "run.json").is_file()
        if not resumed and task.folder.exists():
            shutil.rmtree(task.folder)  # an attempt without a run
        info = preflight.require(experiment)
        if resumed:
            directory = RunDirectory.open(task.folder)
            directory.require_idle(elsewhere=False)  # it is the sweep's, and its machine is gone
        else:
            words = " ".join(word(key, value) for key, value in task.params.items())
            command = f"rayfish tune, trial {task.number}: {words}"
            directory = RunDirectory.create(experiment, at=task.folder, command=command)
        self.run = _TrialRun(experiment, directory, RayOptions(), info, resumed=resumed)
        self.run.__enter__()
        if task.donor:
            self.run.directory.update(taken_over={"from": task.donor})

    @property
    def finished(self) -> bool:
        """Whether a stop condition was reached with the last report."""
        return bool(self.run.over)

    def step(self) -> Mapping[str, Any] | None:
        """One iteration."""
        if self.run.over:
            return None
        before = self.run.trainer.iteration
        with writing(self.run.directory.path):
            while self.run.trainer.iteration <= before and not self.run.over:
                self.run.iterate()
        return self.run.trainer.metrics

    def missed(self, known_until: tuple[str, float]) -> list[Mapping[str, Any]]:
        """The iterations up to the checkpoint it continues from."""
        file, done = self.run.directory.metrics_file, self.run.trainer.iteration
        return unrecorded(file, known_until, names.ITERATION, done)

    def save(self) -> str:
        """A checkpoint of this iteration."""
        run = self.run
        if not run.checkpoints.saved(run.trainer.iteration):
            with writing(run.directory.path):
                run._save()
        return str(run.checkpoints.folder / f"{run.trainer.iteration:06d}")

    def end(self, how: str, why: str) -> None:
        """The last checkpoint and the final status, as for any run."""
        run = self.run
        if how != DONE:
            run.interrupts.requested = run.interrupts.requested or why
            run.over = why
        try:
            with writing(run.directory.path):
                run.finish()
        finally:
            run.__exit__(None, None, None)

    def failed(self, error: BaseException) -> None:
        """Closes the run; its record has the reason."""
        self.run.__exit__(type(error), error, error.__traceback__)
