"""HyperBand, also for BOHB: trials wait at each milestone until their bracket can be halved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ray.tune.schedulers.hb_bohb import HyperBandForBOHB
from ray.tune.schedulers.hyperband import HyperBandScheduler

from rayfish.sweep.records import STOPPED
from rayfish.sweep.schedulers.base import MAX_T
from rayfish.sweep.schedulers.tune_scheduler import KEPT, Trial, TuneScheduler, TuneTrial
from rayfish.sweep.settings import Search


class HyperBand(TuneScheduler):
    """Tune's HyperBand, with trials that are added one by one.

    Tune halves a bracket as soon as all trials in it have come to its milestone, which with few trials
    at a time would be two or three. Here a bracket waits until it is full, or until nothing else can run.

    :param reached: called with a trial's number, its budget and its score at each milestone (BOHB)
    """

    name, limit = "HyperBand", "its bracket goes"

    def __init__(
        self,
        search: Search,
        time: str,
        metric: str,
        seed: int,
        *,
        reached: Callable[[int, float, float], None] | None = None,
    ) -> None:
        kind = PatientBohb if search.method == "bohb" else PatientHyperBand
        super().__init__(kind, {"max_t": MAX_T, "reduction_factor": KEPT}, search, time, metric, seed=seed)
        self._on_budget = reached
        self._points: dict[int, int] = {}

    def add(self, number: int, params: Mapping[str, Any], *, point: int | None = None) -> None:
        """A trial, in the bracket that is being filled."""
        self._points[number] = number if point is None else point
        super().add(number, params)

    def lost(self, number: int) -> None:
        """It has to come to its milestone again."""
        super().lost(number)
        trial = self.trials[number]
        if trial in self._bracket(trial)._live_trials:
            self._bracket(trial)._live_trials[trial] = None

    def _replay(self, kind: str, number: int, event: Mapping[str, Any]) -> None:
        """Closes brackets where the events show it: that nothing else could run is not an event."""
        if kind in ("start", "end"):
            trial = self.trials[number]
            bracket = self._bracket(trial)
            live = trial.status == Trial.PAUSED and trial in bracket._live_trials
            if live and not bracket.continue_trial(trial) and event.get("state") in (None, STOPPED):
                self._close()
        super()._replay(kind, number, event)

    def _reported(self, number: int, result: Mapping[str, Any]) -> None:
        budget = result.get("hyperband_info", {}).get("budget")
        if budget is not None and self._on_budget is not None:
            self._on_budget(self._points[number], budget, float(result[self.metric]))

    def _reason(self, trial: TuneTrial) -> str:
        self.worse = f"not among the best {self._bracket(trial)._n} of its bracket"
        return super()._reason(trial)

    def _ran_out(self, trial: TuneTrial) -> bool:
        return self._time_of(trial) >= float(self._bracket(trial)._cumul_r)

    def _bracket(self, trial: TuneTrial) -> Any:
        return self.tune._trial_info[trial][0]

    def _choose(self, waiting: Sequence[int], more: bool) -> int | None:
        chosen = self._ready(waiting)
        if chosen is not None or more or any(t.status == Trial.RUNNING for t in self.get_trials()):
            return chosen
        self._close()
        left = (n for n in waiting if not self.trials[n].is_finished())
        chosen = self._ready(waiting)
        return next(left, None) if chosen is None else chosen  # never wait forever, whatever the brackets say

    def _close(self) -> None:
        with self._isolated(0, self._at):
            self.tune.close_brackets(self)

    def _ready(self, waiting: Sequence[int]) -> int | None:
        """The first that may run, brackets with the least done first."""
        return next((trial.number for trial in self.tune.ready() if trial.number in waiting), None)


class PatientHyperBand(HyperBandScheduler):  # type: ignore[misc]
    """Tune's HyperBand with brackets that wait, see `HyperBand`."""

    _busy = False

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """A bracket is closed as soon as it is full."""
        super().on_trial_add(tune_controller, trial)
        bracket, _ = self._trial_info[trial]
        if len(bracket._all_trials) >= bracket._n0:  # Tune counts only those that have not ended
            bracket.closed = True
            self._state["bracket"] = None  # a failed trial is not replaced

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """At its milestone a trial waits until its bracket is closed."""
        bracket, _ = self._trial_info[trial]
        bracket.update_trial_stats(trial, result)
        if bracket.continue_trial(trial):
            return "CONTINUE"
        result["hyperband_info"] = {"budget": bracket._cumul_r}
        if bracket._halves == 0 and bracket.stop_last_trials:  # there is no other to compare with
            return "STOP"
        if not getattr(bracket, "closed", False):
            return "PAUSE"
        return str(self._process_bracket(tune_controller, bracket))

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """The others of its bracket may have waited for this trial."""
        bracket, _ = self._trial_info[trial]
        bracket.cleanup_trial(trial)
        bracket.trials_to_unpause.discard(trial)
        if getattr(bracket, "closed", False) and not self._busy:
            self._advance(tune_controller, bracket)

    def close_brackets(self, tune_controller: Any) -> None:
        """Nothing runs and nothing is added: brackets go on with the trials they have."""
        for bracket in [b for band in self._hyperbands for b in band if b is not None]:
            if any(trial.status == Trial.PAUSED for trial in bracket.current_trials()):
                bracket.closed = True
                if self._state["bracket"] is bracket:
                    self._state["bracket"] = None  # trials that come after all begin a new one
                self._advance(tune_controller, bracket)

    def ready(self) -> Iterator[Any]:
        """Trials that may run, in Tune's order."""
        for band in self._hyperbands:
            brackets = [b for b in band if b is not None]
            for bracket in sorted(brackets, key=lambda b: b.completion_percentage()):
                for trial in bracket.current_trials():
                    # paused before its milestone: it may go on, or was interrupted on the way
                    again = trial.status == Trial.PAUSED and bracket.continue_trial(trial)
                    if again or trial.status == Trial.PENDING:
                        yield trial

    def _unpause_trial(self, tune_controller: Any, trial: Any) -> None:
        """Nothing else keeps track of paused trials."""

    def _process_bracket(self, tune_controller: Any, bracket: Any) -> str:
        if self._busy:  # a trial that it ends calls this again through on_trial_remove
            return "PAUSE"
        self._busy = True
        try:
            if bracket.cur_iter_done() and bracket.current_trials():
                bracket._n = min(bracket._n, len(bracket.current_trials()))  # of those that came
            return str(super()._process_bracket(tune_controller, bracket))
        finally:
            self._busy = False

    def _advance(self, tune_controller: Any, bracket: Any) -> None:
        """Halves until a trial can go on: reports may be further apart than milestones."""
        while bracket.cur_iter_done() and bracket.current_trials() and not bracket.trials_to_unpause:
            if any(t.status == Trial.PENDING for t in bracket.current_trials()):
                return
            self._process_bracket(tune_controller, bracket)
            if bracket._halves == 0:
                return


class PatientBohb(PatientHyperBand, HyperBandForBOHB):  # type: ignore[misc]
    """The same with BOHB's order, where the largest bracket comes first."""
