"""The bootstrap interval of a mean."""

from __future__ import annotations

import numpy as np
import pytest

from rayfish.metrics.stats import bootstrap_ci


def test_the_interval_covers_the_true_mean_about_95_times_in_100():
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        _, low, high = bootstrap_ci(rng.normal(3.0, 2.0, size=40), trial)
        hits += low <= 3.0 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_the_interval_narrows_with_more_episodes():
    rng = np.random.default_rng(1)
    few, many = rng.normal(size=10), rng.normal(size=1000)
    assert np.diff(bootstrap_ci(many)[1:]) < np.diff(bootstrap_ci(few)[1:]) / 3


def test_the_same_values_and_seed_give_the_same_interval():
    values = [1.0, 5.0, 2.0, 8.0]
    assert bootstrap_ci(values, 3) == bootstrap_ci(values, 3)
    assert bootstrap_ci(values, 3)[0] == 4.0


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0, 5.0]])
def test_no_spread_gives_an_interval_of_no_width(values):
    assert bootstrap_ci(values) == (5.0, 5.0, 5.0)


def test_no_values_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_ci([])
