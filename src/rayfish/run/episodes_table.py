"""The statistics of each recorded episode: one row of `episodes.parquet` and `episodes.csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rayfish.envs.vector import figures
from rayfish.files import atomic_write
from rayfish.metrics import names
from rayfish.metrics.stats import bootstrap_ci
from rayfish.run.columns import as_json
from rayfish.run.player import Played

Columns = dict[str, list[Any]]
"""Column -> its value in every episode; None where an episode did not report it."""


def row(played: Played, *, save_info: bool) -> dict[str, Any]:
    """What is kept of an episode.

    :param save_info: also what the reset said, which belongs to no step
    """
    found: dict[str, Any] = {
        "episode": played.number,
        "seed": played.seed,
        "return": played.total,
        "length": played.length,
        "terminated": played.terminated,
        "truncated": played.truncated,
        "seconds": played.seconds,
    }
    found |= {f"return/{policy}": value for policy, value in played.parts.items()}
    found |= {names.env(name): value for name, value in _reported(played).items()}
    if save_info:
        found["reset_info"] = as_json(played.reset_info.get(None, played.reset_info))
    return found


def columns(rows: Sequence[dict[str, Any]]) -> Columns:
    """Rows as columns."""
    known = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in known}


def statistics(table: Columns) -> dict[str, dict[str, float]]:
    """Mean with its 95 % interval, spread and ends of everything that measures an episode."""
    found: dict[str, dict[str, float]] = {}
    for name, values in table.items():
        if name in ("return", "length") or name.startswith(("return/", "env/")):
            found[name] = _spread([float(value) for value in values if value is not None])
    return found


def write(folder: Path, table: Columns) -> None:
    """Both files."""
    pq.write_table(pa.table(table), folder / "episodes.parquet")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    atomic_write(folder / "episodes.csv", text.getvalue())


def _spread(numbers: list[float]) -> dict[str, float]:
    mean, low, high = bootstrap_ci(numbers, seed=0)
    alike = min(numbers) == max(numbers)  # rounding must not make a spread of it
    return {
        "mean": mean,
        "ci_low": low,
        "ci_high": high,
        "std": 0.0 if alike else float(np.std(numbers, ddof=1)),
        "min": min(numbers),
        "max": max(numbers),
    }


def _reported(played: Played) -> dict[str, float]:
    """The figures in the last info of the environment; those of several agents as their mean."""
    found: dict[str, list[float]] = {}
    for info in played.infos.values():
        for name, value in figures(info):
            found.setdefault(name, []).append(value)
    return {name: fmean(values) for name, values in found.items()}
