"""Messages of the loop, and the names of trials."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rayfish.errors import did_you_mean
from rayfish.metrics import names
from rayfish.sweep.experiment import METRIC
from rayfish.sweep.records import finite
from rayfish.sweep.schedulers import INTERVAL
from rayfish.sweep.settings import Search
from rayfish.text import printable

RESTART_FROM_NOTHING = (
    "trials that wait begin again from nothing: none of them has a checkpoint "
    "(a function gives one with report(..., checkpoint=folder))"
)
_LONGEST_NAME = 60


def name(trial: int, params: Mapping[str, Any], seed: int | None) -> str:
    """A trial's name, which is its folder's too: its number, its point, its seed."""
    words = [f"{key.rpartition('.')[2]}={_short(value)}" for key, value in params.items()]
    words += [f"seed={seed}"] if seed is not None else []
    safe = "".join(c if c.isalnum() or c in "-_.=+" else "_" for c in "-".join(words))
    return f"{trial:04d}-{safe}"[:_LONGEST_NAME].rstrip("-_.")


def point(params: Mapping[str, Any]) -> str:
    """A point in one line."""
    return ", ".join(f"{key.rpartition('.')[2]}={_short(value)}" for key, value in params.items())


def doubt(metric: str, metrics: Mapping[str, Any]) -> str:
    """What a report without the metric has in its place; "" if the metric may come later."""
    known = sorted(_numbers_in(metrics))
    early = metric.startswith("env/") and not metrics.get(names.EPISODES, 1)
    if metric in names.fixed() or early or not known:  # the first episode or evaluation brings it
        return ""
    close = did_you_mean(metric, known)
    meant = f"did you mean search.metric={close[0]}? " if close else ""
    return f"reports no {metric!r} so far: {meant}it reports {', '.join(known)}"


def unreported(metric: str, metrics: Mapping[str, Any]) -> tuple[str, str]:
    """The error of a trial that ended without a score, and all that it reported."""
    known = sorted(_numbers_in(metrics))
    what = f"it ended without reporting {metric!r}"
    if not known:
        return f"{what}, or any other number", ""
    close = did_you_mean(metric, known)
    hint = "name a metric that it reports with search.metric"
    if metric == METRIC:
        hint = "no episode ended: train longer, or let episodes end (rollouts.horizon)"
    elif close:
        hint = f"did you mean search.metric={close[0]}?"
    return f"{what}\n  next step: {hint}", f"it reported {', '.join(known)}"


def other_metric(metric: str, metrics: Mapping[str, Any]) -> str:
    """A metric for trials that lack this one: `NAME` if none is similar; "" if this one is right."""
    known = _numbers_in(metrics)
    if metric in metrics or metric in names.fixed() or not known:
        return ""
    return next(iter(did_you_mean(metric, known)), METRIC if METRIC in known else "NAME")


def readable(text: str) -> str:
    """The output of a program without control characters of terminals."""
    return "".join(sign for sign in printable(text) if sign.isprintable() or sign in "\n\t")


def taking_turns(search: Search, trials: int, slots: int) -> str:
    """How a population that does not run all at once is compared."""
    every = search.scheduler_config.get("perturbation_interval", INTERVAL)
    return (
        f"{search.scheduler}: {trials} trials take turns, {slots} at a time, and are compared when all have "
        f"come to the same multiple of {every} (search.scheduler_config.synch=true)"
    )


def no_moves(search: Search, time: str, *, in_turns: bool, unsaved: bool = False) -> str:
    """What to do about a population in which no trial was copied.

    :param in_turns: fewer trials ran at a time than there are
    :param unsaved: trials were chosen to be copied, and had no checkpoint
    """
    if unsaved:
        hint = "save one with rayfish.sweep.report(..., checkpoint=folder)"
        return f"{search.scheduler}: no trial went on from another one: they save no checkpoint; {hint}"
    every = search.scheduler_config.get("perturbation_interval", INTERVAL)
    hint = "train longer, or lower search.scheduler_config.perturbation_interval"
    if in_turns and not search.scheduler_config.get("synch"):
        hint = "trials that take turns are compared fairly with search.scheduler_config.synch=true"
    return f"{search.scheduler}: no trial went on from another one; it decides every {every} ({time}): {hint}"


def on_ending(kind: str) -> str:
    """What happens to running trials when a sweep ends."""
    return "running programs are ended" if kind == "program" else "running trials end with their next report"


def is_of_a_full_disk(text: str) -> bool:
    """Whether an error is about space, and not about the trial."""
    return any(os.strerror(code) in text for code in (errno.ENOSPC, errno.EDQUOT))


def is_not_finite(value: Any) -> bool:
    """Whether a score is NaN or infinite."""
    return isinstance(value, float) and not math.isfinite(value)


def _numbers_in(metrics: Mapping[str, Any]) -> list[str]:
    return [str(key) for key, value in metrics.items() if finite(value) is not None]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "x".join(_short(inner) for inner in value)
    return str(value)
