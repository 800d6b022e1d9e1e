"""Several runs in turn (`--multirun`, `--seeds`): one Ray, one table at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from rayfish.errors import ConfigError, RayfishError
from rayfish.experiment import Experiment
from rayfish.metrics.sinks import newest_first
from rayfish.metrics.stats import bootstrap_ci
from rayfish.run import preflight
from rayfish.run.directory import STOPPED, RunDirectory
from rayfish.run.engine import RayOptions, running_ray
from rayfish.run.train import train
from rayfish.terminal import Console

_WIDEST_SETTING = 40  # leaves room for the other columns of a terminal of 80


def several(
    experiments: list[tuple[tuple[str, ...], Experiment]],
    options: RayOptions,
    common: dict[str, Any],
    refused: Mapping[str, RayfishError] | None = None,
) -> int:
    """Trains each experiment; one that fails stops no other. Returns how many failed or were not started.

    :param refused: experiments of the same file that cannot be trained, reported first and in the table
    """
    experiments = [(words, preflight.with_fitting_algorithm(experiment)) for words, experiment in experiments]
    strict = [] if common.get("fit") else [experiment for _, experiment in experiments if not experiment.fit]
    problems = {str(p): p for experiment in strict for p in preflight.check(experiment, options)}
    if problems:  # all of them before the first run, not an hour later
        raise ConfigError(list(problems.values()))
    console = Console()
    rows: list[tuple[str, Path | None, str]] = []
    for name, error in (refused or {}).items():
        shown = name.removeprefix("./")
        console.print(f"[red]left out:[/red] {escape(f'{shown}: {error}')}", highlight=False, soft_wrap=True)
        rows.append((name.rpartition(":")[2], None, "left out, see above"))
    paths = tuple(dict.fromkeys(path for _, experiment in experiments for path in experiment.paths))
    alone = len(experiments) == 1  # of an old file, say, whose other experiments are refused
    shared = set() if alone else set(experiments[0][0]).intersection(*(words for words, _ in experiments))
    with running_ray(options, paths):
        for number, (words, experiment) in enumerate(experiments, 1):
            label = " ".join(word for word in words if word not in shared) or "as it is"
            console.rule(f"run {number} of {len(experiments)}: {escape(label)}", style="dim")
            try:
                rows.append((label, train(experiment, ray_options=options, **common), ""))
                if RunDirectory.open(rows[-1][1] or "").status == STOPPED:
                    console.print(f"[yellow]stopped[/yellow] after {number} of {len(experiments)} runs")
                    break
            except RayfishError as error:
                console.print(f"[red]failed:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
                rows.append((label, None, "failed, see above"))
    console.print(_table(rows))
    return len(experiments) - sum(1 for _, path, _ in rows if path is not None)


def _table(rows: list[tuple[str, Path | None, str]]) -> Table:
    table = Table(title="All runs", title_justify="left")
    longest = max((len(word) for label, _, _ in rows for word in label.split()), default=0)
    table.add_column("settings", overflow="fold", min_width=min(longest, _WIDEST_SETTING))
    for column in ("return", "env steps", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("run")
    finals = []
    for label, path, fault in rows:
        if path is None:
            table.add_row(escape(label), "", "", "", f"[red]{fault}[/red]")
            continue
        last = next(newest_first(path / "metrics.jsonl"), {})
        value = last.get("rollout/return_mean")
        finals += [value] if value is not None else []
        table.add_row(
            escape(label),
            "" if value is None else f"{value:.1f}",
            f"{last.get('run/env_steps', 0):,.0f}",
            f"{last.get('time/total_s', 0):.0f} s",
            path.name.rpartition("-")[2],
        )
    folders = dict.fromkeys(str(path.parent) for _, path, _ in rows if path is not None)
    table.caption = escape(f"runs are in {', '.join(folders)}") if folders else None
    without_seed = {re.sub(r"debugging\.seed=\S*", "", label).strip() for label, _, _ in rows}
    if len(finals) > 1 and len(without_seed) == 1:
        mean, low, high = bootstrap_ci(finals, seed=0)
        interval = f"mean return {mean:.1f}, 95 % interval {low:.1f} to {high:.1f} over {len(finals)} runs"
        table.caption = f"{interval}\n{table.caption}"
    return table
