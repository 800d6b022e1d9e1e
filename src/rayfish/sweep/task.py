"""What is tuned (`Target`), one trial of it (`Task`), and a trial that runs in a worker (`Work`).

The loop asks a worker for one report at a time, so that a trial never runs past the report at which it
is stopped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayfish import __version__
from rayfish.metrics.sinks import newest_first

DONE, STOPPED, PAUSED = "done", "stopped", "paused"
"""How a trial ends: by itself, early for good, or for a while."""


@dataclass(frozen=True)
class Resources:
    """What one trial holds while it runs: its main process (CPUs and GPUs may be fractions) and others.

    :param workers: CPUs, GPUs and others of each further process, in Ray's words (`{"CPU": 1}`)
    :param custom: other resources of a cluster, by name
    """

    cpus: float = 1.0
    gpus: float = 0.0
    workers: tuple[tuple[tuple[str, float], ...], ...] = ()
    memory: float = 0.0
    custom: tuple[tuple[str, float], ...] = ()

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The main process and each further one, as Ray's placement groups take them."""
        main = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory, **dict(self.custom)}
        return [{k: v for k, v in bundle.items() if v} for bundle in (main, *map(dict, self.workers))]

    def total(self, name: str) -> float:
        """All of one resource that a trial holds."""
        return sum(bundle.get(name, 0.0) for bundle in self.bundles)


@dataclass(frozen=True)
class Task:
    """One trial for a worker, from its start or from where it was left.

    :param params: its point of the search space, by dotted key
    :param folder: where everything of it is written
    :param seed: of this repetition; None where the target has its own
    :param resume: continue from the checkpoint in `folder`, if there is one
    :param donor: another trial's checkpoint to start from (population based training); "" for none
    :param known_until: the last report that the sweep has recorded: the counter's name and its value
    :param payload: for the target alone: an experiment, say
    :param rayfish: the version that the sweep has
    """

    number: int
    name: str
    params: dict[str, Any]
    folder: Path
    seed: int | None = None
    resume: bool = False
    donor: str = ""
    known_until: tuple[str, float] = ("step", 0.0)
    payload: Any = None
    rayfish: str = __version__


class Work(ABC):
    """A trial that runs in this process."""

    @abstractmethod
    def step(self) -> Mapping[str, Any] | None:
        """Runs until the next report and returns it, flat numbers by name; None when the trial is over.

        A trial that can be ended at any time returns an empty report now and then.

        :raises Exception: the trial failed; a `RayfishError` if there is a message for users
        """

    def save(self) -> str:
        """Writes a checkpoint of the state at the last report; returns its path, "" if it cannot."""
        return ""

    @abstractmethod
    def end(self, how: str, why: str) -> None:
        """Ends it: DONE after its last report, STOPPED or PAUSED before that.

        :param why: one sentence for the trial's own record
        """

    def missed(self, known_until: tuple[str, float]) -> list[Mapping[str, Any]]:
        """Reports in the trial's folder that the sweep was killed before it recorded."""
        return []

    @property
    def finished(self) -> bool:
        """Whether the last report was also the end."""
        return False

    @property
    def gone(self) -> bool:
        """After its end: whether no part of it still runs in this process."""
        return True

    def failed(self, error: BaseException) -> None:
        """After an exception: releases everything it holds."""
        self.end(STOPPED, f"failed: {type(error).__name__}: {error}")


def unrecorded(
    file: Path, known_until: tuple[str, float], counter: str, most: float
) -> list[Mapping[str, Any]]:
    """The lines of a trial's metrics.jsonl that the sweep has not recorded, up to the checkpoint.

    :param counter: the key of the report's number
    :param most: the last report's number: later ones will be repeated
    """
    name, known = known_until
    found: list[Mapping[str, Any]] = []
    for line in newest_first(file):
        if not isinstance(line.get(name), int | float) or line.get(counter, math.inf) > most:
            continue
        if line[name] <= known:
            break
        found.append(line)
    return found[::-1]


class Target(ABC):
    """What is tuned: an experiment, a function or a program. It is pickled for the workers."""

    step_name: str = "step"
    """The key in a report that counts a trial's steps."""

    can_resume: bool = True
    """Whether a trial that was ended early can continue from its checkpoint."""

    def step_of(self, saved: str) -> float | None:
        """The step of a checkpoint, by `step_name`; None if it is of the last report."""
        return None

    @abstractmethod
    def begin(self, task: Task) -> Work:
        """Starts a trial in this process."""

    def payload(self, params: Mapping[str, Any], seed: int | None) -> Any:
        """What a trial at that point needs besides its parameters; made in the sweep's process."""
        return None

    def fit_to(self, options: Any) -> list[str]:
        """Shrinks trials to the machine if the target asks for it; returns a line on what changes."""
        return []

    def check(self, plan: Any, options: Any) -> None:  # noqa: B027
        """Checks a trial before the first one starts.

        :raises RayfishError: with everything that is wrong
        """

    @abstractmethod
    def resources(self, params: Mapping[str, Any]) -> Resources:
        """What a trial at that point holds."""
