"""Statistics of few episodes: the bootstrap interval of a mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000


def mean_ci(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float, float]:
    """The mean of a few values with Student's interval: (mean, low, high).

    For repetitions with a handful of seeds: resampling two or three values gives no more than their range.

    :param values: at least one number; with exactly one, low and high equal it
    :param level: coverage of the interval, 0.95 for 95 %
    """
    from scipy.special import stdtrit

    data = np.asarray(values, dtype=np.float64)
    mean = float(data.mean())
    if data.size == 1:
        return mean, mean, mean
    half = float(stdtrit(data.size - 1, (1.0 + level) / 2.0) * data.std(ddof=1) / np.sqrt(data.size))
    return mean, mean - half, mean + half


def bootstrap_ci(
    values: Sequence[float], seed: int = 0, *, level: float = 0.95
) -> tuple[float, float, float]:
    """The mean of `values` with its percentile bootstrap interval: (mean, low, high).

    :param values: at least one number; with exactly one, low and high equal it
    :param seed: makes the interval repeatable: the same values give the same interval
    :param level: coverage of the interval, 0.95 for 95 %
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        raise ValueError("bootstrap_ci needs at least one value")
    mean = float(data.mean())
    if data.size == 1 or np.all(data == data[0]):
        return mean, mean, mean
    rng = np.random.default_rng(seed)
    # Drawn in slices of about a million numbers, so that ten thousand episodes need no gigabyte.
    slice_rows = max(1, 1_000_000 // data.size)
    means = np.concatenate(
        [
            data[rng.integers(0, data.size, size=(min(slice_rows, RESAMPLES - row), data.size))].mean(axis=1)
            for row in range(0, RESAMPLES, slice_rows)
        ]
    )
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return mean, float(low), float(high)
