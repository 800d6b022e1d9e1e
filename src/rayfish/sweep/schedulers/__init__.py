"""Schedulers: which trials go on, which end early, which wait, and which take over from another.

    base            what each of them can do       pruner       Optuna's pruners
    tune_scheduler  Ray Tune's, without its loop   hyperband    trials that wait for each other
    population      PBT and PB2

What holds where `search.scheduler_config` is silent, in what `search.time` counts (iterations):
ASHA and HyperBand let a trial run to max_t=100 and keep the best third; ASHA judges nobody before a
tenth of that or five (grace_period), the median rule neither (with three others to compare with). PBT and PB2
compare every 10 (perturbation_interval).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rayfish.sweep.schedulers.base import CONTINUE, PAUSE, STOP, Move, Orders, Scheduler
from rayfish.sweep.searchers import Searcher, options
from rayfish.sweep.settings import POPULATIONS, Search
from rayfish.sweep.space import Space

__all__ = ["CONTINUE", "PAUSE", "STOP", "Move", "Orders", "Scheduler", "open_scheduler"]

MAX_T, KEPT, GRACE, INTERVAL, FIRST = 100, 3, 10, 10, 5
_NO_END = 10**12
_WHERE = "search.scheduler_config"
_OURS = (
    "self",
    "time_attr",
    "metric",
    "mode",
    "log_config",
    "require_attrs",
    "hyperparam_mutations",
    "hyperparam_bounds",
    "custom_explore_fn",
)
_NEVER_PAUSES = ("min_time_slice", "hard_stop")


def open_scheduler(
    search: Search,
    space: Space,
    *,
    time: str,
    metric: str,
    seed: int,
    searcher: Searcher | None = None,
) -> Scheduler:
    """The scheduler of a sweep; BOHB always comes with its HyperBand.

    :param time: the key in a report that says how far a trial is
    :param metric: the key in a report that says how good it is
    :param searcher: the sweep's search method, which BOHB's HyperBand tells of its milestones
    :raises ConfigError: for settings that the scheduler does not take, and parameters that PB2 cannot
    """
    asked = _Asked(search, time, metric, seed)
    if search.method == "bohb":
        return _hyperband(asked, getattr(searcher, "reached", None))
    if search.scheduler == "hyperband":
        return _hyperband(asked, None)
    if search.scheduler == "asha":
        return _asha(asked)
    if search.scheduler == "median":
        return _median(asked)
    if search.scheduler == "pruner":
        return _pruner(asked)
    if search.scheduler in POPULATIONS:
        return _population(asked, space)
    options.check(search.scheduler_config, (), _WHERE, "a sweep without a scheduler")
    return Scheduler(time, metric)


@dataclass(frozen=True)
class _Asked:
    """What is asked for."""

    search: Search
    time: str
    metric: str
    seed: int

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.search.scheduler_config)

    def check(
        self, name: str, kind: type[Any], *, without: tuple[str, ...] = (), ours: tuple[str, ...] = ()
    ) -> None:
        """That one of Tune's classes takes what is written; `ours` are settings that we add."""
        options.check(self.config, [*options.arguments(kind, *_OURS, *without), *ours], _WHERE, name)

    def make(self, name: str, kind: type[Any], given: Mapping[str, Any]) -> Any:
        """One of Tune's schedulers."""
        try:
            return kind(time_attr=self.time, metric=self.metric, mode=self.search.mode, **given)
        except (ValueError, TypeError, AssertionError) as error:
            raise options.refused(_WHERE, name, error) from error


def _asha(asked: _Asked) -> Scheduler:
    from ray.tune.schedulers import AsyncHyperBandScheduler

    from rayfish.sweep.schedulers.tune_scheduler import TuneScheduler

    asked.check("ASHA", AsyncHyperBandScheduler)
    max_t = asked.config.get("max_t", _NO_END)  # without, trials run to their own end
    grace = _grace(max_t) if isinstance(max_t, int | float) and max_t < _NO_END else FIRST
    given = {"max_t": max_t, "reduction_factor": KEPT, "grace_period": grace} | asked.config
    made = asked.make("ASHA", AsyncHyperBandScheduler, given)

    def explain(at: float) -> str:
        if at >= given["max_t"]:
            return f"ran as far as max_t, to {at:g} ({asked.time})"
        return f"not in the best {1 / given['reduction_factor']:.0%} at {at:g} ({asked.time})"

    return TuneScheduler(
        made, asked.time, asked.metric, name="ASHA", seed=asked.seed, explain=explain, longest=given["max_t"]
    )


def _grace(max_t: float) -> float:
    """A tenth of the longest trial, but five reports where that is no more than a third of it.

    In its first iterations a policy has not learnt yet: what would be compared is how it was initialised.
    """
    return max(1, max_t // 10, min(FIRST, max_t // 3))


def _median(asked: _Asked) -> Scheduler:
    from ray.tune.schedulers import MedianStoppingRule

    from rayfish.sweep.schedulers.tune_scheduler import TuneScheduler

    name = "the median rule"
    asked.check(name, MedianStoppingRule, without=_NEVER_PAUSES)
    given = {"grace_period": GRACE, "min_time_slice": float("inf")} | asked.config
    made = asked.make(name, MedianStoppingRule, given)

    def explain(at: float) -> str:
        return f"its best is worse than the median of the others at {at:g} ({asked.time})"

    return TuneScheduler(made, asked.time, asked.metric, name=name, seed=asked.seed, explain=explain)


def _hyperband(asked: _Asked, reached: Any) -> Scheduler:
    from ray.tune.schedulers import HyperBandScheduler

    from rayfish.sweep.schedulers.hyperband import HyperBand, hyperband_class

    asked.check("HyperBand", HyperBandScheduler)
    given = {"max_t": MAX_T, "reduction_factor": KEPT} | asked.config
    made = asked.make("HyperBand", hyperband_class(asked.search.method == "bohb"), given)
    return HyperBand(made, asked.time, asked.metric, name="HyperBand", seed=asked.seed, reached=reached)


def _population(asked: _Asked, space: Space) -> Scheduler:
    from rayfish.sweep.schedulers import population

    pb2 = asked.search.scheduler == "pb2"
    name, kind = ("PB2", _pb2()) if pb2 else ("PBT", _pbt())
    asked.check(name, kind, ours=("mutate",))
    given = {"perturbation_interval": INTERVAL, "log_config": False} | asked.config
    keys = population.mutable(space, given.pop("mutate", None))
    if pb2:
        given["hyperparam_bounds"] = population.bounds(space, keys)
    else:
        given["hyperparam_mutations"] = population.mutations(space, keys)
    given["custom_explore_fn"] = population.within(space, in_logarithms=pb2)
    made = asked.make(name, population.population_class(kind), given)
    return population.Population(
        made, asked.time, asked.metric, space=space, in_logarithms=pb2, name=name, seed=asked.seed
    )


def _pbt() -> type[Any]:
    from ray.tune.schedulers import PopulationBasedTraining

    return PopulationBasedTraining  # type: ignore[no-any-return]


def _pb2() -> type[Any]:
    from ray.tune.schedulers.pb2 import PB2

    return PB2  # type: ignore[no-any-return]


def _pruner(asked: _Asked) -> Scheduler:
    from rayfish.sweep.schedulers.pruner import PrunerScheduler

    of_optuna = asked.search.method in ("auto", "optuna")
    return PrunerScheduler(
        asked.time,
        asked.metric,
        maximise=asked.search.mode == "max",
        config=asked.config,
        method_config=asked.search.method_config if of_optuna else None,
    )
