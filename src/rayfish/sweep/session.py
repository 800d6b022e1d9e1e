"""One session of a sweep: Ray, its workers, the folder, the display, and what remains at the end."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from rayfish import text
from rayfish.errors import RayfishError
from rayfish.report.sweep_page import prepare, write_page
from rayfish.run.directory import tags_of
from rayfish.run.engine import RayOptions, running_ray
from rayfish.run.lease import Taken, this_process
from rayfish.run.lookup import newest_first, sweeps_at
from rayfish.run.resources import GPU_KEYS, require_answer
from rayfish.streams import steady
from rayfish.supervise.logs import capture
from rayfish.supervise.signals import Interrupts
from rayfish.supervise.watchdog import RayWatch
from rayfish.sweep import capacity, messages, outcome, settings
from rayfish.sweep.directory import FAILED, RUNNING, STOPPED, SweepDirectory
from rayfish.sweep.experiment import ExperimentTarget
from rayfish.sweep.function import FunctionTarget
from rayfish.sweep.live import open_live
from rayfish.sweep.live_table import final_table
from rayfish.sweep.loop import Loop, SearchState, open_search_state
from rayfish.sweep.outcome import Result
from rayfish.sweep.plan import Plan
from rayfish.sweep.records import DONE
from rayfish.sweep.searchers import method_of
from rayfish.sweep.task import Resources
from rayfish.sweep.view import SweepView
from rayfish.sweep.workers import TrialWorkers
from rayfish.terminal import Console, print_step

PAGE = "report.html"
_POINTS_LOOKED_AT = 8


def run(
    plan: Plan, options: RayOptions, *, folder: SweepDirectory | None = None, plain: bool | None = None
) -> Result:
    """One session of a sweep, from its checks to its page.

    :param folder: of a sweep that is resumed; None begins a new one
    """
    console = Console(file=steady(sys.stdout), highlight=False)
    if options.address:
        require_answer(options.address)
    for note in [*plan.notes, *plan.target.fit_to(options)]:
        console.print(Text(f"note: {note}"), soft_wrap=not console.is_terminal)
    search_state = open_search_state(plan)
    console.print(Text("starting Ray" if not options.address else "joining Ray", style="dim"))
    try:
        with ExitStack() as stack:
            folder, view, status = _with_ray(plan, options, search_state, folder, stack, plain=plain)
    except KeyboardInterrupt:
        sweeps = newest_first(sweeps_at(Path(plan.root), "*/*/sweep.json"))
        last = folder or next((sweep for sweep in sweeps if sweep.data.get("pid") == os.getpid()), None)
        go_on = f"at once; to go on: rayfish tune --resume {last.path}" if last else "before it began"
        console.print(Text(f"\nstopped {go_on}"), soft_wrap=True)
        raise
    console.print(final_table(view, console), soft_wrap=not console.is_terminal)
    with folder.writing():
        steps = outcome.write(plan, view)
        write_page(view, view.folder / PAGE)
    here = outcome.shown(view.folder)
    if status == STOPPED:
        steps = [(f"rayfish tune --resume {here}", "go on"), *steps]
    for step in [*steps, (f"open {here}/{PAGE}", "the sweep as a page")]:
        print_step(console, *step)
    fixed = dict(plan.target.config) if isinstance(plan.target, FunctionTarget) else None
    return Result(view, status, fixed)


def _with_ray(
    plan: Plan,
    options: RayOptions,
    search_state: SearchState,
    folder: SweepDirectory | None,
    stack: ExitStack,
    *,
    plain: bool | None,
) -> tuple[SweepDirectory, SweepView, str]:
    """The sweep with Ray, its workers and its folder held open: folder, trials and status at its end."""
    resumed = folder is not None
    watch = stack.enter_context(RayWatch())
    interrupts = stack.enter_context(Interrupts(lambda line: None))
    ray = stack.enter_context(running_ray(options, plan.paths, workers=1))
    room = capacity.of_ray(ray, f"the cluster at {options.address}" if options.address else "this machine")
    usual = _usual_resources(plan)
    slots = room.require(usual, _smaller(plan, usual, room, options.address))
    slots = min(slots, plan.search.max_concurrent or slots)
    workers = TrialWorkers(
        ray, plan.target, room, usual=usual, reuse=plan.search.reuse_workers, paths=plan.paths
    )
    config = plan.search.scheduler_config
    in_turns = plan.population and plan.points > slots
    if folder is None:
        if in_turns and "synch" not in config:
            # Else the first trials of a turn are compared with others an interval behind: a score that
            # grows while training makes each of them look good, and none is ever replaced.
            config = {**config, "synch": True}
            plan = replace(plan, search=plan.search.replace(scheduler_config=config))
            search_state = open_search_state(plan)
        plan.target.check(plan, options)
        folder = SweepDirectory.create(plan.root, plan.name, _about(plan))
        with folder.writing():
            plan.keep_target(folder)
    stack.callback(folder.release)
    watch.begin(f"rayfish tune --resume {folder.path}")
    capacity.require_same_everywhere(ray, folder.path, apart=str(options.address).startswith("ray://"))
    with folder.writing():
        searched = settings.to_dict(plan.search)
        folder.update(status=RUNNING, pid=os.getpid(), process=this_process(), search=searched)
    view = _view(plan, folder, slots)
    view.notes.append(room.note(usual, slots))
    if in_turns and config.get("synch"):
        view.notes.append(messages.taking_turns(plan.search, plan.points, slots))
    status = FAILED
    try:
        with folder.writing():
            loop = Loop(plan, folder, workers, view, search_state)
            folder.update(total=view.total)
            status = _run_loop(loop, interrupts, watch, stack, plain=plain, resumed=resumed)
    except KeyboardInterrupt:
        status = STOPPED
        raise
    except ConnectionError as error:
        raise RayfishError(f"{room.where} is gone: {error}", watch.hint) from error
    finally:
        with suppress(OSError, Taken):  # that must not hide what happened
            folder.finish(status, seconds=round(view.seconds, 1))
    return folder, view, status


def _run_loop(
    loop: Loop,
    interrupts: Interrupts,
    watch: RayWatch,
    stack: ExitStack,
    *,
    plain: bool | None,
    resumed: bool,
) -> str:
    """The loop with its display and log; returns the status of the sweep."""
    view = loop.view
    stack.callback(loop.close)
    live = stack.enter_context(open_live(view, plain))
    stack.enter_context(capture(loop.folder.log_file, live.log, "ERROR"))
    for note in view.notes:
        live.note(note)
    if resumed:
        metric = loop.folder.data.get("metric")
        damage = loop.recall()
        live.recalled()
        if damage:
            live.note(damage)
        if metric != view.metric:
            live.note(f"all trials are scored by {view.metric} from now on, before by {metric}")
        unfinished = sum(not trial.finished for trial in view.trials.values())
        where = " from their checkpoints, or again where there is none" if unfinished else ""
        done = text.counted(len(view.trials) - unfinished, "trial")
        live.note(f"resumed: {done} finished before, {unfinished} to go on{where}")
    interrupts.tell, interrupts.plan = live.note, messages.on_ending(loop.plan.kind)
    interrupts.begin()
    page_imports = prepare()
    status = loop.run(live, interrupts, watch)
    page_imports.join()
    scored = any(trial.value is not None and trial.state != FAILED for trial in view.trials.values())
    return FAILED if status == DONE and view.trials and not scored else status


def _about(plan: Plan) -> dict[str, Any]:
    """The fields of `sweep.json` of a new sweep."""
    return {
        "kind": plan.kind,
        "title": plan.title,
        "tags": tags_of(plan.target.base) if isinstance(plan.target, ExperimentTarget) else [],
        "metric": plan.metric,
        "time": plan.time,
        "seed": plan.seed,
        "source": plan.source,
        "space": plan.space.to_dict(),
        "search": settings.to_dict(plan.search),
        "start": list(plan.start),
        "begun": time.time(),
    }


def _view(plan: Plan, folder: SweepDirectory, slots: int) -> SweepView:
    best = f"rayfish train -f {outcome.shown(folder.path)}/{outcome.BEST_FILE}"
    return SweepView(
        title=plan.title,
        folder=folder.path,
        search=plan.search.replace(method=method_of(plan.search, plan.space)),
        space=plan.space,
        trials={},
        metric=plan.metric,
        time=plan.time,
        begun=float(folder.data.get("begun") or time.time()),
        seconds=float(folder.data.get("seconds") or 0.0),
        slots=slots,
        best_command=best if plan.kind == "experiment" else "",
    )


def _usual_resources(plan: Plan) -> Resources:
    """What a trial holds; where that depends on its point, the least of a few points."""
    sized = ("rollouts.", "resources.", "learners.", "evaluation.", "algo.")
    count = _POINTS_LOOKED_AT if any(key.startswith(sized) for key in plan.space.keys) else 1
    points = [plan.space.completed({}, np.random.default_rng([plan.seed, i])) for i in range(count)]
    held = [plan.target.resources(point) for point in points]
    return min(held, key=lambda each: (each.total("GPU"), each.total("CPU")))


def _smaller(plan: Plan, resources: Resources, room: capacity.Capacity, at: str | None) -> str:
    """The next step where not even one trial fits."""
    if not isinstance(plan.target, ExperimentTarget):
        larger = "use a larger cluster" if at else "give --ray-num-cpus to oversubscribe"
        return f"lower search.resources (cpu may be a fraction), or {larger}"
    keys = [f"{key}=0" for key in GPU_KEYS if plan.target.base.get(key) or key in plan.space.keys]
    if keys and resources.total("GPU") > room.total("GPU"):
        return f"set {' and '.join(keys)}, or use a cluster with more GPUs"
    own, *workers = (bundle.get("CPU", 0.0) for bundle in resources.bundles)
    fitting = (room.total("CPU") - own) // (max(workers, default=0.0) or 1.0)
    if 0 <= fitting < len(workers):
        return f"set rollouts.num_env_runners to at most {fitting:g}, or use a larger cluster"
    return "ask for less, or use a larger cluster with --on ADDRESS"
