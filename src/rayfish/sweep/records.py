"""A sweep on disk: `sweep.json` describes it, `trials.jsonl` has every event, line by line.

    runs/<name>/<time>-<id>/
      sweep.json  trials.jsonl  best.yaml  report.html  log.txt  trials/<one folder per trial>

Lines are only ever appended, each in one write. A damaged line (a crash may cut one short) is left out
when the table is read, reported at a resume, and closed before the next one is written. The table alone
gives the state of every trial: a sweep is resumed from nothing else.

Events: `new` (a trial and its point), `start`, `report` (a score on the way), `pause`, `lost` (it is started
again), `rescore` (its scores by another metric), `save` and `move` (population based training: a checkpoint
for others, and going on from one with a new point), `end`; `stop` and `resume` of the sweep itself.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfish.files import link_or_copy, parse_json, remove

PENDING, RUNNING, PAUSED = "pending", "running", "paused"
DONE, STOPPED, FAILED = "done", "stopped", "failed"
FINISHED = (DONE, STOPPED, FAILED)
"""`stopped`: ended early for good, by a scheduler or a goal. A trial that was interrupted is `pending`."""

SYNC_EVERY_S, SYNC_SOON_S = 1.0, 0.05


@dataclass
class Trial:
    """One trial, by its events.

    :param number: counted from 1
    :param name: its folder's name under `trials/`
    :param params: its point, by dotted key; after a `move` the newest one
    :param point: the point's number, shared by its repetitions
    :param seed: of this repetition; None if there is only one
    :param value: its score so far (the last or the best report), None before the first
    :param step: its last step, in what the scheduler counts
    :param curve: (step, score) of every report
    :param attempt: how often it was started
    :param error: why it failed, the first line; `details` has the rest
    :param unscored: it failed only because it has no score
    :param unearned: it has moved and not reported since: its score is that of the point before
    :param moves: (step of the checkpoint, the trial it was copied from, the point before)
    """

    number: int
    name: str
    params: dict[str, Any]
    point: int
    seed: int | None = None
    state: str = PENDING
    value: float | None = None
    step: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)
    curve: list[tuple[float, float]] = field(default_factory=list)
    seconds: float = 0.0
    attempt: int = 0
    failures: int = 0
    error: str = ""
    details: str = ""
    unscored: bool = False
    why: str = ""
    started: float | None = None
    ended: float | None = None
    unearned: bool = False
    moves: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in FINISHED

    @property
    def earned_with(self) -> dict[str, Any]:
        """The point that its score is of."""
        return self.moves[-1][2] if self.unearned and self.moves else self.params


class EventTable:
    """`trials.jsonl`, open for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path
        torn = path.is_file() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._synced = time.monotonic()
        if torn:
            os.write(self._file, b"\n")

    def write(self, event: str, trial: int | None = None, **fields: Any) -> dict[str, Any]:
        """Appends one event and returns it; synced at most once a second, an `end` sooner."""
        line: dict[str, Any] = {"event": event, "time": round(time.time(), 3)}
        if trial is not None:
            line["trial"] = trial
        line |= fields
        text = json.dumps(line, default=plain, ensure_ascii=False)
        os.write(self._file, f"{text}\n".encode("utf-8", "backslashreplace"))  # names of files may be odd
        now = time.monotonic()
        if now - self._synced > (SYNC_SOON_S if event in ("end", "stop") else SYNC_EVERY_S):
            os.fsync(self._file)
            self._synced = now
        return line

    def close(self) -> None:
        """Everything on disk, the file closed."""
        os.fsync(self._file)
        os.close(self._file)


def read_events(path: Path, damaged: list[int] | None = None) -> Iterator[dict[str, Any]]:
    """The events of a table, oldest first, without damaged lines.

    :param damaged: a list for the numbers of these lines, counted from 1
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                event = parse_json(line)
            except ValueError:
                event = None
            if isinstance(event, dict) and "event" in event:
                yield event
            elif damaged is not None:
                damaged.append(number)


def damage_in(path: Path, damaged: Sequence[int]) -> str:
    """A message on these damaged lines of a table; "" where there are none."""
    if not damaged:
        return ""
    which = ", ".join(map(str, damaged[:5])) + (f" and {len(damaged) - 5} more" if len(damaged) > 5 else "")
    are = "line {} is" if len(damaged) == 1 else "lines {} are"
    return f"{path.name}: {are.format(which)} damaged and left out"


def fold(events: Iterable[Mapping[str, Any]], *, sign: float = 1.0, score: str = "last") -> dict[int, Trial]:
    """The trials of these events, by number."""
    trials: dict[int, Trial] = {}
    for event in events:
        apply(trials, event, sign=sign, score=score)
    return trials


def as_scored_now(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The events with the scores of the latest metric, less the ends of trials that were run again later."""
    kept: list[Mapping[str, Any]] = []
    again: set[int] = set()
    rescored: dict[int, Mapping[str, Any]] = {}
    for event in reversed(events):
        kind, number, now = event["event"], event.get("trial", 0), rescored.get(event.get("trial", 0))
        if kind == "rescore":
            rescored.setdefault(number, event)
        if kind == "lost" or (kind == "rescore" and event["state"] not in FINISHED):
            again.add(number)
        if now is not None and kind == "report":
            kept.append({**event, "value": dict(now["curve"]).get(event.get("step"))})
        elif now is not None and kind == "end" and number not in again:
            kept.append({**event, "state": now["state"]})
        elif kind != "end" or number not in again:
            kept.append(event)
    return kept[::-1]


def apply(
    trials: dict[int, Trial], event: Mapping[str, Any], *, sign: float = 1.0, score: str = "last"
) -> None:
    """Applies one more event to the trials."""
    kind, number = event["event"], event.get("trial")
    if kind == "new":
        params = dict(event["params"])
        trials[event["trial"]] = Trial(
            event["trial"], event["name"], params, event["point"], event.get("seed")
        )
    trial = trials.get(number) if number is not None else None
    if trial is None:
        return
    if kind == "start":
        trial.state, trial.started, trial.ended = RUNNING, event["time"], None
        trial.attempt += 1
    elif kind == "report":
        _reported(trial, event, sign, score)
    elif kind == "pause":
        trial.state = PAUSED
        trial.seconds = event.get("seconds", trial.seconds)
    elif kind == "move":
        trial.moves.append((event["step"], event["source"], trial.params))
        trial.params, trial.step, trial.unearned = dict(event["params"]), event["step"], True
    elif kind == "lost":
        trial.state = PENDING
        trial.failures += int(event.get("failures", 0))
        trial.error, trial.details = event.get("error", ""), event.get("details", "")
    elif kind == "rescore":
        _rescored(trial, event, sign, score)
    elif kind == "end":
        trial.state, trial.ended = event["state"], event["time"]
        trial.seconds = event.get("seconds", trial.seconds)
        trial.error, trial.details = event.get("error", ""), event.get("details", "")
        trial.why, trial.unscored = event.get("why", ""), bool(event.get("unscored"))
        trial.metrics = dict(event.get("metrics") or trial.metrics)
        if trial.unearned and trial.moves:  # it ended before its first report after the move
            trial.params = trial.earned_with
            trial.moves.pop()
            trial.unearned = False
            trial.step = trial.curve[-1][0] if trial.curve else 0.0


def comparable(trials: Sequence[Trial], sign: float, score: str) -> list[float]:
    """The scores of a point's repetitions; where some were stopped early, all at the last step they share."""
    good = [t for t in trials if t.state != FAILED and t.value is not None and math.isfinite(t.value)]
    if len(good) < 2 or not any(trial.state == STOPPED for trial in good):
        return [float(trial.value) for trial in good if trial.value is not None]
    shared = min(trial.curve[-1][0] for trial in good)
    found = []
    for trial in good:
        values = [value for step, value in trial.curve if step <= shared] or [trial.curve[0][1]]
        found.append(max(values, key=lambda v: sign * v) if score == "best" else values[-1])
    return found


def _reported(trial: Trial, event: Mapping[str, Any], sign: float, score: str) -> None:
    trial.step, trial.unearned = event.get("step", trial.step), False
    trial.seconds = event.get("seconds", trial.seconds)
    value = event.get("value")
    if event.get("diverged") and score == "last":
        trial.value = None  # the last report is no number, so the trial has no score
    if value is None or not math.isfinite(value):
        return
    while trial.curve and trial.curve[-1][0] >= trial.step:
        trial.curve.pop()  # it went back to a checkpoint, its own or another's
    trial.curve.append((trial.step, value))
    values = [v for _, v in trial.curve] if score == "best" else [value]
    trial.value = max(values, key=lambda v: sign * v)


def _rescored(trial: Trial, event: Mapping[str, Any], sign: float, score: str) -> None:
    trial.state, trial.value, trial.curve, trial.step = event["state"], None, [], 0.0
    for step, value in event["curve"]:
        _reported(trial, {"step": step, "value": value}, sign, score)
    if trial.state != FAILED:
        trial.error = trial.details = ""
        trial.unscored = False


def keep_for_others(sweep: Path, trial: str, saved: Path, wanted: Iterable[str]) -> str:
    """PBT: copies a checkpoint that other trials may start from, so that its own trial cannot remove it.

    :param wanted: checkpoints that a trial is about to start from; the trial's other old ones are removed
    """
    kept = sweep / "handed-over" / trial
    target = kept / saved.name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = kept / f".{target.name}"
        link_or_copy(saved, draft)
        draft.rename(target)
    still = {*wanted, str(target)}
    for old in kept.iterdir():
        if str(old) not in still:
            remove(old)
    return str(target)


def taken_last(events: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """PBT: the checkpoint of another trial for each that has moved and not reported since."""
    donors: dict[int, str] = {}
    for event in events:
        if event["event"] == "move":
            donors[event["trial"]] = event.get("donor", "")
        elif event["event"] == "report":
            donors.pop(event["trial"], None)
    return donors


def saved_before(events: Sequence[Mapping[str, Any]]) -> dict[int, tuple[str, float]]:
    """PBT: the newest checkpoint of each trial that others may start from, where it still exists."""
    saved = {e["trial"]: (e["saved"], e["step"]) for e in events if e["event"] == "save"}
    return {number: found for number, found in saved.items() if Path(found[0]).exists()}


def plain(value: Any) -> Any:
    """A value that JSON lacks, as one that it has: NumPy's numbers, tuples, functions by their names."""
    if callable(value):
        return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', type(value).__name__)}"
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, set | tuple) else str(value)


def finite(value: Any) -> float | None:
    """A score as a number; None if it is none, or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
