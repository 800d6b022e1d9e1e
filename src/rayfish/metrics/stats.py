"""Confidence intervals of a mean over few episodes or seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000
_LEVEL = 0.95


def mean_ci(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean of a few values with Student's 95 % interval: (mean, low, high); of one value all equal it.

    For repetitions with a handful of seeds: resampling two or three values yields no more than their range.
    """
    from scipy.special import stdtrit

    data = np.asarray(values, dtype=np.float64)
    mean = float(data.mean())
    if data.size == 1:
        return mean, mean, mean
    half = float(stdtrit(data.size - 1, (1.0 + _LEVEL) / 2.0) * data.std(ddof=1) / np.sqrt(data.size))
    return mean, mean - half, mean + half


def bootstrap_ci(values: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """The mean of `values` with its 95 % percentile bootstrap interval: (mean, low, high).

    The same values and seed give the same interval; of one value all three equal it.
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
    tail = (1.0 - _LEVEL) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return mean, float(low), float(high)
