"""Ray Tune's own schedulers (ASHA, HyperBand, median rule, PBT, PB2) without Ray Tune's own loop.

Tune's schedulers act on a controller and on trials. Here the controller is `TuneScheduler` itself, with only
what they call; their actions become answers and orders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule

from rayfish.sweep.schedulers.base import CONTINUE, PAUSE, STOP, WHERE, Scheduler
from rayfish.sweep.searchers.base import arguments, built, check_settings, isolated
from rayfish.sweep.settings import Search

KEPT = 3
_NO_END = 10**12
_FIRST, _MEDIAN_GRACE = 5, 10
_FIXED = (
    *("self", "time_attr", "metric", "mode", "log_config", "require_attrs"),
    *("hyperparam_mutations", "hyperparam_bounds", "custom_explore_fn"),
)


class TuneTrial(Trial):  # type: ignore[misc]
    """A trial of Tune's that has nothing to run."""

    checkpoint = "newest"
    last_result: Any = None

    def __init__(self, number: int, config: dict[str, Any]) -> None:
        super().__init__("trial", config=config, trial_id=str(number), stub=True)
        self.number, self.last_result = number, {}


class TuneScheduler(Scheduler):
    """One of Ray Tune's schedulers, and the controller that it acts on.

    Its random numbers are its own: they are seeded from the sweep's seed, a trial's number and its time.

    :param defaults: settings where `search.scheduler_config` has no others
    :param fixed: settings that are not the user's
    """

    name: str  # how it is called in a reason
    ours: tuple[str, ...] = ()  # settings that Tune's class does not have
    not_offered: tuple[str, ...] = ()  # settings of Tune's class that the user cannot set
    worse = "worse than the others"  # why it ends a trial: `worse than the others at 12 (iteration)`
    limit = "max_t"  # where a trial ends that is not worse
    search_alg = None

    def __init__(
        self,
        kind: Any,
        defaults: Mapping[str, Any],
        search: Search,
        time: str,
        metric: str,
        *,
        seed: int,
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(time, metric)
        known = [*arguments(kind, *_FIXED, *self.not_offered), *self.ours]
        check_settings(search.scheduler_config, known, WHERE, self.name)
        self.settings = {**defaults, **search.scheduler_config}
        given = {key: value for key, value in self.settings.items() if key not in self.ours}
        given |= {"time_attr": time, "metric": metric, "mode": search.mode, **(fixed or {})}
        self.tune = built(kind, given, WHERE, self.name)
        self.trials: dict[int, TuneTrial] = {}
        self._seed = seed
        self._at = 0.0

    # -- what Tune's schedulers call ---------------------------------------------------------------

    def get_trials(self) -> list[TuneTrial]:
        """All trials, oldest first."""
        return list(self.trials.values())

    def get_live_trials(self) -> list[TuneTrial]:
        """Those that have not ended."""
        return [trial for trial in self.trials.values() if not trial.is_finished()]

    def stop_trial(self, trial: TuneTrial) -> None:
        """Ends a trial other than the one that reported."""
        if not trial.is_finished():
            self.why = f"{self.name}: {self._reason(trial)}"
            self._orders.stop.append(trial.number)
            self._finish(trial)

    def pause_trial(self, trial: TuneTrial, should_checkpoint: bool = True) -> None:
        """Before an exploit: the trial will go on from another one's checkpoint."""
        trial.status = Trial.PAUSED

    def _schedule_trial_save(self, trial: TuneTrial, result: Any = None) -> str:
        if trial.status == Trial.RUNNING:  # else its newest checkpoint is used
            self._orders.save.append(trial.number)
        return "saved"

    # -- what the sweep calls ----------------------------------------------------------------------

    def add(self, number: int, params: Mapping[str, Any], *, point: int | None = None) -> None:
        """A trial, pending."""
        self.trials[number] = TuneTrial(number, self._encoded(params))
        with self._isolated(number, 0):
            self.tune.on_trial_add(self, self.trials[number])

    def report(self, number: int, metrics: Mapping[str, Any]) -> str:
        """Tune's answer to a report."""
        trial = self.trials[number]
        if trial.is_finished():  # it was to end when the sweep was interrupted
            return STOP
        trial.status = Trial.RUNNING
        if not self._usable(metrics):
            return CONTINUE
        result = dict(metrics)
        self._at = float(result[self.time])
        with self._isolated(number, self._at):
            answer = self.tune.on_trial_result(self, trial, result)
        trial.last_result = result
        self._reported(number, result)
        if answer == "STOP":
            self.why, self.ran_out = f"{self.name}: {self._reason(trial)}", self._ran_out(trial)
            self._finish(trial)
            return STOP
        if answer in ("PAUSE", "NOOP"):
            trial.status = Trial.PAUSED
            return PAUSE
        return CONTINUE

    def complete(self, number: int) -> None:
        """Reports the end to Tune's scheduler, once."""
        if not self.trials[number].is_finished():
            self._finish(self.trials[number])

    def fail(self, number: int) -> None:
        """Reports the failure to Tune's scheduler, once."""
        trial = self.trials[number]
        if not trial.is_finished():
            with self._isolated(number, self._at):
                self.tune.on_trial_error(self, trial)
            trial.status = Trial.ERROR

    def started(self, number: int) -> None:
        """It runs."""
        self._set(number, Trial.RUNNING)

    def paused(self, number: int) -> None:
        """It waits, with a checkpoint."""
        self._set(number, Trial.PAUSED)

    def lost(self, number: int) -> None:
        """It waits, and will repeat reports."""
        self._set(number, Trial.PENDING)

    def next(self, waiting: Sequence[int], *, more: bool = False) -> int | None:
        """Tune's choice among the waiting trials."""
        live = []
        for number in waiting:
            trial = self.trials[number]
            if trial.is_finished():  # it was to end when the sweep was interrupted
                self._orders.stop.append(number)
                continue
            if trial.status == Trial.RUNNING:
                self.lost(number)
            live.append(number)
        if not live:
            return None
        chosen = self._choose(live, more)
        self._orders.stop = list(dict.fromkeys(self._orders.stop))
        return chosen

    def _choose(self, waiting: Sequence[int], more: bool) -> int | None:
        return waiting[0]

    def _reason(self, trial: TuneTrial) -> str:
        at = f"{self._time_of(trial):g} ({self.time})"
        return f"ran as far as {self.limit}, to {at}" if self._ran_out(trial) else f"{self.worse} at {at}"

    def _ran_out(self, trial: TuneTrial) -> bool:
        return self._time_of(trial) >= self.settings.get("max_t", math.inf)

    def _time_of(self, trial: TuneTrial) -> float:
        return float(trial.last_result.get(self.time, self._at))

    def _reported(self, number: int, result: Mapping[str, Any]) -> None:
        """After Tune's scheduler has seen a result."""

    def _encoded(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return dict(params)

    def _finish(self, trial: TuneTrial) -> None:
        waits = trial.status in (Trial.PENDING, Trial.PAUSED) or not self._usable(trial.last_result)
        with self._isolated(trial.number, self._at):
            if waits:
                self.tune.on_trial_remove(self, trial)
            else:
                self.tune.on_trial_complete(self, trial, trial.last_result)
        trial.status = Trial.TERMINATED

    def _set(self, number: int, status: str) -> None:
        if not self.trials[number].is_finished():
            self.trials[number].status = status

    def _isolated(self, number: int, at: float) -> AbstractContextManager[None]:
        """The same random numbers for the same trial at the same time, also after a resume."""
        return isolated(self._seed, number, at)


class Asha(TuneScheduler):
    """Asynchronous successive halving: at each milestone the best third goes on."""

    name = "ASHA"

    def __init__(self, search: Search, time: str, metric: str, seed: int) -> None:
        max_t = search.scheduler_config.get("max_t", _NO_END)  # without, trials run to their own end
        grace: float = _FIRST
        if isinstance(max_t, int | float) and max_t < _NO_END:
            # A tenth of the longest trial, but five reports where that is no more than a third of it: in its
            # first iterations a policy has not learnt yet, so its initialisation would be compared.
            grace = max(1, max_t // 10, min(_FIRST, max_t // 3))
        defaults = {"max_t": max_t, "reduction_factor": KEPT, "grace_period": grace}
        super().__init__(AsyncHyperBandScheduler, defaults, search, time, metric, seed=seed)
        self.worse = f"not in the best {1 / self.settings['reduction_factor']:.0%}"


class MedianRule(TuneScheduler):
    """Ends what is worse than the median of the other trials; it never pauses one."""

    name, worse = "the median rule", "its best is worse than the median of the others"
    not_offered = ("min_time_slice", "hard_stop")

    def __init__(self, search: Search, time: str, metric: str, seed: int) -> None:
        defaults = {"grace_period": _MEDIAN_GRACE, "min_time_slice": math.inf}
        super().__init__(MedianStoppingRule, defaults, search, time, metric, seed=seed)
