"""Population based training (PBT, PB2): the worst trials go on from the best, with perturbed parameters."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from ray.tune.schedulers import PopulationBasedTraining, pb2

from rayfish.errors import ConfigError, Problem, suggest
from rayfish.sweep.schedulers.base import INTERVAL, WHERE, Move
from rayfish.sweep.schedulers.tune_scheduler import Trial, TuneScheduler, TuneTrial
from rayfish.sweep.settings import Search
from rayfish.sweep.space import Parameter, Space


class Population(TuneScheduler):
    """Tune's PBT or PB2.

    Every trial belongs to the population, so all of them should be added before the first one runs; where
    fewer can run at a time, they take turns. PB2 sees the logarithms of parameters searched by magnitude.

    """

    eager = True
    ours = ("mutate",)

    def __init__(self, search: Search, time: str, metric: str, seed: int, *, space: Space) -> None:
        self._space = space
        self._numeric = search.scheduler == "pb2"
        self.name = "PB2" if self._numeric else "PBT"
        kind = ReplayablePB2 if self._numeric else ReplayablePBT
        mutable = _mutable(space, search.scheduler_config.get("mutate"))
        fixed = {"custom_explore_fn": self._explore, "log_config": False}
        if self._numeric:
            fixed["hyperparam_bounds"] = _bounds(mutable)
        else:
            fixed["hyperparam_mutations"] = _mutations(mutable)
        defaults = {"perturbation_interval": INTERVAL}
        super().__init__(kind, defaults, search, time, metric, seed=seed, fixed=fixed)
        self.tune.exploited = self._exploited
        self.tune.parameters = {parameter.key: parameter for parameter in space}

    def replay(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Restores the state; which trial was copied is in the events, and is not decided again."""
        self.tune.replaying = True
        try:
            super().replay(events)
        finally:
            self.tune.replaying = False

    def _replay(self, kind: str, number: int, event: Mapping[str, Any]) -> None:
        if kind != "move":
            super()._replay(kind, number, event)
            return
        trial, source = self.trials[number], self.trials[event["source"]]
        config = source.config | self._encoded(event["params"])
        with self._isolated(number, self._at):
            self.tune.moved(trial, source, config)
        trial.config, trial.status = config, Trial.PAUSED

    def complete(self, number: int) -> None:
        """A synchronous round goes on without it."""
        super().complete(number)
        self._compare_if_all_arrived()

    def fail(self, number: int) -> None:
        """A synchronous round goes on without it."""
        super().fail(number)
        self._compare_if_all_arrived()

    def _compare_if_all_arrived(self) -> None:
        """Compares a synchronous round whose last missing trial has ended; Tune waits for a report."""
        states, live = self.tune._trial_state, self.get_live_trials()
        if not self.tune._synch or any(map(self._is_behind, live)):
            return
        for last in live[-1:]:
            result = states[last].last_result
            with self._isolated(last.number, float(result[self.time])):
                self.tune.on_trial_result(self, last, result)

    def _is_behind(self, trial: TuneTrial) -> bool:
        """Whether the others of a synchronous round wait for it."""
        return bool(self.tune._trial_state[trial].last_train_time < self.tune._next_perturbation_sync)

    def stayed(self, number: int, params: Mapping[str, Any]) -> None:
        """It has the parameters that it had."""
        trial = self.trials[number]
        trial.config = trial.config | self._encoded(params)

    def _explore(self, config: dict[str, Any]) -> dict[str, Any]:
        """Brings what was changed back to the parameter's steps and bounds."""
        for p in self._space:
            if p.key in config:
                value = config[p.key]
                config[p.key] = _possible(p, value) if self._numeric else p.rounded(value)
        return config

    def _exploited(self, trial: TuneTrial, source: TuneTrial) -> None:
        values = self._decoded(trial.config)
        chosen = {p.key: values[p.key] for p in self._space if p.kind != "sample_from" and p.key in values}
        rng = np.random.default_rng(random.getrandbits(64))
        params = self._space.completed(chosen, rng)
        trial.config = trial.config | self._encoded(params)  # as in a resumed sweep
        self._orders.moves.append(Move(trial.number, source.number, params))

    def _isolated(self, number: int, at: float) -> AbstractContextManager[None]:
        """In a synchronous round, the trial that happens to come last must not decide what is drawn."""
        return super()._isolated(0 if self.tune._synch and at else number, at)

    def _choose(self, waiting: Sequence[int], more: bool) -> int | None:
        if more:
            return None
        trials = [self.trials[number] for number in waiting]
        turns = [trial for trial in trials if not self.tune._synch or self._is_behind(trial)]
        states = self.tune._trial_state
        chosen = min(turns, key=lambda trial: states[trial].last_train_time, default=None)
        return chosen.number if chosen else None

    def _encoded(self, params: Mapping[str, Any]) -> dict[str, Any]:
        known = self.tune.parameters if self._numeric else {}
        return {k: to_number(known[k], v) if k in known else v for k, v in params.items()}

    def _decoded(self, config: Mapping[str, Any]) -> dict[str, Any]:
        known = self.tune.parameters if self._numeric else {}
        return {k: from_number(known[k], v) if k in known else v for k, v in config.items()}


class ReplayablePBT(PopulationBasedTraining):  # type: ignore[misc]
    """Tune's PBT, which reports which trial it copied, and decides nothing while events are replayed."""

    replaying = False
    exploited: Any = None
    parameters: Mapping[str, Parameter]
    _next_perturbation_sync: float

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> Any:
        """The next comparison lies ahead of every trial."""
        before = self._next_perturbation_sync
        answer = super().on_trial_result(tune_controller, trial, result)
        if self._next_perturbation_sync != before:
            # Tune may set a step that trials have already reached: then none of them would be started.
            reached = (self._trial_state[t].last_train_time for t in tune_controller.get_live_trials())
            rounds = (max(reached, default=before) - before) // self._perturbation_interval + 1
            self._next_perturbation_sync = before + rounds * self._perturbation_interval
        return answer

    def _exploit(self, tune_controller: Any, trial: Any, trial_to_clone: Any) -> None:
        super()._exploit(tune_controller, trial, trial_to_clone)
        self.exploited(trial, trial_to_clone)

    def _checkpoint_or_exploit(
        self, trial: Any, tune_controller: Any, upper_quantile: list[Any], lower_quantile: list[Any]
    ) -> None:
        if self.replaying:
            self._trial_state[trial].last_checkpoint = "saved" if trial in upper_quantile else None
            return
        super()._checkpoint_or_exploit(trial, tune_controller, upper_quantile, lower_quantile)

    def moved(self, trial: Any, source: Any, config: dict[str, Any]) -> None:
        """What `_exploit` would have recorded."""
        before, after = self._trial_state[trial], self._trial_state[source]
        before.last_perturbation_time = after.last_perturbation_time
        before.last_train_time = after.last_train_time


class ReplayablePB2(ReplayablePBT, pb2.PB2):  # type: ignore[misc]
    """Tune's PB2, replayable in the same way; it only sees values that the parameters can have."""

    def _save_trial_state(self, state: Any, time: Any, result: dict[str, Any], trial: Any) -> Any:
        if result is not state.last_result:  # else it would learn from one report twice
            super()._save_trial_state(state, time, result, trial)

    def _get_new_config(self, trial: Any, trial_to_clone: Any) -> Any:
        if self.replaying:
            return super()._get_new_config(trial, trial_to_clone)
        choose, keys = pb2._select_config, list(self._hyperparam_bounds_flat)

        def possible(*args: Any, **kwargs: Any) -> list[Any]:
            # else PB2 would record a value that no trial reports
            chosen = choose(*args, **kwargs)
            return [_possible(self.parameters[key], x) for key, x in zip(keys, chosen, strict=True)]

        with _choosing(possible):
            return super()._get_new_config(trial, trial_to_clone)

    def moved(self, trial: Any, source: Any, config: dict[str, Any]) -> None:
        """What `_exploit` would have recorded, with the parameters it chose."""
        chosen = [config[key] for key in self._hyperparam_bounds_flat]
        with _choosing(lambda *_, **__: chosen):
            self._get_new_config(trial, source)
        super().moved(trial, source, config)


def _mutable(space: Space, named: Any) -> list[Parameter]:
    """The parameters that may change during training: those named in `mutate`, or all of them.

    :raises ConfigError: for names that are no parameters, and where nothing may change
    """
    names = [named] if isinstance(named, str) else list(named or space.keys)
    problems = [
        Problem(f"{WHERE}.mutate", f"there is no parameter {name!r}", suggest(name, space.keys))
        for name in names
        if name not in space.keys
    ]
    found = [p for p in space if p.key in names and p.kind != "sample_from"]
    if not problems and not found:
        what = "a population needs at least one parameter that may change on the way"
        problems.append(Problem("tunables", what, "add one: training.lr=loguniform(1e-5,1e-2)"))
    if problems:
        raise ConfigError(problems)
    return found


def _mutations(mutable: Sequence[Parameter]) -> dict[str, Any]:
    """For PBT: a list for what is a list, else a way to draw a new value."""

    def draw(parameter: Parameter) -> Any:
        return lambda: parameter.sample(np.random.default_rng(random.getrandbits(64)), {})

    return {p.key: list(p.values) if p.is_list else draw(p) for p in mutable}


def _bounds(mutable: Sequence[Parameter]) -> dict[str, list[float]]:
    """For PB2: the least and the largest number of each parameter.

    :raises ConfigError: for parameters that are no numbers between two bounds
    """
    hint = f"name the others: {WHERE}.mutate=[training.lr]"
    problems = [
        Problem(p.key, f"pb2 changes numbers only, and this is a {p.kind}", hint)
        for p in mutable
        if p.is_list
    ]
    if problems:
        raise ConfigError(problems)
    return {p.key: [to_number(p, end) for end in p.bounds] for p in mutable}


def to_number(parameter: Parameter, value: Any) -> Any:
    """A value as PB2 sees it: its logarithm if it is searched by magnitude; a list's value as it is.

    Rounded so that the conversion back is exact: PB2 compares numbers for equality.
    """
    if parameter.is_list or parameter.kind == "sample_from":
        return value
    return round(math.log(value), 12) if parameter.is_log else float(value)


def from_number(parameter: Parameter, number: Any) -> Any:
    """The value for a number of PB2's."""
    if parameter.is_list or parameter.kind == "sample_from":
        return number
    value = float(f"{math.exp(number):.9g}") if parameter.is_log else float(number)
    return parameter.rounded(round(value) if parameter.is_integer else value)


def _possible(parameter: Parameter, number: Any) -> Any:
    """The nearest number that is a value of the parameter."""
    return to_number(parameter, from_number(parameter, number))


@contextmanager
def _choosing(choose: Callable[..., Any]) -> Iterator[None]:
    """Replaces how PB2 chooses new parameters, e.g. by those it chose before an interruption."""
    before = pb2._select_config
    pb2._select_config = choose
    try:
        yield
    finally:
        pb2._select_config = before
