"""A run's trainer, and going back to the last checkpoint when a remote learner has died."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rayfish.errors import RunFailed
from rayfish.metrics.sinks import open_sinks
from rayfish.run.engine import end_local_ray
from rayfish.run.trainer import Trainer
from rayfish.supervise import watchdog
from rayfish.supervise.logs import to_terminal
from rayfish.supervise.worker_failures import LearnerLost

if TYPE_CHECKING:
    from rayfish.run.train import Run


def open_trainer(run: Run) -> Trainer:
    """The trainer of a run that begins or goes on; what it loses is told on the run's console."""
    experiment = run.experiment
    if run.resumed and run.checkpoints.any():  # they hold all that is needed of a warm start
        experiment = experiment.with_values({"algo.checkpoint_path": None}, "resumed")
    trainer = Trainer(experiment, ray_options=run.options, info=run.info)
    trainer.losses.tell = run.console.note
    if run.resumed:
        trainer.losses.load_state(run.directory.data.get("counters"))
    return trainer


@contextmanager
def spoken_for(run: Run) -> Iterator[None]:
    """While entered, a run whose process must end at once still gets its final status and its message."""

    def last_words(reason: RunFailed) -> None:
        with suppress(Exception):
            run.directory.finish("failed", reason.what)
        with suppress(Exception):
            run.console.finish("failed", "see below")
            end_local_ray()
        to_terminal(f"error: {reason}\n")
        os._exit(reason.exit_code)

    with watchdog.spoken_for(last_words):
        yield


def restore(run: Run) -> int:
    """Back to the last checkpoint of an earlier session; gives the iteration that metrics roll back to."""
    path, damaged = run.checkpoints.newest()
    if path is None:
        run.checkpoints.drop_after(0)  # the draft of a first checkpoint, say
        run.console.note("this run ended before its first checkpoint: starting it from the beginning")
        return 0
    notes = run.trainer.restore(path)
    run.checkpoints.recall(path)
    run.checkpoints.drop_after(run.trainer.iteration)
    for note in (*damaged, f"resumed at iteration {run.trainer.iteration}", *notes):
        run.console.note(note)
    return run.trainer.iteration


def iterate(run: Run) -> None:
    """One turn of the run's loop; when a remote learner dies in it, the way back instead."""
    try:
        run.iterate()
    except LearnerLost as lost:
        path, _ = run.checkpoints.newest()
        back_to = f"iteration {int(path.name)}" if path else "the beginning"
        run.trainer.losses.learner_died(lost, back_to)
        go_back(run)


def go_back(run: Run) -> None:
    """Algorithm, metrics and sinks as they were at the last checkpoint; else at the beginning."""
    run.trainer.rebuild()
    path, _ = run.checkpoints.newest()
    if path is not None:
        run.trainer.restore(path)
        run.sinks.close()
    resume_at = run.trainer.iteration
    run.sinks.sinks = open_sinks(run.directory.path, run.experiment, resume_at=resume_at).sinks
