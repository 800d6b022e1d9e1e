"""Search methods: who proposes the next point, knowing how the ones before it did.

plain          grid and random       optuna_search   Optuna, the default
tune_search    HyperOpt, BayesOpt, Nevergrad, Ax and BOHB through Ray Tune's wrappers
codec          a parameter as a method sees it       options   settings checked by name
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rayfish.errors import ConfigError, Problem, did_you_mean
from rayfish.sweep.searchers import options
from rayfish.sweep.searchers.base import Known, Searcher
from rayfish.sweep.searchers.codec import CATEGORY, axes
from rayfish.sweep.searchers.plain import GridSearcher, RandomSearcher
from rayfish.sweep.settings import POPULATIONS, Search
from rayfish.sweep.space import Space

__all__ = ["Known", "Searcher", "method_of", "open_searcher"]

_HEBO = (
    "HEBO does not run here: its newest release (0.3.6) needs NumPy below 1.25, and the one before that "
    "(0.3.2) imports pymoo.factory, which pymoo has dropped"
)


def method_of(search: Search, space: Space) -> str:
    """The method that `auto` stands for: a grid goes through its points (what else varies is
    drawn for each), a population draws its own."""
    if search.method != "auto":
        return search.method
    if any(parameter.kind == "grid" for parameter in space):
        return "grid"
    return "random" if search.scheduler in POPULATIONS else "optuna"


def open_searcher(
    search: Search, space: Space, *, start: Sequence[Mapping[str, Any]] = (), seed: int
) -> Searcher:
    """The search method of a sweep.

    :param start: points to try first, whole ones or in part, before any of the method's own
    :param seed: the same seed and the same scores give the same points
    :raises ConfigError: for parameters, settings or starting points that the method cannot take
    :raises MissingExtra: where the method's package is not installed
    """
    _check_start(start, space)
    method = method_of(search, space)
    if method == "hebo":
        hint = "set search.method to optuna with search.method_config.sampler=gp, or to ax"
        raise ConfigError([Problem("search.method", _HEBO, hint)])
    if method in ("grid", "random"):
        options.check(search.method_config, (), "search.method_config", f"the method {method}")
    if method == "grid":
        return GridSearcher(space, start, samples=search.num_samples or 1, seed=seed)
    if method == "random":
        return RandomSearcher(space, start, seed=seed)
    maximise, config = search.mode == "max", search.method_config
    if method == "optuna":
        from rayfish.sweep.searchers.optuna_search import OptunaSearcher

        return OptunaSearcher(space, start, maximise=maximise, config=config, seed=seed)
    from rayfish.sweep.searchers.tune_search import METHODS

    samples = search.num_samples
    return METHODS[method](space, start, maximise=maximise, config=config, samples=samples, seed=seed)


def _check_start(start: Sequence[Mapping[str, Any]], space: Space) -> None:
    """That starting points are points of the space: a method cannot learn from any other."""
    problems = []
    known = {axis.parameter.key: axis for axis in axes(space)}
    for key, value in (pair for point in start for pair in point.items()):
        axis = known.get(key)
        if key not in space.keys:
            close = did_you_mean(key, space.keys)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(space.keys)}"
            problems.append(Problem("search.start_from", f"{key} is not in the search space", hint))
        elif axis is not None and not axis.holds(value):
            wanted = f"one of {axis.parameter.values}" if axis.form == CATEGORY else "a number"
            what, hint = f"{key}={value!r} is not {wanted}", "change the point, or the search space"
            problems.append(Problem("search.start_from", what, hint))
        elif axis is not None and axis.form != CATEGORY and axis.parameter.kind != "normal":
            low, high = axis.parameter.bounds
            if not low <= value <= high:
                what = f"{key}={value!r} is outside {low:g} to {high:g}"
                problems.append(Problem("search.start_from", what, "widen the search space"))
    if problems:
        raise ConfigError(problems)
