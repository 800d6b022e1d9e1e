"""One trial at work: what a worker process does with a task, whatever is being tuned.

The loop pulls: it asks a worker for the next report and answers with the next request, so that a
trial never runs past the report at which it was stopped.
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
"""How a trial may be told to end: by itself, early for good, or for a while."""


@dataclass(frozen=True)
class Resources:
    """What one trial holds while it runs.

    :param cpus: of its main process; may be a fraction
    :param gpus: of its main process; may be a fraction
    :param workers: CPUs, GPUs and others of each further process, in Ray's words (`{"CPU": 1}`)
    :param memory: bytes set aside for it
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
    """What a worker is to do: one trial, from its start or from where it was left.

    :param number: the trial's number in the sweep
    :param name: its name in messages and its folder's name
    :param params: its point of the search space, by dotted key
    :param folder: where everything of it is written
    :param seed: of this repetition; None where the target has its own
    :param resume: go on from what is in `folder`, where there is something to go on from
    :param donor: another trial's checkpoint to go on from (population based training); "" for none
    :param known_until: the last report that the sweep has recorded: the counter's name and its value
    :param payload: what only the target knows how to read: an experiment, say
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
        """Goes on until the next report and gives it, flat numbers by name; None when it is over.

        What can be ended at any time gives an empty one now and then, where there is nothing to report.

        :raises Exception: the trial failed; a `RayfishError` where there is a sentence for it
        """

    def save(self) -> str:
        """Writes a checkpoint of the state at the last report; gives its place, "" where it cannot."""
        return ""

    @abstractmethod
    def end(self, how: str, why: str) -> None:
        """Ends it: DONE after its last report, STOPPED or PAUSED before that.

        :param why: one sentence for the trial's own record
        """

    def missed(self, known_until: tuple[str, float]) -> list[Mapping[str, Any]]:
        """Reports of an earlier session that are in the trial's folder, and that the sweep has not recorded.

        A trial may save its state and report it, and the sweep be killed before it writes that down.
        """
        return []

    @property
    def finished(self) -> bool:
        """Whether the last report was also the end."""
        return False

    @property
    def gone(self) -> bool:
        """After its end: whether nothing of it runs on in this process."""
        return True

    def failed(self, error: BaseException) -> None:
        """After an exception: lets go of everything it holds."""
        self.end(STOPPED, f"failed: {error}")


def unrecorded(
    file: Path, known_until: tuple[str, float], counter: str, most: float
) -> list[Mapping[str, Any]]:
    """The lines of a trial's metrics.jsonl that the sweep has not recorded, up to the checkpoint.

    :param counter: the number in each line that counts reports
    :param most: up to which of them: later ones will be reported again
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
    """What is tuned: an experiment, a function or a program. Travels to the workers."""

    step_name: str = "step"
    """The number in a report that says how far a trial is."""

    can_resume: bool = True
    """Whether a trial that was ended early can go on later from what it saved."""

    def step_of(self, saved: str) -> float | None:
        """Which step, by `step_name`, a checkpoint is of; None where it is of the last report."""
        return None

    @abstractmethod
    def begin(self, task: Task) -> Work:
        """Starts a trial in this process."""

    def payload(self, params: Mapping[str, Any], seed: int | None) -> Any:
        """What a trial at that point is given besides its parameters; made where the sweep is."""
        return None

    def fit_to(self, options: Any) -> list[str]:
        """Shrink trials to the machine where that is wanted; a line on what changes."""
        return []

    def check(self, plan: Any, options: Any) -> None:  # noqa: B027
        """Everything that can be known to be wrong before the first trial.

        :raises RayfishError: with all of it
        """

    @abstractmethod
    def resources(self, params: Mapping[str, Any]) -> Resources:
        """What a trial at that point holds."""
