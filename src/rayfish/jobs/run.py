"""Running a list of jobs: where each is placed, what it prints, how it ended."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table as Shown
from rich.text import Text

from rayfish.errors import ConfigError, Problem, RayfishError, suggest
from rayfish.jobs.job_list import Job, JobList
from rayfish.jobs.worker import LOG, JobUpdate, JobWorker
from rayfish.run.engine import RayOptions, running_ray
from rayfish.run.lease import Taken, this_process
from rayfish.run.signing import hand_over
from rayfish.streams import steady
from rayfish.supervise.logs import capture
from rayfish.supervise.signals import Interrupts, exit_code
from rayfish.supervise.watchdog import RayWatch
from rayfish.sweep import capacity
from rayfish.sweep.directory import RUNNING, SweepDirectory
from rayfish.sweep.records import DONE, FAILED, STOPPED, EventTable, read_events
from rayfish.sweep.workers import ready, why_lost
from rayfish.terminal import Console, print_step
from rayfish.text import duration

RESULTS = "jobs.jsonl"
_ASK_EVERY_S, _STOP_WITHIN_S, _WAITING_AFTER_S = 0.5, 12.0, 10.0
_LEAST_CPU = 0.001  # a bundle of a placement group cannot be empty
_PIP_WITHIN_S = 600
_NAMES = ("NodeID", "NodeManagerHostname", "NodeManagerAddress", "NodeName")
_PIP_HINT = (
    "the packages under `pip` need a package index that the machines reach; or install them beforehand"
)


@dataclass(frozen=True)
class JobResult:
    """How one job ended.

    :param state: done, failed, or stopped (by Ctrl-C)
    :param code: its exit code; None where it was not started or its worker was lost
    :param error: what went wrong, with the next step and its last lines
    """

    name: str
    state: str
    code: int | None
    seconds: float
    host: str
    error: str
    log: Path
    earlier: bool = False


def run_jobs(
    jobs: JobList,
    folder: str | Path,
    options: RayOptions,
    console: Console | None = None,
    *,
    resume: bool = False,
) -> list[JobResult]:
    """Runs the jobs, each as soon as there is room for it, or all at once; one that fails ends no other.

    :param folder: of the results: `jobs.jsonl`, and per job a folder with its `log.txt`
    :param console: where output goes, each line after its job's name
    :param resume: jobs that are done by `jobs.jsonl` are not run again
    :raises RayfishError: before anything starts, where they cannot be run on this machine or cluster
    """
    place = Path(folder).absolute()
    place.mkdir(parents=True, exist_ok=True)
    console = console or Console(file=steady(sys.stdout), highlight=False)
    earlier = _done_before(jobs, place) if resume else []
    left = replace(jobs, jobs=tuple(job for job in jobs.jobs if job.name not in {r.name for r in earlier}))
    found = {result.name: result for result in earlier}
    if left.jobs:
        ray_log = capture(place / LOG, lambda *_: None, "ERROR")  # what Ray says of its own processes
        with RayWatch() as watch, running_ray(options) as ray, ray_log:
            watch.begin(f"rayfish tune --resume {place}")
            where = f"the cluster at {options.address}" if options.address else "this machine"
            left = _shared(left, capacity.of_ray(ray, where))
            nodes = _require_room(left, ray, where)
            runner = _Runner(ray, left, place, console, nodes)
            with Interrupts(lambda line: None) as interrupts:
                try:
                    runner.run(interrupts, watch)
                finally:
                    interrupts.close()
                    runner.close()
                    found |= runner.results
                    results = [found[job.name] for job in jobs.jobs if job.name in found]
                    console.print(table(results))
    return [found[job.name] for job in jobs.jobs]


def run_and_tell(jobs: JobList, name: str, options: RayOptions, root: str | Path = "runs") -> int:
    """The jobs in a folder of their own under `root`, or in that of an earlier call; gives an exit code."""
    again = jobs.folder is not None
    if jobs.folder is not None:
        folder = SweepDirectory.open(jobs.folder)
        folder.lock()
    else:
        about = {"kind": "jobs", "title": f"{len(jobs.jobs)} jobs", "begun": time.time()}
        folder = SweepDirectory.create(root, name, about)
        with folder.writing():
            jobs.keep(folder.path)
    console = Console(file=steady(sys.stdout), highlight=False)
    status = FAILED
    try:
        with folder.writing():
            folder.update(status=RUNNING, process=this_process())
            results = run_jobs(jobs, folder.path, options, console, resume=again)
        status = DONE if all(result.state == DONE for result in results) else FAILED
    except KeyboardInterrupt:
        status = STOPPED
    finally:
        with suppress(OSError, Taken):  # that must not hide what happened
            folder.finish(status)
        folder.release()
    if status != DONE:
        shown = os.path.relpath(folder.path)
        print_step(console, f"rayfish tune --resume {shown}", "runs what is not done")
    return {DONE: 0, STOPPED: exit_code()}.get(status, 1)


def table(results: Sequence[JobResult]) -> Shown:
    """How the jobs ended."""
    shown = Shown(title="All jobs", title_justify="left")
    for column in ("job", "state", "exit", "time", "where", "log"):
        shown.add_column(column, justify="right" if column in ("exit", "time") else "left")
    colours = {DONE: "green", FAILED: "red", STOPPED: "yellow"}
    for result in results:
        state = f"{result.state}, earlier" if result.earlier else result.state
        shown.add_row(
            Text(result.name),
            Text(state, style=colours[result.state]),
            "" if result.code is None else str(result.code),
            duration(result.seconds),
            result.host,
            f"{result.name}/{LOG}",
        )
    if results:
        shown.caption = f"logs are in {os.path.relpath(results[0].log.parent.parent)}"
    return shown


class _Runner:
    """Runs jobs, one actor each."""

    def __init__(
        self, ray: Any, jobs: JobList, folder: Path, console: Console, nodes: dict[str, str]
    ) -> None:
        self._ray, self._jobs, self._folder, self._console = ray, jobs, folder, console
        self._nodes = nodes
        self._table = EventTable(folder / RESULTS)
        self._actors: dict[str, Any] = {}
        self._asked: dict[Any, str] = {}
        self._begun: dict[str, float] = {}
        self._first: dict[str, JobUpdate] = {}
        self._group: Any = None
        self._stopping = False
        self.results: dict[str, JobResult] = {}

    def run(self, interrupts: Interrupts, watch: RayWatch) -> None:
        """Until all have ended, or until Ctrl-C, which ends all of them.

        The first Ctrl-C is only looked for between two answers, so that none of them is lost.

        :raises KeyboardInterrupt: after Ctrl-C
        """
        self._width = max(len(job.name) for job in self._jobs.jobs)
        try:
            interrupts.begin()
            if self._jobs.together:
                self._reserve(interrupts)
            for number, job in enumerate(self._jobs.jobs):
                if not interrupts.requested:
                    self._start(job, number)
            while self._asked and not interrupts.requested:
                watch.require_ray()
                self._listen(_ASK_EVERY_S)
            if not interrupts.requested:
                return
            self._end_all(interrupts.requested)
        except KeyboardInterrupt:  # a second one: no more waiting
            self._console.print("ending at once")
        interrupts.saving()
        self._note_unended()
        raise KeyboardInterrupt

    def close(self) -> None:
        """Everything that was held is given back."""
        for actor in self._actors.values():
            with suppress(Exception):
                self._ray.kill(actor)
        if self._group is not None:
            from ray.util.placement_group import remove_placement_group

            with suppress(Exception):
                remove_placement_group(self._group)
        self._table.close()

    def _reserve(self, interrupts: Interrupts) -> None:
        """Holds the resources of all jobs before the first starts."""
        from ray.util.placement_group import placement_group

        bundles = [_bundle(job, self._nodes.get(job.name, "")) for job in self._jobs.jobs]
        self._group = placement_group(bundles, strategy="PACK")
        begun = time.monotonic()
        while not self._group.wait(_ASK_EVERY_S) and not interrupts.requested:
            if time.monotonic() - begun > _WAITING_AFTER_S:
                begun = float("inf")
                self._console.print(
                    "waiting until there is room for all jobs at once; others use the cluster"
                )

    def _start(self, job: Job, number: int) -> None:
        options: dict[str, Any] = {"num_cpus": job.cpus, "num_gpus": job.gpus, "max_concurrency": 2}
        if job.memory:
            options["memory"] = int(job.memory)
        if self._jobs.pip:
            setup = {"setup_timeout_seconds": _PIP_WITHIN_S}
            options["runtime_env"] = {"pip": list(self._jobs.pip), "config": setup}
        options["scheduling_strategy"] = self._placed(job, number)
        pythonpath = os.pathsep.join([*self._jobs.pythonpath, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {"PYTHONPATH": pythonpath} if self._jobs.modules else {}
        start = Path(self._jobs.start or ".").absolute()
        here = self._ray.get_runtime_context().get_node_id()
        actor = self._ray.remote(JobWorker).options(**options)
        self._actors[job.name] = actor.remote(job, self._folder / job.name, start, env, here, key=hand_over())
        self._asked[self._actors[job.name].begin.remote()] = job.name

    def _placed(self, job: Job, number: int) -> Any:
        from ray.util import scheduling_strategies as strategies

        if self._group is not None:
            return strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=number
            )
        if job.node:
            return strategies.NodeAffinitySchedulingStrategy(self._nodes[job.name], soft=False)
        return "DEFAULT"

    def _listen(self, seconds: float) -> None:
        for future in ready(self._ray, self._asked, seconds):
            name = self._asked.pop(future)
            try:
                update = self._ray.get(future)
            except Exception as error:
                lost = why_lost(error)
                if lost.node and name not in self._begun and self._group is None and not self._stopping:
                    self._console.print(Text(f"{name}: {lost.why}; it waits for another"))
                    self._ray.kill(self._actors[name])
                    self._start(*next((job, n) for n, job in enumerate(self._jobs.jobs) if job.name == name))
                    continue
                what = lost.why if lost.node else f"its worker process was lost: {lost.why}"
                if "RuntimeEnv" in type(error).__name__:
                    what = f"its packages could not be installed: {' '.join(str(error).split())[:600]}"
                hint = _PIP_HINT if self._jobs.pip else ""
                host = self._first[name].host if name in self._first else ""
                update = JobUpdate(over=True, error=what, hint=hint, host=host)
            self._receive(name, update)

    def _receive(self, name: str, update: JobUpdate) -> None:
        if name not in self._begun:
            self._begun[name] = time.monotonic()
            self._table.write("start", job=name, host=update.host)
            self._first[name] = update
        label = Text(f"{name:<{self._width}} │ ", style="cyan")
        for line in update.lines:
            self._console.print(Text.assemble(label, line), soft_wrap=True)
        if not self._first[name].log_there and update.lines:
            (self._folder / name).mkdir(exist_ok=True)
            with (self._folder / name / LOG).open("a", encoding="utf-8") as log:
                log.writelines(f"{line}\n" for line in update.lines)
        if update.over:
            self._over(name, update, FAILED if update.error else DONE)
        else:
            self._asked[self._actors[name].more.remote()] = name

    def _over(self, name: str, update: JobUpdate, state: str) -> None:
        job = next(job for job in self._jobs.jobs if job.name == name)
        state = STOPPED if self._stopping and state == FAILED else state
        error = update.error and "\n".join([update.error, *(f"  | {line}" for line in update.last_lines)])
        if error and update.hint and state == FAILED:  # of one that was stopped here, everything is known
            error += f"\n  next step: {update.hint}"
        seconds = update.seconds or time.monotonic() - self._begun.get(name, time.monotonic())
        log = self._folder / name / LOG
        result = JobResult(name, state, update.code, round(seconds, 2), update.host, error, log)
        self.results[name] = result
        fields = {key: getattr(result, key) for key in ("state", "code", "seconds", "host", "error")}
        self._table.write("end", job=name, command=list(job.command), log=f"{name}/{LOG}", **fields)
        if state == FAILED:
            self._console.print(Text(f"{name} failed: {error}", style="red"), soft_wrap=True)
        actor = self._actors.pop(name, None)
        if actor is not None:
            self._ray.kill(actor)  # the next one gets its room

    def _end_all(self, signal: str) -> None:
        """Ends all that run, each with its grace."""
        self._console.print(f"{signal}: ending the jobs (again: at once)")
        self._stopping = True
        if self._asked:
            self._listen(_ASK_EVERY_S)  # one that has just begun is to have its grace, too
        for name, actor in list(self._actors.items()):
            if name in self._begun:
                actor.stop.remote()
        until = time.monotonic() + _STOP_WITHIN_S
        self._asked = {future: name for future, name in self._asked.items() if name in self._begun}
        while self._asked and time.monotonic() < until:
            self._listen(_ASK_EVERY_S)

    def _note_unended(self) -> None:
        """Jobs that have not begun, and those that did not end in time."""
        for job in self._jobs.jobs:
            if job.name not in self.results:
                log = self._folder / job.name / LOG
                self.results[job.name] = JobResult(job.name, STOPPED, None, 0.0, "", "", log)
                self._table.write("end", job=job.name, state=STOPPED, command=list(job.command))


def _shared(jobs: JobList, room: capacity.Capacity) -> JobList:
    """The parts of a machine for jobs that divide it: of the machines with GPUs, where there are any."""
    if not jobs.share:
        return jobs
    with_gpus = [node.has for node in room.nodes if node.has.get("GPU")]
    machines = with_gpus or [node.has for node in room.nodes]
    cpus = min(has.get("CPU", 0.0) for has in machines) / jobs.share
    gpus = min(has.get("GPU", 0.0) for has in machines) / jobs.share
    gpus = float(int(gpus)) if gpus >= 1 else gpus  # Ray gives whole GPUs, or a part of one
    cpus = float(int(cpus)) if cpus >= 1 else cpus
    return replace(jobs, jobs=tuple(replace(job, cpus=cpus, gpus=gpus) for job in jobs.jobs), share=0)


def _require_room(jobs: JobList, ray: Any, where: str) -> dict[str, str]:
    """Refuses jobs that nothing there could ever hold; gives the machines' ids of jobs that want one.

    :raises RayfishError: with the arithmetic
    """
    alive = [node for node in ray.nodes() if node["Alive"]]
    problems: list[Problem] = []
    chosen: dict[str, str] = {}
    for job in jobs.jobs:
        machines = [node for node in alive if not job.node or job.node in map(node.get, _NAMES)]
        if job.node and not machines:
            names = [str(node["NodeManagerHostname"]) for node in alive]
            hint = suggest(job.node, dict.fromkeys(names))
            problems.append(Problem(job.name, f"no machine is called {job.node}", hint))
            continue
        if job.node:
            chosen[job.name] = str(machines[0]["NodeID"])
        nodes = [capacity.Node(str(n["NodeManagerHostname"]), dict(n["Resources"])) for n in machines]
        try:
            capacity.Capacity(nodes, {}, job.node or where).require(job.resources, "")
        except RayfishError as error:
            what = error.what.replace("each trial", "it", 1)
            problems.append(Problem(job.name, what, "ask for less, or use a larger cluster"))
    if problems:
        raise ConfigError(problems)
    if jobs.together:
        _require_all(jobs, capacity.of_ray(ray, where))
    return chosen


def _require_all(jobs: JobList, room: capacity.Capacity) -> None:
    """Refuses jobs that can never all run at once.

    :raises RayfishError: with the arithmetic
    """
    by_size = sorted(jobs.jobs, key=lambda job: (job.gpus, job.cpus, job.memory), reverse=True)
    resources = [job.resources for job in by_size]
    if all(room.fits_now(one, resources[:number]) for number, one in enumerate(resources)):
        return
    parts = []
    for name in ("CPU", "GPU", "memory"):
        each = [one.total(name) for one in resources]
        has = sum(node.has.get(name, 0.0) for node in room.nodes)
        if sum(each) > has:
            sums = " + ".join(f"{value:g}" for value in each) if name != "memory" else "all of them"
            parts.append(f"{capacity.amount(name, sum(each))} ({sums}), there are {has:g}")
    hint = "set concurrent: false, so that they run in turn, or ask for less"
    if not parts:
        machines = ", ".join(
            f"{node.name}: {node.has.get('CPU', 0):g} CPUs, {node.has.get('GPU', 0):g} GPUs"
            for node in room.nodes
        )
        what = f"{len(by_size)} jobs at once do not fit side by side on the machines ({machines})"
        raise RayfishError(what, hint)
    raise RayfishError(f"{len(by_size)} jobs at once need {'; '.join(parts)} on {room.where}", hint)


def _bundle(job: Job, node: str) -> dict[str, float]:
    wanted = {"CPU": job.cpus, "GPU": job.gpus, "memory": job.memory}
    bundle = {name: value for name, value in wanted.items() if value} or {"CPU": _LEAST_CPU}
    if node:
        import ray

        address = next(n["NodeManagerAddress"] for n in ray.nodes() if n["NodeID"] == node)
        bundle[f"node:{address}"] = _LEAST_CPU  # every machine has one of its own address
    return bundle


def _done_before(jobs: JobList, folder: Path) -> list[JobResult]:
    """Jobs that an earlier call has done, with the same command."""
    last: dict[str, dict[str, Any]] = {}
    for event in read_events(folder / RESULTS):
        if event["event"] == "end":
            last[event["job"]] = event
    found = []
    for job in jobs.jobs:
        end = last.get(job.name, {})
        if end.get("state") == DONE and end.get("command") == list(job.command):
            seconds, host, log = end.get("seconds", 0.0), end.get("host", ""), folder / job.name / LOG
            found.append(JobResult(job.name, DONE, end.get("code"), seconds, host, "", log, earlier=True))
    return found
