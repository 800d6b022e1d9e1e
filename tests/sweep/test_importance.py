"""Which parameters matter: shares that add up, whatever the points look like."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from rayfish.sweep.importance import LEAST_POINTS, caveat, importances, quick_importances
from rayfish.sweep.records import FAILED
from tests.sweep.fake_sweep import sweep

BOTH = pytest.mark.parametrize("assess", [importances, quick_importances])


@BOTH
def test_the_parameter_that_makes_the_score_has_the_largest_share(assess):
    shares = assess(sweep())
    assert set(shares) == set(sweep().space.keys)  # the conditional one and the lists too
    assert sum(shares.values()) == pytest.approx(1.0)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert next(iter(shares)) == "training.lr"
    assert shares["training.lr"] > 0.5
    assert shares["training.model.lstm_cell_size"] < 0.2


@BOTH
def test_too_few_points_have_no_shares(assess):
    assert assess(sweep(count=0)) == {}
    assert assess(sweep(count=LEAST_POINTS + 2, failed=3)) == {}
    assert assess(sweep(count=LEAST_POINTS + 3, failed=3)) != {}


@BOTH
def test_scores_that_are_all_equal_have_no_shares(assess):
    view = sweep(failed=0)
    for trial in view.trials.values():
        trial.value = 1.0
    assert assess(view) == {}


@BOTH
def test_a_parameter_that_never_changes_has_no_share(assess):
    space = {"x": "uniform(0,1)", "y": "uniform(0,1)", "fixed": {"type": "choice", "values": [[1, 2]]}}
    view = sweep(space=space, count=40)
    for trial in view.trials.values():
        trial.value = trial.params["x"]
    shares = assess(view)
    assert shares["fixed"] == 0.0
    assert shares["x"] > 0.7


@BOTH
def test_the_only_parameter_has_it_all(assess):
    assert assess(sweep(space={"training.lr": "loguniform(1e-5,1e-2)"})) == {"training.lr": 1.0}


@BOTH
def test_failed_points_are_left_out(assess):
    view = sweep(count=40, failed=0)
    before = assess(view)
    extra = sweep(count=60, failed=0)
    for number in range(41, 61):
        extra.trials[number].state, extra.trials[number].value = FAILED, 1e6
    assert assess(extra) == pytest.approx(before)


@BOTH
@pytest.mark.parametrize("mode", ["min", "max"])
def test_mixed_odd_and_extreme_values_raise_nothing(assess, mode):
    rng = np.random.default_rng(0)
    odd = [[64, 64], {"a": 1}, None, True, 1, 1.5, "text", math.nan]
    view = sweep(count=40, mode=mode)
    for number, trial in view.trials.items():
        trial.params["training.lr"] = odd[int(rng.integers(len(odd)))]
        trial.params["training.gamma"] = math.inf if number % 7 == 0 else 0.5
        if number == 3:
            trial.value = 1e308
        if number == 4:
            trial.value = -1e308
        if number == 5:
            trial.value = math.nan
    shares = assess(view)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_one_diverged_trial_does_not_hide_what_matters():
    view = sweep()
    view.trials[2].value = -1e12
    assert next(iter(importances(view))) == "training.lr"


def test_repetitions_count_as_one_point():
    assert importances(sweep(repeat=5, count=35, failed=0)) == {}
    assert importances(sweep(repeat=5, count=60, failed=0)) != {}


def test_the_quick_shares_of_many_trials_take_a_moment():
    view = sweep(count=1000)
    quick_importances(view)
    begun = time.process_time()
    quick_importances(view)
    assert time.process_time() - begun < 1.0


def test_shares_of_few_points_come_with_a_caveat():
    space = {"x": "uniform(0,1)", "y": "uniform(0,1)"}
    assert caveat(sweep(space=space, count=9, failed=0)) == "9 points are too few to tell, 20 would do"
    assert caveat(sweep(space=space, count=21, failed=0)) == ""
    many = {f"x{i}": "uniform(0,1)" for i in range(8)}
    assert "40 would do" in caveat(sweep(space=many, count=30, failed=0))
