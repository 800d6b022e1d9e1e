"""Schedulers: which trials go on, which end early, which wait, and which take over from another.

    base            the interface                  pruner       Optuna's pruners
    tune_scheduler  Ray Tune's, without its loop   hyperband    trials that wait for each other
    population      PBT and PB2

Defaults of `search.scheduler_config`, in the unit of `search.time` (iterations): ASHA and HyperBand let a
trial run to max_t=100 and keep the best third. ASHA judges no trial before a tenth of that or five
(grace_period), the median rule none before ten (with three others to compare with). PBT and PB2
compare every 10 (perturbation_interval).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rayfish.sweep.schedulers.base import CONTINUE, PAUSE, STOP, Move, Orders, Scheduler
from rayfish.sweep.searchers.base import Searcher, arguments, built, check_settings
from rayfish.sweep.settings import POPULATIONS, Search
from rayfish.sweep.space import Space

__all__ = ["CONTINUE", "PAUSE", "STOP", "Move", "Orders", "Scheduler", "open_scheduler"]

MAX_T, KEPT, GRACE, INTERVAL, FIRST = 100, 3, 10, 10, 5
_NO_END = 10**12
_WHERE = "search.scheduler_config"
_OURS = (
    *("self", "time_attr", "metric", "mode", "log_config", "require_attrs"),
    *("hyperparam_mutations", "hyperparam_bounds", "custom_explore_fn"),
)
_NEVER_PAUSES = ("min_time_slice", "hard_stop")


def open_scheduler(
    search: Search, space: Space, *, time: str, metric: str, seed: int, searcher: Searcher | None = None
) -> Scheduler:
    """The scheduler of a sweep; BOHB always comes with its HyperBand.

    :param time: the key in a report that says how far a trial is
    :param metric: the key in a report that says how good it is
    :param searcher: the sweep's search method; BOHB's is given the milestones that trials reach
    :raises ConfigError: for settings that the scheduler does not take, and parameters that PB2 cannot
    """
    tune = _Tune(search, time, metric, seed)
    if search.method == "bohb":
        return _hyperband(tune, getattr(searcher, "reached", None))
    if search.scheduler == "hyperband":
        return _hyperband(tune, None)
    if search.scheduler == "asha":
        return _asha(tune)
    if search.scheduler == "median":
        return _median(tune)
    if search.scheduler in POPULATIONS:
        return _population(tune, space)
    if search.scheduler == "pruner":
        from rayfish.sweep.schedulers.pruner import PrunerScheduler

        return PrunerScheduler(time, metric, search)
    check_settings(search.scheduler_config, (), _WHERE, "a sweep without a scheduler")
    return Scheduler(time, metric)


@dataclass(frozen=True)
class _Tune:
    """Makes one of Tune's schedulers."""

    search: Search
    time: str
    metric: str
    seed: int

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.search.scheduler_config)

    def check(self, name: str, kind: type[Any], *, without: tuple[str, ...] = (), ours: str = "") -> None:
        """Refuses settings that Tune's class does not take; `ours` is one that we add."""
        known = [*arguments(kind, *_OURS, *without), *([ours] if ours else [])]
        check_settings(self.config, known, _WHERE, name)

    def make(self, name: str, kind: type[Any], given: Mapping[str, Any]) -> Any:
        common = {"time_attr": self.time, "metric": self.metric, "mode": self.search.mode}
        return built(kind, {**common, **given}, _WHERE, name)


def _asha(tune: _Tune) -> Scheduler:
    from ray.tune.schedulers import AsyncHyperBandScheduler

    from rayfish.sweep.schedulers.tune_scheduler import TuneScheduler

    tune.check("ASHA", AsyncHyperBandScheduler)
    max_t = tune.config.get("max_t", _NO_END)  # without, trials run to their own end
    grace: float = FIRST
    if isinstance(max_t, int | float) and max_t < _NO_END:
        # A tenth of the longest trial, but five reports where that is no more than a third of it: in its
        # first iterations a policy has not learnt yet, so its initialisation would be compared.
        grace = max(1, max_t // 10, min(FIRST, max_t // 3))
    given = {"max_t": max_t, "reduction_factor": KEPT, "grace_period": grace} | tune.config
    made = tune.make("ASHA", AsyncHyperBandScheduler, given)

    def explain(at: float) -> str:
        if at >= given["max_t"]:
            return f"ran as far as max_t, to {at:g} ({tune.time})"
        return f"not in the best {1 / given['reduction_factor']:.0%} at {at:g} ({tune.time})"

    longest = given["max_t"]
    return TuneScheduler(
        made, tune.time, tune.metric, name="ASHA", seed=tune.seed, explain=explain, longest=longest
    )


def _median(tune: _Tune) -> Scheduler:
    from ray.tune.schedulers import MedianStoppingRule

    from rayfish.sweep.schedulers.tune_scheduler import TuneScheduler

    name = "the median rule"
    tune.check(name, MedianStoppingRule, without=_NEVER_PAUSES)
    given = {"grace_period": GRACE, "min_time_slice": float("inf")} | tune.config
    made = tune.make(name, MedianStoppingRule, given)

    def explain(at: float) -> str:
        return f"its best is worse than the median of the others at {at:g} ({tune.time})"

    return TuneScheduler(made, tune.time, tune.metric, name=name, seed=tune.seed, explain=explain)


def _hyperband(tune: _Tune, reached: Any) -> Scheduler:
    from ray.tune.schedulers import HyperBandScheduler

    from rayfish.sweep.schedulers.hyperband import HyperBand, hyperband_class

    tune.check("HyperBand", HyperBandScheduler)
    given = {"max_t": MAX_T, "reduction_factor": KEPT} | tune.config
    made = tune.make("HyperBand", hyperband_class(tune.search.method == "bohb"), given)
    return HyperBand(made, tune.time, tune.metric, name="HyperBand", seed=tune.seed, reached=reached)


def _population(tune: _Tune, space: Space) -> Scheduler:
    from ray.tune.schedulers import PopulationBasedTraining
    from ray.tune.schedulers.pb2 import PB2

    from rayfish.sweep.schedulers import population

    pb2 = tune.search.scheduler == "pb2"
    name, kind = ("PB2", PB2) if pb2 else ("PBT", PopulationBasedTraining)
    tune.check(name, kind, ours="mutate")
    given = {"perturbation_interval": INTERVAL, "log_config": False} | tune.config
    keys = population.mutable(space, given.pop("mutate", None))
    if pb2:
        given["hyperparam_bounds"] = population.bounds(space, keys)
    else:
        given["hyperparam_mutations"] = population.mutations(space, keys)
    given["custom_explore_fn"] = population.within(space, in_logarithms=pb2)
    made = tune.make(name, population.population_class(kind), given)
    return population.Population(
        made, tune.time, tune.metric, space=space, in_logarithms=pb2, name=name, seed=tune.seed
    )
