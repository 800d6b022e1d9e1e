"""Optuna's pruners, which compare a trial with the others at the same step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rayfish.sweep.schedulers.base import CONTINUE, STOP, WHERE, Scheduler
from rayfish.sweep.searchers.optuna_search import make_pruner, make_study, pruner_in, quiet
from rayfish.sweep.settings import Search

if TYPE_CHECKING:
    import optuna


class PrunerScheduler(Scheduler):
    """A pruner over a study of its own, in which every trial (not every point) is one.

    Its settings are in `search.scheduler_config`, or in `search.method_config` of the method optuna.
    """

    def __init__(self, search: Search, time: str, metric: str) -> None:
        super().__init__(time, metric)
        with quiet():
            if search.scheduler_config:
                pruner = make_pruner(search.scheduler_config, WHERE)
            else:
                pruner = pruner_in(search.method_config if search.method in ("auto", "optuna") else {})
            self._study = make_study(search.mode, pruner)
        self._name = type(pruner).__name__
        self._open: dict[int, optuna.Trial] = {}
        self._value: dict[int, float] = {}

    def add(self, number: int, params: Mapping[str, Any], *, point: int | None = None) -> None:
        """A trial of the study."""
        with quiet():
            self._open[number] = self._study.ask()

    def report(self, number: int, metrics: Mapping[str, Any]) -> str:
        """STOP where the pruner says so."""
        from optuna.trial import TrialState

        trial = self._open.get(number)
        if trial is None:  # already pruned: the answer was lost in an interruption
            return STOP
        if not self._usable(metrics):
            return CONTINUE
        step, value = metrics[self.time], float(metrics[self.metric])
        with quiet():
            self._value[number] = value
            trial.report(value, int(step))
            if not trial.should_prune():
                return CONTINUE
            self._study.tell(self._open.pop(number), state=TrialState.PRUNED)
        self.why = f"Optuna's {self._name}: {self.metric}={value:g} at {self.time}={step:g}"
        return STOP

    def complete(self, number: int) -> None:
        """The last report is the trial's score; without one it does not count."""
        from optuna.trial import TrialState

        trial = self._open.pop(number, None)
        if trial is None:
            return
        with quiet():
            if number in self._value:
                self._study.tell(trial, self._value[number])
            else:
                self._study.tell(trial, state=TrialState.FAIL)

    def fail(self, number: int) -> None:
        """The trial does not count."""
        self._value.pop(number, None)
        self.complete(number)
