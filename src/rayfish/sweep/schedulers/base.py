"""The interface of every scheduler: judge a report, choose which trial runs next, restore its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayfish.sweep.records import FAILED, finite

CONTINUE, STOP, PAUSE = "continue", "stop", "pause"
WHERE = "search.scheduler_config"
MAX_T, INTERVAL = 100, 10
"""HyperBand's longest trial and the time between two comparisons of a population, where none is set."""


@dataclass(frozen=True)
class Move:
    """Trial `number` goes on from the newest checkpoint of `source`, with new parameters."""

    number: int
    source: int
    params: dict[str, Any]


@dataclass
class Orders:
    """What a scheduler decided besides its answer to a report.

    :param stop: other trials that have to end
    :param save: trials that must write a checkpoint now, at the report just given
    :param moves: trials that go on from another one's checkpoint
    """

    stop: list[int] = field(default_factory=list)
    save: list[int] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.stop or self.save or self.moves)


class Scheduler:
    """Decides which trials go on, known by their number; this one lets each run to its end, in order.

    :param time: the key in a report that says how far a trial is
    :param metric: the key in a report that says how good it is
    """

    why: str = ""  # the reason for the last STOP, or for the last trials in `Orders.stop`
    ran_out: bool = False  # whether the last STOP was for a trial that reached its `max_t`
    eager: bool = False  # whether all trials are added before the first one runs: a population needs them

    def __init__(self, time: str = "step", metric: str = "score") -> None:
        self.time = time
        self.metric = metric
        self._orders = Orders()

    def add(self, number: int, params: Mapping[str, Any], *, point: int | None = None) -> None:
        """A new trial, which waits to be started.

        :param point: the number of its point, where that is another than its own (repetitions)
        """

    def report(self, number: int, metrics: Mapping[str, Any]) -> str:
        """Judges a report: CONTINUE, STOP or PAUSE. One without time or score is ignored."""
        return CONTINUE

    def orders(self) -> Orders:
        """What was decided since the last call; to be called after `report`, `complete` and `next`.

        A trial with a `Move` was answered with PAUSE: it stops where it is, and restarts as the move says.
        """
        orders, self._orders = self._orders, Orders()
        return orders

    def complete(self, number: int) -> None:
        """A trial ended by itself, or was stopped."""

    def fail(self, number: int) -> None:
        """A trial failed for good."""

    def started(self, number: int) -> None:
        """A trial runs."""

    def paused(self, number: int) -> None:
        """A trial was paused; it has a checkpoint."""

    def stayed(self, number: int, params: Mapping[str, Any]) -> None:
        """A `Move` was impossible without a checkpoint: the trial keeps its point."""

    def lost(self, number: int) -> None:
        """A running trial was interrupted: it waits, and will go on from an earlier state."""

    def next(self, waiting: Sequence[int], *, more: bool = False) -> int | None:
        """Which of the waiting trials to start now; None: none of them may start now.

        :param waiting: pending and paused trials, in the order in which they would start
        :param more: whether further trials can be added instead; if not, and with nothing running,
            one of the waiting trials always starts (or ends, see `orders`)
        """
        return waiting[0] if waiting else None

    def replay(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Restores the state after these events of `trials.jsonl`, without giving orders."""
        for event in events:
            number = event.get("trial")
            if number is not None:
                self._replay(event["event"], number, event)
        self.orders()

    def _replay(self, kind: str, number: int, event: Mapping[str, Any]) -> None:
        if kind == "new":
            self.add(number, event["params"], point=event.get("point"))
        elif kind == "start":
            self.started(number)
        elif kind == "report" and not event.get("again"):
            scored = {self.time: event.get("step"), self.metric: event.get("value")}
            metrics = dict(event.get("metrics") or {})
            self.report(number, metrics | {key: v for key, v in scored.items() if v is not None})
        elif kind == "pause":
            self.paused(number)
        elif kind == "lost":
            self.lost(number)
        elif kind == "end" and event["state"] == FAILED:
            self.fail(number)
        elif kind == "end":
            self.complete(number)

    def _usable(self, metrics: Mapping[str, Any]) -> bool:
        """Whether a report has a time and a score to judge by."""
        return all(finite(metrics.get(key)) is not None for key in (self.time, self.metric))
