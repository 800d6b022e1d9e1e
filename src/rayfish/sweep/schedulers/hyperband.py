"""HyperBand, also for BOHB: trials wait at each milestone until their bracket can be halved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rayfish.sweep.records import STOPPED
from rayfish.sweep.schedulers.tune_scheduler import PAUSED, PENDING, StandInTrial, TuneScheduler


class HyperBand(TuneScheduler):
    """Tune's HyperBand, with trials that are added one by one.

    Tune halves a bracket as soon as all trials in it have come to its milestone, which with few trials
    at a time would be two or three. Here a bracket waits until it is full, or until nothing else can run.

    :param reached: called with a trial's number, its budget and its score at each milestone (BOHB)
    """

    def __init__(
        self,
        made: Any,
        time: str,
        metric: str,
        *,
        reached: Callable[[int, float, float], None] | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(made, time, metric, **rest)
        self._on_budget = reached
        self._points: dict[int, int] = {}

    def add(self, number: int, params: Mapping[str, Any], *, point: int | None = None) -> None:
        """A trial, in the bracket that is being filled."""
        self._points[number] = number if point is None else point
        super().add(number, params)

    def lost(self, number: int) -> None:
        """It has to come to its milestone again."""
        super().lost(number)
        trial = self._controller.trials[number]
        bracket, _ = self.tune._trial_info[trial]
        if trial in bracket._live_trials:
            bracket._live_trials[trial] = None

    def _replay(self, kind: str, number: int, event: Mapping[str, Any]) -> None:
        """Closes brackets where the events show it: that nothing else could run is not an event."""
        if kind in ("start", "end"):
            trial = self._controller.trials[number]
            bracket, _ = self.tune._trial_info[trial]
            live = trial.status == PAUSED and trial in bracket._live_trials
            if live and not bracket.continue_trial(trial) and event.get("state") in (None, STOPPED):
                self._close()
        super()._replay(kind, number, event)

    def _reported(self, number: int, result: Mapping[str, Any]) -> None:
        budget = result.get("hyperband_info", {}).get("budget")
        if budget is not None and self._on_budget is not None:
            self._on_budget(self._points[number], budget, float(result[self.metric]))

    def _reason(self, trial: StandInTrial) -> str:
        at = float(trial.last_result.get(self.time, self._at))
        bracket, _ = self.tune._trial_info[trial]
        if self._ran_out(trial):
            return f"ran as far as its bracket goes, to {at:g} ({self.time})"
        return f"not among the best {bracket._n} of its bracket at {at:g} ({self.time})"

    def _ran_out(self, trial: StandInTrial) -> bool:
        bracket, _ = self.tune._trial_info[trial]
        return float(trial.last_result.get(self.time, self._at)) >= bracket._cumul_r

    def _choose(self, waiting: Sequence[int], more: bool) -> int | None:
        chosen = self._ready(waiting)
        if chosen is not None or self._running or more:
            return chosen
        self._close()
        chosen = self._ready(waiting)
        if chosen is not None:
            return chosen
        left = [n for n in waiting if not self._controller.trials[n].is_finished()]
        return left[0] if left else None  # never wait forever, whatever the brackets say

    def _close(self) -> None:
        with self._isolated(0, self._at):
            self.tune.close_brackets(self._controller)

    def _ready(self, waiting: Sequence[int]) -> int | None:
        """The first that may run, brackets with the least done first."""
        for trial in self.tune.ready():
            if trial.number in waiting:
                return int(trial.number)
        return None


if TYPE_CHECKING:
    _Tunes: Any  # one of its HyperBands, which are imported when they are needed
else:
    _Tunes = object


class _Patience(_Tunes):  # type: ignore[misc]
    """The difference to Tune's HyperBand: brackets wait, see `HyperBand`."""

    _busy = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._closed: set[int] = set()

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_add(tune_controller, trial)
        bracket, _ = self._trial_info[trial]
        if len(bracket._all_trials) >= bracket._n0:  # Tune counts only those that have not ended
            self._closed.add(id(bracket))
            self._state["bracket"] = None  # a failed trial is not replaced

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        bracket, _ = self._trial_info[trial]
        bracket.update_trial_stats(trial, result)
        if bracket.continue_trial(trial):
            return "CONTINUE"
        result["hyperband_info"] = {"budget": bracket._cumul_r}
        if bracket._halves == 0 and bracket.stop_last_trials:  # there is no other to compare with
            return "STOP"
        if id(bracket) not in self._closed:
            return "PAUSE"
        return str(self._process_bracket(tune_controller, bracket))

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        bracket, _ = self._trial_info[trial]
        bracket.cleanup_trial(trial)
        bracket.trials_to_unpause.discard(trial)
        if id(bracket) in self._closed and not self._busy:
            self._advance(tune_controller, bracket)

    def close_brackets(self, tune_controller: Any) -> None:
        """Nothing runs and nothing is added: brackets go on with the trials they have."""
        for bracket in [b for band in self._hyperbands for b in band if b is not None]:
            if any(trial.status == PAUSED for trial in bracket.current_trials()):
                self._closed.add(id(bracket))
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
                    again = trial.status == PAUSED and bracket.continue_trial(trial)
                    if again or trial.status == PENDING:
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
            if any(t.status == PENDING for t in bracket.current_trials()):
                return
            self._process_bracket(tune_controller, bracket)
            if bracket._halves == 0:
                return


def hyperband_class(largest_first: bool) -> type[Any]:
    """Tune's HyperBand (BOHB's, where the largest bracket comes first), with brackets that wait."""
    from ray.tune.schedulers.hb_bohb import HyperBandForBOHB
    from ray.tune.schedulers.hyperband import HyperBandScheduler

    base = HyperBandForBOHB if largest_first else HyperBandScheduler
    return type("PatientHyperBand", (_Patience, base), {})
