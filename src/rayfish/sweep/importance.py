"""Which parameters matter: the share of each in how the score varies.

fANOVA fits a forest to the points that have ended and asks how much of its variance each parameter
explains (https://proceedings.mlr.press/v32/hutter14.html). PED-ANOVA compares where the best points lie
with where all of them lie (https://arxiv.org/abs/2304.10255): coarser, and fast enough for a live display.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rayfish.sweep.records import FAILED, finite
from rayfish.sweep.space import Parameter, Space
from rayfish.sweep.view import Point, SweepView, shown

LEAST_POINTS = 8
"""With fewer points that have ended, shares would be noise."""

_ENOUGH, _ENOUGH_EACH = 20, 5
_MOST_POINTS = 400
_ABSENT = object()
_LAST: list[Any] = []


def importances(view: SweepView) -> dict[str, float]:
    """The share of each parameter by fANOVA, largest first, adding up to 1; {} with too little data.

    Where scikit-learn is not installed, by PED-ANOVA.
    """
    points = view.points()
    # The page and the result of a sweep both ask, seconds apart: a forest is grown once.
    same = (view.search.mode, view.space, [(p.number, p.value, p.state, repr(p.params)) for p in points])
    if _LAST[:1] != [same]:
        _LAST[:] = [same, _assessed(points, view, "fanova") or _assessed(points, view, "pedanova")]
    return dict(_LAST[1])


def caveat(view: SweepView) -> str:
    """What to think of shares from few points, in some words; "" where there are enough."""
    count = sum(point.scored and point.state != FAILED for point in view.points())
    enough = max(_ENOUGH, _ENOUGH_EACH * len(view.space.keys))
    return f"{count} points are too few to tell, {enough} would do" if count < enough else ""


def quick_importances(view: SweepView) -> dict[str, float]:
    """The share of each parameter by PED-ANOVA, which takes milliseconds."""
    return _assessed(view.points(), view, "pedanova")


def _assessed(points: Sequence[Point], view: SweepView, method: str) -> dict[str, float]:
    # What is only a help to the eye must not end a sweep, whatever a user's values do to a forest.
    try:
        shares = _shares(points, view, method)
    except Exception:
        return {}
    total = sum(shares.values())
    if not total or not math.isfinite(total):
        return {}
    given = {key: float(shares.get(key, 0.0) / total) for key in view.space.keys}
    return dict(sorted(given.items(), key=lambda item: -item[1]))


def _shares(points: Sequence[Point], view: SweepView, method: str) -> dict[str, float]:
    from optuna import create_trial
    from optuna.importance import (
        FanovaImportanceEvaluator,
        PedAnovaImportanceEvaluator,
        get_param_importances,
    )

    from rayfish.sweep.searchers.optuna_search import make_study, quiet

    scored = [point for point in points if point.scored and point.state != FAILED]
    if len(scored) < LEAST_POINTS:
        return {}
    if len(scored) > _MOST_POINTS:  # evenly over the ranking, so that good and bad points stay in proportion
        scored = [scored[i] for i in np.linspace(0, len(scored) - 1, _MOST_POINTS).astype(int)]
    values = _without_extremes([float(point.value or 0.0) for point in scored])
    if max(values) == min(values):
        return {}
    columns = _columns(view.space, scored, fill=method == "fanova")
    if len(columns) < 2:
        return dict.fromkeys(columns, 1.0)
    with quiet():
        evaluator: Any = (
            FanovaImportanceEvaluator(n_trees=32, seed=0)
            if method == "fanova"
            else PedAnovaImportanceEvaluator(target_quantile=0.25)
        )
        study = make_study(view.search.mode)
        for row, value in enumerate(values):
            given = {key: column for key, column in columns.items() if column[1][row] is not None}
            params = {key: column[row] for key, (_, column) in given.items()}
            distributions = {key: distribution for key, (distribution, _) in given.items()}
            study.add_trial(create_trial(params=params, distributions=distributions, value=value))
        shares = get_param_importances(study, evaluator=evaluator, params=list(columns))
    used = {key: sum(value is not None for value in column) for key, (_, column) in columns.items()}
    # What few points use explains nothing; else only the part of the points that use it.
    return {k: share * (used[k] / len(scored)) for k, share in shares.items() if used[k] >= LEAST_POINTS}


def _columns(space: Space, points: Sequence[Point], *, fill: bool) -> dict[str, tuple[Any, list[Any]]]:
    """For each parameter that is not the same everywhere, its distribution and its value in each point.

    :param fill: where a point does not use a parameter, one of its values at random, as a forest needs
        a value and this one explains nothing; else None
    """
    found = {}
    rng = np.random.default_rng(0)
    for parameter in space:
        given = [point.params.get(parameter.key, _ABSENT) for point in points]
        known = [value for value in given if value is not _ABSENT]
        column = _column(parameter, known)
        if column is not None:
            distribution, values = column
            spare = [values[i] for i in rng.choice(len(values), len(given))] if fill else [None] * len(given)
            rest = iter(values)
            whole = [next(rest) if v is not _ABSENT else spare[row] for row, v in enumerate(given)]
            found[parameter.key] = (distribution, whole)
    return found


def _column(parameter: Parameter, known: Sequence[Any]) -> tuple[Any, list[Any]] | None:
    """A distribution, and the values: numbers, or labels, as lists and dictionaries cannot be compared."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if known and not parameter.is_list and all(finite(value) is not None for value in known):
        low, high = float(min(known)), float(max(known))
        if low < high:
            log = parameter.is_log and low > 0
            return FloatDistribution(low, high, log=log), [float(value) for value in known]
    labels = [shown(value) for value in known]
    choices = sorted(set(labels))
    return (CategoricalDistribution(choices), labels) if len(choices) > 1 else None


def _without_extremes(values: Sequence[float]) -> list[float]:
    """Scores with the far ones drawn in: one diverged trial must not be all of the variance."""
    low, high = np.quantile(values, [0.25, 0.75])
    reach = 3 * (high - low)
    if reach == 0 or not math.isfinite(reach):
        return [float(v) for v in values]
    return [float(v) for v in np.clip(values, low - reach, high + reach)]
