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

from rayfish.sweep.schedulers.base import CONTINUE, INTERVAL, MAX_T, PAUSE, STOP, WHERE, Move, Scheduler
from rayfish.sweep.searchers.base import Searcher, check_settings
from rayfish.sweep.settings import POPULATIONS, Search
from rayfish.sweep.space import Space

__all__ = ["CONTINUE", "INTERVAL", "MAX_T", "PAUSE", "STOP", "Move", "Scheduler", "open_scheduler"]


def open_scheduler(
    search: Search, space: Space, *, time: str, metric: str, seed: int, searcher: Searcher | None = None
) -> Scheduler:
    """The scheduler of a sweep; BOHB always comes with its HyperBand.

    :param searcher: the sweep's search method; BOHB's is given the milestones that trials reach
    :raises ConfigError: for settings that the scheduler does not take, and parameters that PB2 cannot
    """
    kind = "hyperband" if search.method == "bohb" else search.scheduler
    if kind == "none":
        check_settings(search.scheduler_config, (), WHERE, "a sweep without a scheduler")
        return Scheduler(time, metric)
    if kind == "pruner":
        from rayfish.sweep.schedulers.pruner import PrunerScheduler

        return PrunerScheduler(search, time, metric)
    if kind == "hyperband":
        from rayfish.sweep.schedulers.hyperband import HyperBand

        return HyperBand(search, time, metric, seed, reached=getattr(searcher, "reached", None))
    if kind in POPULATIONS:
        from rayfish.sweep.schedulers.population import Population

        return Population(search, time, metric, seed, space=space)
    from rayfish.sweep.schedulers.tune_scheduler import Asha, MedianRule

    return (Asha if kind == "asha" else MedianRule)(search, time, metric, seed)
