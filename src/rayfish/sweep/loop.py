"""The loop of a sweep: it asks for points, runs trials, judges reports and records everything.

Every decision is an event in `trials.jsonl` before it has an effect elsewhere; the trials in memory
are the state that the events give. A resumed sweep replays them for searcher and scheduler.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError
from rayfish.metrics.sinks.jsonl import read_jsonl
from rayfish.supervise.signals import Interrupts
from rayfish.supervise.watchdog import RayWatch
from rayfish.sweep import messages, records
from rayfish.sweep.directory import SweepDirectory
from rayfish.sweep.live import LiveTable
from rayfish.sweep.plan import Plan
from rayfish.sweep.records import DONE, FAILED, PAUSED, PENDING, RUNNING, STOPPED, Trial
from rayfish.sweep.schedulers import PAUSE, STOP, Move, Scheduler, open_scheduler
from rayfish.sweep.searchers import Known, Searcher, open_searcher
from rayfish.sweep.searchers.base import position, require_point
from rayfish.sweep.task import Task
from rayfish.sweep.view import SweepView
from rayfish.sweep.worker import Reply
from rayfish.sweep.workers import Lost, TrialWorkers
from rayfish.text import counted

_LOOK_EVERY_S = 0.25
_NODE_RETRIES = 5

SearchState = tuple[Searcher, Scheduler]


def open_search_state(plan: Plan) -> SearchState:
    """The search method and the scheduler of a plan.

    :raises RayfishError: for settings and parameters that they cannot take, before anything is started
    """
    searcher = open_searcher(plan.search, plan.space, start=plan.start, seed=plan.seed)
    scheduler = open_scheduler(
        plan.search, plan.space, time=plan.time, metric=plan.metric, seed=plan.seed, searcher=searcher
    )
    return searcher, scheduler


class Loop:
    """The loop of one session.

    :param view: for the display; its trials are the loop's own
    """

    def __init__(
        self,
        plan: Plan,
        folder: SweepDirectory,
        workers: TrialWorkers,
        view: SweepView,
        search_state: SearchState,
    ) -> None:
        self.plan, self.folder, self.workers, self.view = plan, folder, workers, view
        self.search = plan.search
        self.trials: dict[int, Trial] = {}
        self._unfinished: dict[int, Trial] = {}
        self._of_point: dict[int, list[Trial]] = {}
        view.trials = self.trials
        self.table = records.EventTable(folder.table_file)
        self.searcher, self.scheduler = search_state
        view.total = (self.searcher.total or plan.points) * plan.search.repeat
        self.points = 0
        self.ending = ""
        self._interrupted = self._no_more_points = False
        self._saved: dict[int, tuple[str, float]] = {}
        self._saving: set[int] = set()
        self._ending_as: dict[int, tuple[str, str]] = {}
        self._moves: dict[int, Move] = {}
        self._donors: dict[int, str] = {}
        self._last_step: dict[int, float] = {}
        self._lacks_checkpoints = False
        self._repeated: dict[int, dict[str, float | None]] = {}
        self._losses: dict[int, int] = {}
        self._too_large: set[int] = set()
        self._noted: set[str | int] = set()
        self._begun = time.monotonic() - float(folder.data.get("seconds") or 0.0)

    # -- the course of a session ------------------------------------------------------------------

    def recall(self) -> str:
        """Continues where the table ends: finished trials stay, interrupted ones wait to go on.

        Returns a message on damaged lines of the table; "" where there are none.
        """
        damaged: list[int] = []
        events = [self._whole(event) for event in records.read_events(self.folder.table_file, damaged)]
        for event in events:
            self._apply(event)
        events += self._rescore() + self._try_failed_again()
        self.points = max((trial.point for trial in self.trials.values()), default=0)
        self.scheduler.replay(records.as_scored_now(events))
        for trial in self.trials.values():
            if trial.state == RUNNING:
                trial.state = PENDING
        self._donors, self._saved = records.taken_last(events), records.saved_before(events)
        for point, trials in list(self._of_point.items()):  # repetitions that a cut table has lost
            self._add_trials(point, trials[0].params, len(trials))
        self.searcher.recall([self._known(point) for point in sorted(self._of_point)])
        self._begun = time.monotonic() - float(self.folder.data.get("seconds") or 0.0)
        self.table.write("resume")
        self.folder.update(metric=self.plan.metric)
        return records.damage_in(self.folder.table_file, damaged)

    def _rescore(self) -> list[dict[str, Any]]:
        """Trials get the scores of another `search.metric`; those without one run again."""
        changed = self.folder.data.get("metric", self.plan.metric) != self.plan.metric
        trials = list(self.trials.values()) if changed else []
        return [self._write("rescore", trial.number, **self._rescored(trial)) for trial in trials]

    def _rescored(self, trial: Trial) -> dict[str, Any]:
        """A trial's scores by the metric of now, from its reports, and its state with them."""
        metric, curve, state = self.plan.metric, [], trial.state
        reports = read_jsonl(self.folder.trials / trial.name / "metrics.jsonl") or [trial.metrics]
        for count, metrics in enumerate(map(self.plan.with_score, reports), 1):
            step, value = records.finite(metrics.get(self.plan.time)), records.finite(metrics.get(metric))
            if value is not None:
                curve.append((count if step is None else step, value))
            elif messages.is_not_finite(metrics.get(metric)) and self.search.score == "last":
                curve.clear()  # it has no score unless a later report has one
        if trial.unscored or state in (DONE, STOPPED):
            cut_short = state == STOPPED and trial.value is None  # the metric before was the reason
            state = PENDING if cut_short or not curve else DONE if trial.unscored else state
        return {"state": state, "curve": curve}

    def _try_failed_again(self) -> list[dict[str, Any]]:
        """Failed trials that have a retry left: `search.max_failures` may have been raised."""
        limit = self.search.max_failures
        again = [t for t in self.trials.values() if t.state == FAILED and t.failures < limit]
        return [self._write("lost", t.number, failures=1, error=t.error, details=t.details) for t in again]

    def _whole(self, event: dict[str, Any]) -> dict[str, Any]:
        """The event with its point as the space has it: JSON has no tuples."""
        if "params" not in event:
            return event
        found = dict(event["params"])
        for parameter in self.plan.space:
            if parameter.is_list and parameter.key in found:
                at = position(parameter.values, found[parameter.key])
                found[parameter.key] = parameter.values[at] if at is not None else found[parameter.key]
        require_point(self.plan.space, found, str(self.folder.table_file))
        return {**event, "params": found}

    def run(self, live: LiveTable, interrupts: Interrupts, watch: RayWatch) -> str:
        """Runs until all is done or something ends it; returns the sweep's status."""
        self.live = live
        looked = time.monotonic()
        for trial in self.trials.values() if self.search.repeat == 1 else ():
            self._reached(f"trial {trial.number}", trial.value)
        for known in map(self._known, self._of_point) if self.search.repeat > 1 else ():
            self._reached(f"point {known.number}", known.value if known.state != "open" else None)
        while True:
            watch.require_ray()
            self.folder.require_held()
            self._check_time(interrupts)
            if not watch.silent or self.ending:
                self._fill()
                if not self.workers.busy and not self._waits_for_machines(interrupts):
                    break
            elif not self.workers.busy:
                time.sleep(_LOOK_EVERY_S)
            for number, what, reply in self.workers.replies(_LOOK_EVERY_S):
                self._answered(self.trials[number], what, reply)
            live.update()
            if time.monotonic() - looked > 3.0:
                looked = time.monotonic()
                self._keep_time()
                if not watch.silent:
                    self._count_slots()
        self._keep_time()
        self.view.over = True
        if self.plan.population and not self.ending and not any(t.moves for t in self.trials.values()):
            unsaved = self._lacks_checkpoints and not self._saved
            reason = {"in_turns": len(self.trials) > self.view.slots, "unsaved": unsaved}
            self.live.note(messages.no_moves(self.search, self.plan.time, **reason))
        self.table.write("stop", why=self.ending or "all trials are done")
        return records.STOPPED if interrupts.requested else DONE

    def _count_slots(self) -> None:
        """Machines may leave a cluster and join it."""
        fitting = self.workers.look_again()
        self._too_large.clear()  # they are looked at again
        slots = min(fitting, self.search.max_concurrent or fitting)
        if slots != self.view.slots:
            now = counted(slots, "trial")
            self.live.note(f"the cluster has changed: {now} at a time, before it was {self.view.slots}")
            self.view.slots = slots

    def _waits_for_machines(self, interrupts: Interrupts) -> bool:
        """Whether there is work but no machine for it now: more may join the cluster."""
        work = self._too_large or (not self.view.slots and (self._waiting() or self._more()))
        if self.ending or interrupts.requested or not work:
            return False
        time.sleep(_LOOK_EVERY_S)
        return True

    def _note_once(self, key: str | int, line: str) -> None:
        if key not in self._noted:
            self._noted.add(key)
            self.live.note(line)

    def close(self) -> None:
        """Ends the workers and closes the table."""
        self.workers.close()
        self.table.close()

    def _keep_time(self) -> None:
        self.view.seconds = time.monotonic() - self._begun
        self.folder.update(seconds=round(self.view.seconds, 1))

    def _check_time(self, interrupts: Interrupts) -> None:
        self.view.seconds = time.monotonic() - self._begun
        budget = self.search.time_budget_s
        self._interrupted = bool(interrupts.requested)
        if interrupts.requested and not self.ending:
            self.ending = f"{interrupts.requested}: interrupted"
        elif budget is not None and self.view.seconds > budget and not self.ending:
            self.ending = f"the time budget of {budget:g} s is spent"
            self.live.note(f"{self.ending}: {messages.on_ending(self.plan.kind)}")

    # -- starting trials --------------------------------------------------------------------------

    def _fill(self) -> None:
        while not self.ending and len(self.workers.busy) < self.view.slots:
            while self.scheduler.eager and self._add_point():
                pass
            waiting = self._waiting()
            number = self.scheduler.next(waiting, more=self._more()) if waiting else None
            self._follow_orders()  # which may end some of those that waited
            if number is None and self._add_point():
                continue
            if number is None and not self.workers.busy:
                number = next(iter(self._waiting()), None)  # nothing else would ever wake them
            if number is None or not self._start(self.trials[number]):
                break
        self.view.running = len(self.workers.busy)

    def _waiting(self) -> list[int]:
        return [
            number
            for number, trial in self._unfinished.items()
            if trial.state in (PENDING, PAUSED)
            and number not in self.workers.busy
            and number not in self._too_large
            and not (
                self.workers.busy and number in self._moves and self._moves[number].source in self._saving
            )
        ]

    def _more(self) -> bool:
        """Whether there may be further points."""
        return not self._no_more_points and self.points < (self.searcher.total or self.plan.points)

    def _add_point(self) -> bool:
        """Asks for one more point and makes its trials; False if there is none."""
        if not self._more():
            return False
        params = self.searcher.ask(self.points + 1)
        if params is None:
            self._no_more_points = True
            return False
        self.points += 1
        self._add_trials(self.points, params, 0)
        return True

    def _add_trials(self, point: int, params: Mapping[str, Any], first: int) -> None:
        for repetition in range(first, self.search.repeat):
            number = next(reversed(self.trials), 0) + 1
            seed = self.plan.seeds + repetition if self.search.repeat > 1 else None
            name = messages.name(number, {} if self.plan.population else params, seed)
            self._write("new", number, name=name, params=params, point=point, seed=seed)
            self.scheduler.add(number, params, point=point)

    def _start(self, trial: Trial) -> bool:
        """Gives a trial to a worker; False if there is no room for it now."""
        try:
            payload = self.plan.target.payload(trial.params, trial.seed)
            resources = self.plan.target.resources(trial.params)
            if self.workers.capacity.fitting(resources) < 1:
                if self.workers.has_fitted(resources):  # machines have left the cluster since
                    lacking = self.workers.capacity.lacking(resources)
                    self._note_once(trial.number, f"trial {trial.number} waits: {lacking}")
                    self._too_large.add(trial.number)
                    return True
                hint = "this point asks for more than the others; narrow the space"
                self.workers.capacity.require(resources, hint)
        except RayfishError as error:
            self._end(trial, FAILED, error=error.what, details=str(error))
            return True
        if not self.workers.room(resources):
            return False
        donor = self._donors.get(trial.number, "")
        if donor and not Path(donor).exists():
            self.live.note(f"trial {trial.number} goes on from its own checkpoint: {donor} is gone")
            donor = ""
        self._last_step[trial.number] = trial.step if trial.attempt else -math.inf
        task = Task(
            number=trial.number,
            name=trial.name,
            params=dict(trial.params),
            folder=self.folder.trials / trial.name,
            seed=trial.seed,
            resume=trial.attempt > 0 and self.plan.target.can_resume,
            donor=donor,
            known_until=(self.plan.time, trial.step),
            payload=payload,
        )
        self._write("start", trial.number)
        self.scheduler.started(trial.number)
        self.workers.start(task, resources)
        return True

    # -- answers ----------------------------------------------------------------------------------

    def _answered(self, trial: Trial, what: str, reply: Reply | Lost) -> None:
        if isinstance(reply, Lost):
            self.workers.drop(trial.number)
            self._lost(trial, reply)
            self._save_settled(trial.number)
            if reply.node:
                self.workers.drop_idle()
                self._count_slots()
            return
        if reply.unfit:
            raise RayfishError(reply.error, f"{reply.hint}; then rayfish tune --resume {self.folder.path}")
        trial.seconds += reply.seconds
        if what == "begin" and not reply.error:
            self._donors.pop(trial.number, None)  # it has copied the checkpoint
        if reply.error:
            self.workers.release(trial.number)
            self._failed(trial, reply)
            self._save_settled(trial.number)
        elif what == "end":
            self._ended_early(trial, reply)
        elif what == "save":
            self._keep(trial, reply.saved)
            self._go_on(trial)
        else:
            self._reported(trial, reply)

    def _reported(self, trial: Trial, reply: Reply) -> None:
        reports = [*reply.missed, *([reply.metrics] if reply.metrics is not None else [])]
        decision = ""
        for metrics in reports:
            decision = self._judge(trial, metrics)
            if len(reports) > 1:  # it may repeat reports of before an interruption
                self._last_step[trial.number] = trial.step
            if decision in (STOP, PAUSE):
                break
        if reply.over:
            self.workers.release(trial.number)
            self._complete(trial)
            self._save_settled(trial.number)
        elif decision == STOP:
            self._end_early(trial, DONE if self.scheduler.ran_out else STOPPED, self.scheduler.why)
        elif decision == PAUSE or trial.number in self._moves:
            self._end_early(trial, PAUSED, "waits for other trials")
        elif trial.number in self._saving:
            self.workers.ask(trial.number, "save")
        else:
            self._go_on(trial)

    def _go_on(self, trial: Trial) -> None:
        if self.ending:
            again = self.plan.target.can_resume or self.plan.kind == "program"  # which then restarts
            self._end_early(trial, PAUSED if self._interrupted and again else STOPPED, self.ending)
        else:
            self.workers.ask(trial.number, "step")

    def _judge(self, trial: Trial, metrics: Mapping[str, Any]) -> str:
        """Records a report and asks the scheduler about it; "" if there is nothing to decide."""
        metrics = self.plan.with_score(metrics)
        trial.metrics = dict(metrics)
        counter, metric = self.plan.time, self.plan.metric
        step, value = records.finite(metrics.get(counter)), records.finite(metrics.get(metric))
        if step is None:
            step = trial.step + 1
        if step <= self._last_step.get(trial.number, -math.inf):
            self._repeated[trial.number] = {"step": step, "value": value}
            return ""  # it went back to a checkpoint: a repeated report
        self._repeated.pop(trial.number, None)
        diverged = {"diverged": True} if messages.is_not_finite(metrics.get(metric)) else {}
        if trial.unearned and trial.moves:  # the first report since: before it, a trial may just end
            point = messages.point(trial.params)
            self.live.note(f"trial {trial.number} goes on from trial {trial.moves[-1][1]} with {point}")
        self._write(
            "report", trial.number, step=step, value=value, seconds=round(trial.seconds, 3), **diverged
        )
        self._losses.pop(trial.number, None)
        if value is None:
            if metric not in metrics and "doubt" not in self._noted:
                doubt = messages.doubt(metric, metrics)
                if doubt:  # the metric may still come, so nothing ends
                    self._note_once("doubt", f"trial {trial.number} {doubt}")
            return ""
        if self.search.repeat == 1:
            self.searcher.report(trial.point, step, value)
        decision = self.scheduler.report(trial.number, {**metrics, counter: step, metric: value})
        self._follow_orders()
        if self.search.repeat == 1:
            self._reached(f"trial {trial.number}", trial.value)
        return decision

    def _reached(self, who: str, value: float | None) -> None:
        goal = self.search.goal
        if goal is None or value is None or self.ending:
            return
        if self.search.sign * value >= self.search.sign * goal:
            self.ending = f"{who} reached the goal of {goal:g}"
            self.live.note(self.ending)

    # -- ends -------------------------------------------------------------------------------------

    def _end_early(self, trial: Trial, how: str, why: str) -> None:
        self._ending_as[trial.number] = (how, why)
        if how == PAUSED and self.plan.population:
            self._saving.add(trial.number)  # others may start from its checkpoint
        self.workers.ask(trial.number, "end", PAUSED if how == PAUSED else STOPPED, why)

    def _ended_early(self, trial: Trial, reply: Reply) -> None:
        how, why = self._ending_as.pop(trial.number)
        if reply.spoiled:
            self.workers.drop(trial.number)  # a part of the trial still runs in that process
        else:
            self.workers.release(trial.number)
        if how != PAUSED:
            self._end(trial, how, why=why)
            self._save_settled(trial.number)
            return
        self._write("pause", trial.number, seconds=round(trial.seconds, 3), why=why)
        self.scheduler.paused(trial.number)
        self._keep(trial, reply.saved)
        self._move(trial)
        if not reply.saved and not self.ending:
            self._note_once("unsaved", messages.RESTART_FROM_NOTHING)

    def _complete(self, trial: Trial) -> None:
        again = self._repeated.pop(trial.number, None)
        if again is not None and again["value"] is not None:  # it restarted, and did not come as far
            self._write("report", trial.number, **again, seconds=round(trial.seconds, 3), again=True)
        if trial.value is None and messages.is_not_finite(trial.metrics.get(self.plan.metric)):
            what = f"its score {self.plan.metric} ended as {trial.metrics[self.plan.metric]}"
            self._end(trial, FAILED, error=what, unscored=True)
        elif trial.value is None:
            error, details = messages.unreported(self.plan.metric, trial.metrics)
            self._end(trial, FAILED, error=error, details=details, unscored=True)
            if not self.ending and all(t.value is None for t in self.trials.values()):
                self.ending = f"no trial reports {self.plan.metric!r}, the others would not either"
                self.live.note(f"{self.ending}: the sweep ends")
        else:
            self._end(trial, DONE)

    def _failed(self, trial: Trial, reply: Reply) -> None:
        if messages.is_of_a_full_disk(f"{reply.error}\n{reply.details}") and self.folder.is_full():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # every trial would fail
        hint = f"\n  next step: {reply.hint}" if reply.hint else ""
        self._retry(trial, messages.readable(reply.error + hint), messages.readable(reply.details))

    def _lost(self, trial: Trial, lost: Lost) -> None:
        """A process that is gone; with its machine, it does not count as a failure the first few times."""
        losses = self._losses[trial.number] = self._losses.get(trial.number, 0) + 1
        self._retry(trial, lost.why, failures=0 if lost.node and losses <= _NODE_RETRIES else 1)

    def _retry(self, trial: Trial, error: str, details: str = "", *, failures: int = 1) -> None:
        """Starts a trial again; where `search.max_failures` allows no further failure, ends it."""
        if failures and trial.failures >= self.search.max_failures:
            self._end(trial, FAILED, error=error, details=details)
            return
        self._write("lost", trial.number, failures=failures, error=error, details=details)
        self.scheduler.lost(trial.number)
        count = f" (retry {trial.failures} of {self.search.max_failures})" if failures else ""
        self.live.note(f"trial {trial.number}: {error.splitlines()[0]}; it is started again{count}")

    def _end(self, trial: Trial, state: str, **more: Any) -> None:
        self._moves.pop(trial.number, None)
        last = {key: value for key, value in trial.metrics.items() if records.finite(value) is not None}
        more = {key: value for key, value in more.items() if value}  # error, details, why, unscored
        self._write("end", trial.number, state=state, seconds=round(trial.seconds, 3), metrics=last, **more)
        if state == FAILED:
            self.scheduler.fail(trial.number)
            self.live.trial_failed(trial)
        else:
            self.scheduler.complete(trial.number)
        self._follow_orders()
        self._tell(trial.point)

    def _tell(self, point: int) -> None:
        """Reports a point to the searcher when the last of its repetitions has ended."""
        known = self._known(point)
        if known.state != "open":
            self.searcher.tell(point, known.value, pruned=known.state == STOPPED)
            if self.search.repeat > 1:
                self._reached(f"point {point}", known.value)

    def _known(self, point: int) -> Known:
        trials = self._of_point[point]
        values = records.comparable(trials, self.search.sign, self.search.score)
        if not all(trial.finished for trial in trials):
            state = "open"
        elif not values:
            state = FAILED
        else:
            state = STOPPED if any(trial.state == STOPPED for trial in trials) else DONE
        params = trials[0].moves[0][2] if trials[0].moves else trials[0].params
        curve = trials[0].curve if len(trials) == 1 else []
        value = sum(values) / len(values) if values else None
        return Known(point, dict(params), state, value, list(curve))

    # -- orders of the scheduler for other trials -------------------------------------------------

    def _follow_orders(self) -> None:
        orders = self.scheduler.orders()
        for number in orders.stop:
            trial = self.trials[number]
            if number not in self.workers.busy and not trial.finished:
                self._end(trial, STOPPED, why=self.scheduler.why)
        self._saving.update(orders.save)
        for move in orders.moves:
            self._moves[move.number] = move
            if move.number not in self.workers.busy:
                self._move(self.trials[move.number])

    def _keep(self, trial: Trial, saved: str) -> None:
        """A checkpoint was written; in a population, a copy of it is kept for others."""
        if saved and self.plan.population:
            target = self.plan.target
            at = target.step_of(saved) if self.plan.time == target.step_name else None
            step = trial.step if at is None else at
            saved = records.keep_for_others(self.folder.path, trial.name, Path(saved), self._donors.values())
            self._saved[trial.number] = (saved, step)
            self._write("save", trial.number, saved=saved, step=step)
        self._lacks_checkpoints |= not saved
        self._save_settled(trial.number)

    def _save_settled(self, number: int) -> None:
        """This trial saves nothing more now; others may wait for its checkpoint."""
        self._saving.discard(number)
        for move in list(self._moves.values()):
            if move.source == number and move.number not in self.workers.busy:
                self._move(self.trials[move.number])

    def _move(self, trial: Trial) -> None:
        """Population based training: restarts the trial from another one's checkpoint, with a new point."""
        move = self._moves.get(trial.number)
        if move is None or move.source in self._saving:
            return
        del self._moves[trial.number]
        saved, step = self._saved.get(move.source, ("", 0.0))
        if not saved or trial.finished:
            self._lacks_checkpoints |= not saved
            self.scheduler.stayed(trial.number, trial.params)
            return
        self._donors[trial.number] = saved
        moved = {"source": move.source, "step": step, "params": dict(move.params), "donor": saved}
        self._write("move", trial.number, **moved)

    def _write(self, event: str, number: int, **fields: Any) -> dict[str, Any]:
        line = self.table.write(event, number, **fields)
        self._apply(line)
        return line

    def _apply(self, event: Mapping[str, Any]) -> None:
        records.apply(self.trials, event, sign=self.search.sign, score=self.search.score)
        trial = self.trials.get(event.get("trial", 0))
        if trial is None:
            return
        if event["event"] == "new":
            self._of_point.setdefault(trial.point, []).append(trial)
        if trial.finished:
            self._unfinished.pop(trial.number, None)
        else:
            self._unfinished[trial.number] = trial
