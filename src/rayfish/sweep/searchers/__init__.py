"""Search methods: each proposes the next point from the scores of the points before it.

Grid and random search are here.

base           the interface, and what the methods share
optuna_search  Optuna, the default
library_search HyperOpt, BayesOpt, Nevergrad, Ax and BOHB
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rayfish.errors import ConfigError, Problem, suggest
from rayfish.sweep.searchers.base import (
    CATEGORY,
    METHOD_CONFIG,
    Known,
    Searcher,
    axes,
    check_settings,
    generator,
)
from rayfish.sweep.settings import POPULATIONS, Search
from rayfish.sweep.space import Space

__all__ = ["Known", "Searcher", "method_of", "open_searcher"]

_HEBO = (
    "HEBO does not run here: its newest release (0.3.6) needs NumPy below 1.25, and the one before that "
    "(0.3.2) imports pymoo.factory, which pymoo has dropped"
)


def method_of(search: Search, space: Space) -> str:
    """The method that `auto` stands for: grid where something is a grid (what else varies is drawn for
    each of its points), random for a population, which moves by itself, else Optuna."""
    if search.method != "auto":
        return search.method
    if any(parameter.kind == "grid" for parameter in space):
        return "grid"
    return "random" if search.scheduler in POPULATIONS else "optuna"


def open_searcher(
    search: Search, space: Space, *, start: Sequence[Mapping[str, Any]] = (), seed: int
) -> Searcher:
    """The search method of a sweep.

    :param start: points to try first, whole or partial, before any of the method's own
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
        check_settings(search.method_config, (), METHOD_CONFIG, f"the method {method}")
        return (GridSearcher if method == "grid" else RandomSearcher)(search, space, start, seed)
    if method == "optuna":
        from rayfish.sweep.searchers.optuna_search import OptunaSearcher

        return OptunaSearcher(search, space, start, seed)
    from rayfish.sweep.searchers.library_search import METHODS

    return METHODS[method](search, space, start, seed)


class RandomSearcher(Searcher):
    """Every parameter at random, a grid's values like choices; what starting points leave out is drawn."""

    def ask(self, number: int) -> dict[str, Any] | None:
        """Point `number`, the same one whenever it is asked for."""
        return self._space.completed(self._start_point(number), generator(self._seed, number))


class GridSearcher(RandomSearcher):
    """Every combination of the grid's values, `num_samples` times; other parameters are drawn each time.

    :raises ConfigError: where nothing in the space is a grid
    """

    def __init__(self, search: Search, space: Space, start: Sequence[Mapping[str, Any]], seed: int) -> None:
        if len(space) and not any(p.kind in ("grid", "sample_from") for p in space):
            shown = ", ".join(f"{p.key} ({p.kind})" for p in space)
            hint = "write grid(...) for the keys to go through, or set search.method=random"
            raise ConfigError([Problem("search.method", f"grid, but nothing is a grid: {shown}", hint)])
        points = space.grid * (search.num_samples or 1)
        for point in start:  # it is tried first, not twice
            if dict(point) in points:
                points.remove(dict(point))
        super().__init__(search, space, [*start, *points], seed)
        self.total = len(self._start)

    def ask(self, number: int) -> dict[str, Any] | None:
        """Point `number`; None after the last one."""
        return super().ask(number) if number <= len(self._start) else None


def _check_start(start: Sequence[Mapping[str, Any]], space: Space) -> None:
    """Refuses starting points outside of the space: a method cannot learn from them."""
    problems = []
    known = {axis.parameter.key: axis for axis in axes(space)}
    for key, value in (pair for point in start for pair in point.items()):
        axis, what, hint = known.get(key), "", ""
        if key not in space.keys:
            what, hint = f"{key} is not in the search space", suggest(key, space.keys)
        elif axis is not None and not axis.holds(value):
            wanted = f"one of {axis.parameter.values}" if axis.form == CATEGORY else "a number"
            what, hint = f"{key}={value!r} is not {wanted}", "change the point, or the search space"
        elif axis is not None and axis.form != CATEGORY and axis.parameter.kind != "normal":
            low, high = axis.parameter.bounds
            if not low <= value <= high:
                what, hint = f"{key}={value!r} is outside {low:g} to {high:g}", "widen the search space"
        if what:
            problems.append(Problem("search.start_from", what, hint))
    if problems:
        raise ConfigError(problems)
