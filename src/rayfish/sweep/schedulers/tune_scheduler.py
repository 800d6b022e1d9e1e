"""Ray Tune's own schedulers (ASHA, HyperBand, median rule, PBT, PB2) without Ray Tune's own loop.

Tune's schedulers act on a controller and on trial objects. Here both are small stand-ins with only what the
schedulers use; their actions become answers and orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from rayfish.sweep.schedulers.base import CONTINUE, PAUSE, STOP, Orders, Scheduler
from rayfish.sweep.searchers.base import isolated

PENDING, RUNNING, PAUSED, TERMINATED, ERROR = "PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR"
"""Tune's states of a trial."""


@dataclass(eq=False)
class StandInTrial:
    """A trial as Tune's schedulers see one."""

    number: int
    config: dict[str, Any]
    status: str = PENDING
    last_result: dict[str, Any] = field(default_factory=dict)
    evaluated_params: dict[str, Any] = field(default_factory=dict)
    experiment_tag: str = ""
    is_saving: bool = False
    checkpoint: str = "newest"
    temporary_state: Any = field(default_factory=lambda: SimpleNamespace(saving_to=None))

    def __post_init__(self) -> None:
        keep = SimpleNamespace(num_to_keep=None)
        manager = SimpleNamespace(checkpoint_config=keep, _latest_checkpoint_result=None)
        self.run_metadata = SimpleNamespace(checkpoint_manager=manager)

    @property
    def trial_id(self) -> str:
        """Its number as text."""
        return str(self.number)

    def __str__(self) -> str:  # PB2 groups its data by it
        return self.trial_id

    def is_finished(self) -> bool:
        """Whether it has ended."""
        return self.status in (TERMINATED, ERROR)

    def set_config(self, config: dict[str, Any]) -> None:
        """New parameters."""
        self.config = config

    def set_experiment_tag(self, tag: str) -> None:
        """Tune's name for it, unused here."""
        self.experiment_tag = tag


class StandInController:
    """The part of Tune's loop that its schedulers call."""

    search_alg = None

    def __init__(self, stop: Callable[[StandInTrial], None], orders: Callable[[], Orders]) -> None:
        self.trials: dict[int, StandInTrial] = {}
        self._stop = stop
        self._orders = orders

    def get_trials(self) -> list[StandInTrial]:
        """All of them, oldest first."""
        return list(self.trials.values())

    def get_live_trials(self) -> list[StandInTrial]:
        """Those that have not ended."""
        return [trial for trial in self.trials.values() if not trial.is_finished()]

    def stop_trial(self, trial: StandInTrial) -> None:
        """Ends one that waits."""
        self._stop(trial)

    def pause_trial(self, trial: StandInTrial, should_checkpoint: bool = True) -> None:
        """Before an exploit: the trial will go on from another one's checkpoint."""
        trial.status = PAUSED

    def _schedule_trial_save(self, trial: StandInTrial, result: Any = None) -> str:
        if trial.status == RUNNING:  # else its newest checkpoint is used
            self._orders().save.append(trial.number)
        return "saved"


class TuneScheduler(Scheduler):
    """One of Ray Tune's schedulers.

    :param made: the scheduler itself
    :param name: how it is called in a reason
    :param seed: its random numbers are seeded from this, the trial's number and time, and are its own
    :param explain: gives the reason for a STOP at a time
    :param longest: how far any trial may run
    """

    def __init__(
        self,
        made: Any,
        time: str,
        metric: str,
        *,
        name: str,
        seed: int = 0,
        explain: Callable[[float], str] | None = None,
        longest: float = math.inf,
    ) -> None:
        super().__init__(time, metric)
        self.tune = made
        self.name = name
        self._seed = seed
        self._explain = explain or (lambda at: f"worse than the others at {at:g}")
        self._controller = StandInController(self._stop_waiting, lambda: self._orders)
        self._at = 0.0
        self._longest = longest

    def add(self, number: int, params: Mapping[str, Any], *, point: int | None = None) -> None:
        """A trial, pending."""
        trial = StandInTrial(number, self._encoded(params))
        self._controller.trials[number] = trial
        with self._isolated(number, 0):
            self.tune.on_trial_add(self._controller, trial)

    def report(self, number: int, metrics: Mapping[str, Any]) -> str:
        """Tune's answer to a report."""
        trial = self._controller.trials[number]
        if trial.is_finished():  # it was to end when the sweep was interrupted
            return STOP
        trial.status = RUNNING
        if not self._usable(metrics):
            return CONTINUE
        result = dict(metrics)
        self._at = float(result[self.time])
        with self._isolated(number, self._at):
            answer = self.tune.on_trial_result(self._controller, trial, result)
        trial.last_result = result
        self._reported(number, result)
        if answer == "STOP":
            self.why, self.ran_out = f"{self.name}: {self._reason(trial)}", self._ran_out(trial)
            self._finish(trial, TERMINATED)
            return STOP
        if answer in ("PAUSE", "NOOP"):
            trial.status = PAUSED
            return PAUSE
        return CONTINUE

    def complete(self, number: int) -> None:
        """Tells Tune's scheduler, once."""
        trial = self._controller.trials[number]
        if not trial.is_finished():
            self._finish(trial, TERMINATED)

    def fail(self, number: int) -> None:
        """Tells Tune's scheduler, once."""
        trial = self._controller.trials[number]
        if trial.is_finished():
            return
        with self._isolated(number, self._at):
            self.tune.on_trial_error(self._controller, trial)
        trial.status = ERROR

    def started(self, number: int) -> None:
        """It runs."""
        self._set(number, RUNNING)

    def paused(self, number: int) -> None:
        """It waits, with a checkpoint."""
        self._set(number, PAUSED)

    def lost(self, number: int) -> None:
        """It waits, and will repeat reports."""
        self._set(number, PENDING)

    def next(self, waiting: Sequence[int], *, more: bool = False) -> int | None:
        """Tune's choice among the waiting trials."""
        open_ones = []
        for number in waiting:
            trial = self._controller.trials[number]
            if trial.is_finished():  # it was to end when the sweep was interrupted
                self._orders.stop.append(number)
                continue
            if trial.status == RUNNING:
                self.lost(number)
            open_ones.append(number)
        if not open_ones:
            return None
        chosen = self._choose(open_ones, more)
        self._orders.stop = list(dict.fromkeys(self._orders.stop))
        return chosen

    def _choose(self, waiting: Sequence[int], more: bool) -> int | None:
        return waiting[0]

    def _reason(self, trial: StandInTrial) -> str:
        return self._explain(float(trial.last_result.get(self.time, self._at)))

    def _ran_out(self, trial: StandInTrial) -> bool:
        return self._at >= self._longest

    def _reported(self, number: int, result: Mapping[str, Any]) -> None:
        """After Tune's scheduler has seen a result."""

    def _encoded(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return dict(params)

    def _finish(self, trial: StandInTrial, status: str) -> None:
        waits = trial.status in (PENDING, PAUSED) or not self._usable(trial.last_result)
        with self._isolated(trial.number, self._at):
            if waits:
                self.tune.on_trial_remove(self._controller, trial)
            else:
                self.tune.on_trial_complete(self._controller, trial, trial.last_result)
        trial.status = status

    def _stop_waiting(self, trial: StandInTrial) -> None:
        """Tune's scheduler ends a trial other than the one that reported."""
        if not trial.is_finished():
            self.why = f"{self.name}: {self._reason(trial)}"
            self._orders.stop.append(trial.number)
            self._finish(trial, TERMINATED)

    def _set(self, number: int, status: str) -> None:
        trial = self._controller.trials[number]
        if not trial.is_finished():
            trial.status = status

    @property
    def _running(self) -> bool:
        return any(trial.status == RUNNING for trial in self._controller.get_trials())

    def _isolated(self, number: int, at: float) -> AbstractContextManager[None]:
        """The same random numbers for the same trial at the same time, also after a resume."""
        return isolated(self._seed, number, at)
