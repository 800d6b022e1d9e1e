"""`rayfish.tune`: many runs of an experiment, a function or a program, and the best of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from rayfish import text
from rayfish.algorithm import from_rllib
from rayfish.algorithm.from_rllib import is_config
from rayfish.errors import RayfishError
from rayfish.experiment.words import Override, as_words, word
from rayfish.report.sweep_page import prepare
from rayfish.run.directory import tags_of
from rayfish.run.engine import RayOptions, running_ray
from rayfish.run.lease import Taken, this_process
from rayfish.run.resources import require_answer
from rayfish.run.trust import require_sweep
from rayfish.streams import steady
from rayfish.supervise.logs import capture
from rayfish.supervise.signals import Interrupts
from rayfish.supervise.watchdog import RayWatch
from rayfish.sweep import capacity, messages, nodes, outcome, planning, records, settings
from rayfish.sweep.directory import FAILED, RUNNING, STOPPED, SweepDirectory, find_sweep, list_sweeps
from rayfish.sweep.experiment import ExperimentTarget
from rayfish.sweep.function import FunctionTarget
from rayfish.sweep.live import LiveTable, final_table, open_live
from rayfish.sweep.loop import Loop, SearchState, open_search_state
from rayfish.sweep.outcome import Result
from rayfish.sweep.plan import Plan
from rayfish.sweep.searchers import method_of
from rayfish.sweep.space import parameters_in
from rayfish.sweep.task import Resources
from rayfish.sweep.view import SweepView
from rayfish.sweep.workers import TrialWorkers
from rayfish.terminal import Console, print_step

_POINTS_LOOKED_AT = 8


def tune(
    target: Any = None,
    space: Mapping[str, Any] | None = None,
    *overrides: Override,
    config: Mapping[str, Any] | None = None,
    resume: str | Path | None = None,
    name: str | None = None,
    root: str | Path = "runs",
    env: Any = None,
    config_dir: str | Path | None = None,
    plain: bool | None = None,
    ray_options: RayOptions | None = None,
    trust: bool = False,
    **search: Any,
) -> Result:
    """Tries many points of a search space and gives the best.

    :param target: an experiment (a preset, a file, or RLlib's config: `PPOConfig()`), a function of one
        configuration, the import path of one (`module:function`), or a program
        (`{"command": "python train.py --lr {lr}", ...}`)
    :param space: what varies, by dotted key: `{"training.lr": "loguniform(1e-5,1e-2)"}`; nested
        dictionaries, `{"type": ..., "values": [...]}` and Ray Tune's own objects do as well
    :param overrides: `key=value` words for an experiment, as on the command line, or dictionaries of them
    :param config: what a function is given besides its point
    :param resume: a sweep to go on with (path, name, id or `last`) in place of starting a new one
    :param name: the folder's name under `root`
    :param env: an environment class or creator, in place of `environment.env`
    :param plain: plain lines in place of the live table; None decides by the terminal
    :param ray_options: how to start or find Ray
    :param trust: go on with a sweep that another user made, which runs the code in it
    :param search: the settings of the `search` section: metric, mode, method, scheduler, num_samples,
        repeat, max_concurrent, resources, ...
    """
    options = ray_options or RayOptions()
    if resume is not None:
        folder = SweepDirectory.open(find_sweep(resume))
        folder.require_table()
        require_sweep(folder.path, folder.data, trust=trust)
        folder.lock()
        function = target if callable(target) else None
        plan = planning.resumed(folder, search, function, env, config)
        return run(plan, options, folder=folder, plain=plain)
    words, notes = as_words(overrides), list[str]()
    if is_config(target):
        read = from_rllib.read(target)
        target, words, notes = None, [*read.words, *words], [*read.notes]
        env = read.env if env is None else env
    if words and not isinstance(target, str | None):
        raise RayfishError(
            f"{words[0]!r} belongs to an experiment; a function or program has none",
            "settings of the search are keywords: metric=..., num_samples=...",
        )
    if isinstance(target, Mapping):
        plan = planning.of_program(
            target, parameters_in(space or {}, "space"), search=search, name=name, root=str(root)
        )
    elif callable(target) or (isinstance(target, str) and is_function_path(target)):
        plan = planning.of_function(
            target, space or {}, config=config, search=search, name=name, root=str(root)
        )
    else:
        named = (word("runtime.name", name),) if name else ()
        placed = (word("runtime.local_dir", str(root)),) if str(root) != "runs" else ()
        plan = planning.of_experiment(
            target, (*named, *placed, *words), space=space, search=search, env=env, config_dir=config_dir
        )
        plan.notes.extend(notes)
    return run(plan, options, plain=plain)


def is_function_path(text: str) -> bool:
    """Whether a text names a function (`module:function`), not an experiment (a file may have a member)."""
    head, colon, _ = text.partition(":")
    return bool(colon) and not head.endswith((".yaml", ".yml"))


def run(
    plan: Plan, options: RayOptions, *, folder: SweepDirectory | None = None, plain: bool | None = None
) -> Result:
    """One session of a sweep, from its checks to its page.

    :param folder: of a sweep that goes on; None begins a new one
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
            sweep, view, status = _run_session(plan, options, search_state, folder, stack, plain=plain)
    except KeyboardInterrupt:
        last = folder or next((s for s in list_sweeps(plan.root) if s.data.get("pid") == os.getpid()), None)
        go_on = f"at once; to go on: rayfish tune --resume {last.path}" if last else "before it began"
        console.print(Text(f"\nstopped {go_on}"), soft_wrap=True)
        raise
    return _finish_report(plan, sweep, view, status, console)


def _run_session(
    plan: Plan,
    options: RayOptions,
    search_state: SearchState,
    folder: SweepDirectory | None,
    stack: ExitStack,
    *,
    plain: bool | None,
) -> tuple[SweepDirectory, SweepView, str]:
    """The sweep with Ray, its workers and its folder held open; what it came to."""
    resumed = folder is not None
    lookout = stack.enter_context(RayWatch())
    interrupts = stack.enter_context(Interrupts(lambda line: None))
    ray = stack.enter_context(running_ray(options, plan.paths, workers=1))
    room = capacity.of_ray(ray, f"the cluster at {options.address}" if options.address else "this machine")
    resources = _usual(plan)
    slots = room.require(resources, _smaller(plan, resources, room, options.address))
    slots = min(slots, plan.search.max_concurrent or slots)
    workers = TrialWorkers(
        ray, plan.target, room, usual=resources, reuse=plan.search.reuse_workers, paths=plan.paths
    )
    if folder is None and (waiting := _waiting_for_each_other(plan, slots)) is not plan:
        plan, search_state = waiting, open_search_state(waiting)
    if folder is None:
        plan.target.check(plan, options)
        folder = SweepDirectory.create(plan.root, plan.name, _about(plan))
        with folder.writing():
            planning.keep_target(plan, folder)
    stack.callback(folder.release)
    lookout.begin(f"rayfish tune --resume {folder.path}")
    nodes.require_fit(ray, folder.path, apart=str(options.address).startswith("ray://"))
    with folder.writing():
        searched = settings.to_dict(plan.search)
        folder.update(status=RUNNING, pid=os.getpid(), process=this_process(), search=searched)
    view = _view(plan, folder, slots)
    view.notes.append(room.note(resources, slots))
    if plan.population and plan.points > slots and plan.search.scheduler_config.get("synch"):
        view.notes.append(messages.taking_turns(plan.search, plan.points, slots))
    status = FAILED
    try:
        with folder.writing():
            loop = Loop(plan, folder, workers, view, search_state)
            folder.update(total=view.total)
            status = _session(loop, interrupts, lookout, stack, plain=plain, resumed=resumed)
    except KeyboardInterrupt:
        status = STOPPED
        raise
    except ConnectionError as error:
        raise RayfishError(f"{room.where} is gone: {error}", lookout.hint) from error
    finally:
        with suppress(OSError, Taken):  # that must not hide what happened
            folder.finish(status, seconds=round(view.seconds, 1))
    return folder, view, status


def _session(
    loop: Loop,
    interrupts: Interrupts,
    lookout: RayWatch,
    stack: ExitStack,
    *,
    plain: bool | None,
    resumed: bool,
) -> str:
    view = loop.view
    stack.callback(loop.close)
    live = stack.enter_context(open_live(view, plain))
    stack.enter_context(capture(loop.folder.log_file, _quiet(live), "ERROR"))
    for note in view.notes:
        live.note(note)
    if resumed:
        damage = records.note_on_damage(loop.folder.table_file)
        if damage:
            live.note(damage)
        metric = loop.folder.data.get("metric")
        loop.recall()
        live.recalled()
        if metric != view.metric:
            live.note(f"all trials are scored by {view.metric} from now on, before by {metric}")
        unfinished = sum(not trial.finished for trial in view.trials.values())
        where = " from their checkpoints, or again where there is none" if unfinished else ""
        done = text.counted(len(view.trials) - unfinished, "trial")
        live.note(f"resumed: {done} finished before, {unfinished} to go on{where}")
    interrupts.tell, interrupts.plan = live.note, messages.on_ending(loop.plan.kind)
    interrupts.begin()
    ahead = prepare()
    status = loop.run(live, interrupts, lookout)
    ahead.join()
    scored = any(t.value is not None and t.state != records.FAILED for t in view.trials.values())
    return FAILED if status == records.DONE and view.trials and not scored else status


def _finish_report(
    plan: Plan, folder: SweepDirectory, view: SweepView, status: str, console: Console
) -> Result:
    """Writes what remains of the sweep, and shows the end to the user."""
    console.print(final_table(view), soft_wrap=not console.is_terminal)
    with folder.writing():
        steps = outcome.write(plan, view)
    if status == STOPPED:
        steps = [(f"rayfish tune --resume {outcome.shown(folder.path)}", "go on"), *steps]
    for step in steps:
        print_step(console, *step)
    trials = [view.trials[number] for number in sorted(view.trials)]
    fixed = dict(plan.target.config) if isinstance(plan.target, FunctionTarget) else None
    return Result(folder.path, status, trials, plan.metric, plan.search.mode, view.seconds, view, fixed)


def _waiting_for_each_other(plan: Plan, slots: int) -> Plan:
    """A population whose trials take turns is synchronous unless set otherwise.

    Else those that come first in a turn are compared with others an interval behind: a score that grows
    while training makes each of them look good, and none is ever replaced.
    """
    config = plan.search.scheduler_config
    if not plan.population or "synch" in config or plan.points <= slots:
        return plan
    return replace(plan, search=plan.search.replace(scheduler_config={**config, "synch": True}))


def _about(plan: Plan) -> dict[str, Any]:
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
    return SweepView(
        title=plan.title,
        folder=folder.path,
        search=plan.search.replace(method=method_of(plan.search, plan.space)),
        space=plan.space,
        trials={},
        metric=plan.metric,
        time=plan.time,
        total=plan.points * plan.search.repeat,
        begun=float(folder.data.get("begun") or time.time()),
        seconds=float(folder.data.get("seconds") or 0.0),
        slots=slots,
        best_command=f"rayfish train -f {outcome.shown(folder.path)}/best.yaml"
        if plan.kind == "experiment"
        else "",
    )


def _usual(plan: Plan) -> Resources:
    """What a trial holds; where that depends on its point, the least of a few points."""
    import numpy as np

    sized = ("rollouts.", "resources.", "learners.", "evaluation.", "algo.")
    count = _POINTS_LOOKED_AT if any(key.startswith(sized) for key in plan.space.keys) else 1
    points = [plan.space.completed({}, np.random.default_rng([plan.seed, i])) for i in range(count)]
    return min(
        (plan.target.resources(point) for point in points), key=lambda r: (r.total("GPU"), r.total("CPU"))
    )


def _smaller(plan: Plan, resources: Resources, room: capacity.Capacity, at: str | None) -> str:
    """The next step where not even one trial fits."""
    if plan.kind != "experiment":
        larger = "use a larger cluster" if at else "give --ray-num-cpus to oversubscribe"
        return f"lower search.resources (cpu may be a fraction), or {larger}"
    cpus = sum(node.has.get("CPU", 0.0) for node in room.nodes)
    own = resources.bundles[0].get("CPU", 0.0)
    if own <= cpus and len(resources.bundles) > 1:
        each = max(bundle.get("CPU", 0.0) for bundle in resources.bundles[1:]) or 1.0
        return f"set rollouts.num_env_runners to at most {int((cpus - own) // each)}, or use a larger cluster"
    return "ask for less, or use a larger cluster with --on ADDRESS"


def _quiet(live: LiveTable) -> Callable[[str, str, str], None]:
    """Of what workers print, errors reach the screen; the rest is in the log files."""

    def sink(level: str, who: str, message: str) -> None:
        if level in ("ERROR", "CRITICAL"):
            live.note(f"{who}: {message}")

    return sink
