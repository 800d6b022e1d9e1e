"""From what a user gave (an experiment, a function, a program, a folder to resume) to a `Plan`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rayfish.algorithm.keys import key_problems
from rayfish.errors import ConfigError, Problem, RayfishError, RunNotFound, did_you_mean
from rayfish.experiment import Experiment, tree
from rayfish.experiment.compose import named
from rayfish.experiment.imports import load_object
from rayfish.experiment.result_names import todays_metric
from rayfish.experiment.sections import SECTIONS, defaults
from rayfish.experiment.words import word
from rayfish.metrics import names
from rayfish.run.preflight import CHOSEN, with_fitting_algorithm
from rayfish.run.trust import target_digest
from rayfish.sweep import settings
from rayfish.sweep.amounts import resources_of
from rayfish.sweep.directory import SweepDirectory, find_sweep
from rayfish.sweep.experiment import METRIC, ExperimentTarget
from rayfish.sweep.function import SCORE, FunctionTarget
from rayfish.sweep.plan import Plan
from rayfish.sweep.program.settings import REPORTS
from rayfish.sweep.records import Trial, comparable, fold, read_events
from rayfish.sweep.schedulers import MAX_T
from rayfish.sweep.searchers.base import allowed
from rayfish.sweep.settings import Search
from rayfish.sweep.space import Parameter, Space, from_words, is_parameter, mistyped, ordered, parameters_in

_T = TypeVar("_T")
_TARGET = "target.pkl"
_BEST_OF_A_SWEEP = 3
_IN_STEPS = {"max_t", "grace_period", "perturbation_interval", "burn_in_period", "min_time_slice"}
_USERS_OWN = ("env_config", "custom_model_config", "simulation")
_MOST_CHECKED = 12


class NothingToSearch(RayfishError):
    """A sweep in which no parameter varies."""


def of_experiment(
    name: str | None,
    words: Sequence[str] = (),
    *,
    space: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
    **where: Any,
) -> Plan:
    """A sweep over an experiment.

    :param name: a preset or a file
    :param words: `key=value`, and `key=loguniform(1e-5,1e-2)` for what varies
    :param space: more of the space, from Python
    :param search: settings of the search, over those of the experiment's `search` section
    :param where: what `Experiment.compose` takes besides: config_name, config_dir, env, closest
    """
    rest, from_command_line = from_words(words)
    name, rest = named(name, rest, where.get("config_dir"))
    base = _base(name, rest, from_command_line, where)
    compose = partial(_compose, name, tuple(rest), where, str(Path.cwd()))
    written = _located(lambda: parameters_in(base.section("tunables")), base)
    given = parameters_in(space or {})
    found = ordered([*written, *_embedded(base.config), *given, *from_command_line])
    found, left_out = _settled(found, base.get)
    searched = {**base.section("search"), **(search or {})}
    how = _with_horizon(_located(lambda: settings.read(searched), base), base)
    target = ExperimentTarget(compose, population=how.scheduler in settings.POPULATIONS)
    title = f"{base.get('runtime.name') or name or base.algo.name}"
    env = getattr(base.env, "__name__", None) or base.environment.env
    _require_space(found, "rayfish tune cartpole 'training.lr=loguniform(1e-5,1e-2)'", left_out)
    _located(lambda: _check_keys(base, found), base, [parameter.key for parameter in from_command_line])
    seed = target.seed()
    return Plan(
        kind="experiment",
        name=str(base.runtime.name or f"tune-{_last_part(name) or base.algo.name}"),
        title=f"{title} · {base.algo.name} on {env}",
        target=target,
        space=found,
        search=how,
        metric=_metric_of(how, base),
        source={
            "experiment": _absolute(name),
            "words": list(rest),
            "config_name": where.get("config_name", "config"),
            "config_dir": str(Path(where["config_dir"]).absolute()) if where.get("config_dir") else None,
            "closest": bool(where.get("closest")),
            "cwd": str(Path.cwd()),
            "env": _named(where["env"]) if where.get("env") is not None else None,
        },
        seed=seed if how.seed is None else how.seed,
        seeds=seed,
        root=str(base.runtime.local_dir or "runs"),
        paths=base.paths,
        start=starting_points(how.start_from, found),
        notes=[
            *(note for note in base.notes if "`rayfish tune`" not in note),
            *left_out,
            *_horizon_note(how, names.ITERATION),
        ],
    )


def _base(name: str | None, words: list[str], varied: Space, where: Mapping[str, Any]) -> Experiment:
    """The experiment of a sweep; an algorithm that nothing names is chosen once, and added to the words."""
    base = Experiment.compose(name, words, **where)
    if "algo.name" not in varied.keys:
        base = with_fitting_algorithm(base)
        words += [f"algo.name={base.algo.name}"] if base.origin("algo.name") == CHOSEN else []
    return base


def of_function(
    function: Callable[..., Any] | str,
    space: Mapping[str, Any] | Space,
    *,
    config: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
    name: str | None = None,
    root: str = "runs",
    where: str = "",
) -> Plan:
    """A sweep over a function, given itself or by its import path (`module:function`, `file.py:function`).

    :param space: what varies; values that are no search space are handed to the function as they are
    :param config: more that the function is handed
    :param where: the file that describes the sweep
    """
    path = function if isinstance(function, str) else ""
    paths = [str(Path.cwd())]
    if isinstance(function, str):
        head = function.partition(":")[0]
        if head.endswith(".py"):
            paths.append(str(Path(head).absolute().parent))
        function = load_object(path, paths)
    if not callable(function):
        raise RayfishError(
            f"{path or function!r} is no function", "name one: module:function or file.py:function"
        )
    if isinstance(space, Space):
        found, fixed = space, dict(config or {})
    else:
        varying, fixed = _split(space)
        _require_no_typos(fixed)
        found, fixed = parameters_in(varying, "space"), {**fixed, **(config or {})}
    found, left_out = _settled(found, lambda key: tree.get(fixed, key) if key not in fixed else fixed[key])
    _require_space(found, 'rayfish.tune(function, {"x": "uniform(-1,1)"})', left_out)
    how = settings.read(search or {}, where)
    _travels(function)
    label = getattr(function, "__name__", type(function).__name__).strip("<>")
    target = FunctionTarget(function, fixed, resources_of(how.resources), how.metric or SCORE)
    return Plan(
        kind="function",
        name=name or f"tune-{label}",
        title=path or f"{getattr(function, '__module__', '')}:{label}".lstrip(":"),
        target=target,
        space=found,
        search=how,
        metric=how.metric or SCORE,
        source={"function": path or None, "config": _plain(fixed), "cwd": str(Path.cwd())},
        seed=how.seed or 0,
        root=root,
        paths=tuple(paths),
        start=starting_points(how.start_from, found),
        notes=[*left_out, *_horizon_note(how, target.step_name)],
    )


def of_program(
    program: Mapping[str, Any],
    space: Space,
    *,
    search: Mapping[str, Any] | None = None,
    name: str | None = None,
    root: str = "runs",
    where: str = "",
) -> Plan:
    """A sweep over a program.

    :param program: the `program` section: its command and where its metrics are
    :param where: the file that describes the sweep
    """
    from rayfish.sweep.program import Program

    how, notes = _counted_in_reports(settings.read(search or {}, where))
    problems = []
    if how.metric is None:
        what = "is not set, and a program has no metric of its own"
        hint = "name one that it writes: search.metric=rollout/ep_rew_mean"
        problems.append(Problem("search.metric", what, hint))
    _require_space(space, "rayfish tune --program 'python train.py --lr {lr}' 'lr=loguniform(1e-5,1e-2)'")
    target = Program.from_settings(program, space, how.resources, how.metric or "", where)
    if (how.scheduler in settings.PAUSING or how.method == "bohb") and not target.can_resume:
        what = f"{how.scheduler if how.method != 'bohb' else 'bohb'} lets trials wait and go on later"
        hint = 'set program.checkpoints and program.resume ("--load {checkpoint}"), or search.scheduler=asha'
        problems.append(Problem("program.resume", f"is not set, but {what}", hint))
    problems += target.problems()
    if problems:
        raise ConfigError(problems)
    return Plan(
        kind="program",
        name=name or "tune-program",
        title=target.title,
        target=target,
        space=space,
        search=how,
        metric=str(how.metric),
        source={"program": _plain(program), "cwd": str(Path.cwd())},
        seed=how.seed or 0,
        root=root,
        start=starting_points(how.start_from, space),
        notes=[*notes, *_horizon_note(how, "reports" if notes else target.step_name)],
    )


def resumed(
    folder: SweepDirectory,
    changes: Mapping[str, Any],
    function: Any = None,
    env: Any = None,
    config: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan of a sweep that is there already.

    :param changes: settings of the search that are to be other from now on
    :param function: the function again, where it was handed over from Python
    """
    data = folder.data
    began_in = Path(data["source"].get("cwd") or ".")
    with contextlib.chdir(began_in if began_in.is_dir() else "."):
        return _resumed(folder, changes, function, env, config)


def _resumed(
    folder: SweepDirectory, changes: Mapping[str, Any], function: Any, env: Any, config: Any
) -> Plan:
    data = folder.data
    source, kind = data["source"], data["kind"]
    search = {**data["search"], **changes, "start_from": []}
    space = parameters_in(data["space"], str(folder.path / "sweep.json"))
    if kind == "experiment":
        where = {key: source[key] for key in ("config_name", "config_dir", "closest")}
        name = source["experiment"]
        env = (
            env if env is not None or not source.get("env") else _kept(folder, f"env={source['env']}")["env"]
        )
        _require_unchanged(folder, name, source["words"], {**where, "env": env})
        plan = of_experiment(name, source["words"], space=data["space"], search=search, env=env, **where)
    elif kind == "program":
        plan = of_program(source["program"], space, search=search, name=data["name"])
    else:
        kept = _kept(folder, "function") if function is None and not source["function"] else {}
        kept = kept or _kept_or_not(folder)
        function = function or source["function"] or kept["function"]
        config = config or kept.get("config", source["config"])
        space = kept.get("space", space)
        plan = of_function(function, space, config=config, search=search, name=data["name"])
    return replace(plan, name=data["name"], seed=data["seed"], start=data.get("start") or [])


def keep_target(plan: Plan, folder: SweepDirectory) -> None:
    """What came from Python and has no name is kept itself, so that a resume finds it."""
    import cloudpickle

    if isinstance(plan.target, FunctionTarget):
        function = plan.target.function if plan.source["function"] is None else None
        kept = {"function": function, "config": plan.target.config, "space": plan.space}
        (folder.path / _TARGET).write_bytes(cloudpickle.dumps(kept))
    if isinstance(plan.target, ExperimentTarget):
        if plan.source["env"]:
            (folder.path / _TARGET).write_bytes(cloudpickle.dumps({"env": plan.target.base.env}))
        plan.target.base.save(folder.path / "base.yaml")
    folder.update(target_sha256=target_digest(folder.path))  # sweep.json is signed, this with it


def starting_points(wanted: Sequence[Any], space: Space) -> list[Mapping[str, Any]]:
    """Points to try first: given key by key, or the best of earlier sweeps and runs."""
    points: list[Mapping[str, Any]] = []
    for entry in sorted(wanted, key=lambda entry: not isinstance(entry, Mapping)):  # given ones first
        if isinstance(entry, Mapping):
            flat = dict(tree.leaves(dict(entry)))
            unknown = [key for key in flat if key not in space.keys]
            if unknown:
                close = did_you_mean(unknown[0], space.keys)
                hint = f"did you mean {close[0]}?" if close else f"the space has {', '.join(space.keys)}"
                raise ConfigError([Problem("search.start_from", f"there is no parameter {unknown[0]}", hint)])
            points.append(flat)
        else:
            found = _points_of(str(entry), space)
            points += [{k: v for k, v in point.items() if allowed(space[k], v)} for point in found]
    return points


def _points_of(text: str, space: Space) -> list[Mapping[str, Any]]:
    try:
        folder = SweepDirectory.open(find_sweep(text))
    except RunNotFound:
        file = Path(text)
        if not file.is_file():
            file = _run_named(text) / "config.yaml"
        experiment = Experiment.load(file)
        return [{key: experiment.get(key) for key in space.keys if experiment.get(key) is not None}]
    search = folder.data["search"]
    sign = -1.0 if search.get("mode") == "min" else 1.0
    trials = fold(read_events(folder.table_file), sign=sign, score=search.get("score", "last")).values()
    grouped: dict[int, list[Trial]] = {}
    for trial in trials:
        grouped.setdefault(trial.point, []).append(trial)
    compared = {n: comparable(of_it, sign, search.get("score", "last")) for n, of_it in grouped.items()}
    scores = {point: values for point, values in compared.items() if values}
    params = {trial.point: trial.params for trial in trials}
    ranked = sorted(scores, key=lambda point: -sign * sum(scores[point]) / len(scores[point]))
    best = [{key: params[point][key] for key in space.keys if key in params[point]} for point in ranked]
    unique = [point for i, point in enumerate(best) if point and point not in best[:i]]
    if not unique:
        raise RayfishError(f"the sweep {folder.path} has no finished trial to start from", "leave it out")
    return list(unique[:_BEST_OF_A_SWEEP])


def _located(work: Callable[[], _T], base: Experiment, from_command_line: Sequence[str] = ()) -> _T:
    """What `work` gives; its problems say which file and line, or word, they come from.

    :param from_command_line: keys that vary by a word of the command line
    """
    try:
        return work()
    except ConfigError as error:
        located = []
        for problem in error.problems:
            where = "command line" if problem.key in from_command_line else _written(base, problem.key)
            located.append(replace(problem, where=where))
        raise ConfigError(located) from None


def _written(base: Experiment, key: str) -> str:
    """Where a key is made to vary, in `tunables` or in its own place."""
    place = f"tunables.{key}"
    lines = [at for name, at in base.origins.items() if name == place or name.startswith(f"{place}.")]
    return lines[0] if lines else base.origin(key)


def _metric_of(search: Search, base: Experiment) -> str:
    """What counts in an experiment, by its name today.

    :raises ConfigError: no run reports it
    """
    key, written = "search.metric", search.metric or METRIC
    metric = todays_metric(written) or written
    where = base.origin(key)
    if not names.is_known(metric):
        close = did_you_mean(metric, names.fixed(), most=1)
        meant = f"did you mean {close[0]}? " if close else ""
        hint = f"{meant}there are {', '.join(names.fixed())}, and env/NAME for what an environment reports"
        raise ConfigError([Problem(key, f"no run reports a metric {metric!r}", hint, where)])
    if metric.startswith("eval/") and not base.get("evaluation.evaluation_interval"):
        what = f"{metric} is never reported: nothing is evaluated (evaluation.evaluation_interval is null)"
        raise ConfigError([Problem(key, what, "set evaluation.evaluation_interval=1", where)])
    return metric


def _with_horizon(search: Search, base: Experiment) -> Search:
    """Schedulers that ask how long a trial may become are told what the experiment says."""
    ends = {names.ITERATION: "training_iteration", names.ENV_STEPS: "timesteps_total"}
    condition = ends.get(search.time or names.ITERATION)
    asks = search.scheduler in ("asha", "hyperband") or search.method == "bohb"
    key = f"stop_conditions.{condition}"
    end = base.get(key)
    if not asks or condition is None or not isinstance(end, int | float) or end == defaults()[key]:
        return search
    return search.replace(scheduler_config={"max_t": int(end), **search.scheduler_config})


def _counted_in_reports(search: Search) -> tuple[Search, list[str]]:
    """Nobody knows how far a program counts: without a word on that, schedulers count its reports."""
    judged = search.scheduler not in ("none", "pruner") or search.method == "bohb"
    if not judged or search.time or _IN_STEPS & set(search.scheduler_config):
        return search, []
    name = search.scheduler if search.scheduler != "none" else search.method
    said = "to count the program's own steps, set search.scheduler_config.max_t or search.time=step"
    return search.replace(time=REPORTS), [f"{name} counts the program's reports; {said}"]


def _horizon_note(search: Search, counted: str) -> list[str]:
    """HyperBand needs to know how long a trial may become; a longer one is cut there."""
    if (search.scheduler != "hyperband" and search.method != "bohb") or "max_t" in search.scheduler_config:
        return []
    counted = search.time or counted
    return [f"HyperBand lets trials run to {MAX_T} ({counted}) at most: search.scheduler_config.max_t"]


def _run_named(text: str) -> Path:
    from rayfish.run.directory import find_run

    try:
        return find_run(text)
    except RunNotFound as error:
        what = f"{text!r} is neither a sweep nor a run"
        raise ConfigError(
            [Problem("search.start_from", what, error.hint or "name one, or a point")]
        ) from None


def _compose(
    name: str | None, words: tuple[str, ...], where: Mapping[str, Any], cwd: str, more: tuple[str, ...]
) -> Experiment:
    with contextlib.chdir(cwd):  # a resumed sweep's words may name files from where it was begun
        experiment = Experiment.compose(name, (*words, *more), **where)
    config = {key: value for key, value in experiment.config.items() if key != "tunables"}
    return replace(experiment, config={**config, "tunables": {}})


def _embedded(config: Mapping[str, Any]) -> Iterator[Parameter]:
    """Search spaces written in place of a value: `training: {lr: {grid_search: [1e-3, 1e-4]}}`."""
    problems: list[Problem] = []
    from rayfish.sweep.space import read

    def walk(value: Any, path: tuple[str, ...]) -> Iterator[Parameter | None]:
        own = any(part in _USERS_OWN for part in path)
        is_one = (
            is_parameter(value) if not own else isinstance(value, Mapping) and set(value) == {"grid_search"}
        )
        if is_one:
            yield read(".".join(path), value, problems)
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                yield from walk(inner, (*path, str(key)))

    for section, values in config.items():
        if section not in ("tunables", "search"):
            yield from (parameter for parameter in walk(values, (section,)) if parameter is not None)
    if problems:
        raise ConfigError(problems)


def _settled(space: Space, fixed_value: Callable[[str], Any]) -> tuple[Space, list[str]]:
    """Conditions on keys that do not vary are settled now, by the values they have.

    Gives the space that remains, and a sentence about each parameter that is left out.
    """
    kept, left_out = [], []
    for parameter in space:
        fixed = [(key, allowed) for key, allowed in parameter.when if key not in space.keys]
        if all(fixed_value(key) in allowed for key, allowed in fixed):
            kept.append(replace(parameter, when=tuple(w for w in parameter.when if w not in fixed)))
        else:
            why = ", ".join(f"{key} is {fixed_value(key)}" for key, _ in fixed)
            left_out.append(f"{parameter.key} is left out, its condition does not hold: {why}")
    return Space(tuple(kept)), left_out


def _check_keys(base: Experiment, space: Space) -> None:
    """Every parameter is a key that the experiment has, and its values are ones that the key takes.

    :raises ConfigError: with all that is wrong
    """
    problems: dict[str, Problem] = {}
    for parameter in space:
        section = parameter.key.partition(".")[0]
        if "/" in parameter.key or (section == "training" and "algo.name" in space.keys):
            continue  # a group, or a key of one of several algorithms: the trial checks it
        if section not in SECTIONS or section in ("search", "tunables", "cli"):
            close = did_you_mean(section, SECTIONS)
            hint = f"did you mean {close[0]}?" if close else "`rayfish config keys` lists the sections"
            problems[parameter.key] = Problem(
                parameter.key, f"there is no section {section!r} to search", hint
            )
            continue
        if parameter.kind == "sample_from":
            continue  # what it gives is known with a point
        samples = parameter.values[:_MOST_CHECKED] if parameter.is_list else parameter.bounds
        for value in samples:
            tried = base.with_overrides([word(parameter.key, parameter.rounded(value))])
            for problem in key_problems(tried):
                if problem.key == parameter.key or problem.key.startswith(f"{parameter.key}."):
                    problems.setdefault(parameter.key, problem)
    if problems:
        raise ConfigError(list(problems.values()))


def _require_unchanged(
    folder: SweepDirectory, name: str | None, words: list[str], where: dict[str, Any]
) -> None:
    """New trials of a resumed sweep must be comparable with its old ones."""
    kept = folder.path / "base.yaml"
    if not kept.is_file():
        return
    was = dict(tree.leaves(Experiment.load(kept).config))
    now = dict(tree.leaves(_compose(name, tuple(words), where, str(Path.cwd()), ()).config))
    ignored = ("search.", "tunables", "runtime.")
    changed = [key for key in {**was, **now} if was.get(key) != now.get(key) and not key.startswith(ignored)]
    if changed:
        lines = ", ".join(f"{key} was {was.get(key)}, is {now.get(key)}" for key in changed[:5])
        raise RayfishError(
            f"the experiment {name or ''} has changed since the sweep began: {lines}",
            "put it back, or begin a new sweep with search.start_from=[this one]",
        )


def _kept(folder: SweepDirectory, what: str) -> dict[str, Any]:
    """What `keep_target` kept.

    :raises RayfishError: it cannot be read back
    """
    import pickle

    try:
        return dict(pickle.loads((folder.path / _TARGET).read_bytes()))
    except Exception as error:
        raise RayfishError(
            f"the {what} of {folder.path} was given from Python and cannot be read back: "
            f"{type(error).__name__}: {error}",
            "resume from Python and give it again: rayfish.tune(function, resume=folder), or env=",
        ) from None


def _kept_or_not(folder: SweepDirectory) -> dict[str, Any]:
    """The same where `sweep.json` has all of it in words, too."""
    try:
        return _kept(folder, "function")
    except RayfishError:
        return {}


def _named(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', type(thing).__name__)}"


def _travels(function: Callable[..., Any]) -> None:
    """A function in a file that workers cannot import by name travels with its code."""
    import importlib.util
    import sys

    import cloudpickle

    module = sys.modules.get(getattr(function, "__module__", "") or "")
    if module is None or module.__name__ == "__main__":
        return
    try:
        known = importlib.util.find_spec(module.__name__) is not None
    except (ImportError, ValueError):
        known = False
    if not known or not hasattr(module, "__file__") or os.sep not in str(module.__file__):
        cloudpickle.register_pickle_by_value(module)


def _require_no_typos(fixed: Mapping[str, Any]) -> None:
    """A text that looks like a search space, and is none, was meant to be one."""
    problems = [Problem(key, *wrong) for key, value in fixed.items() if (wrong := mistyped(value))]
    if problems:
        raise ConfigError(problems)


def _split(space: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What varies, and what does not, of a Python dictionary."""
    varying: dict[str, Any] = {}
    fixed: dict[str, Any] = {}

    def walk(values: Mapping[str, Any], prefix: str) -> None:
        for key, value in values.items():
            dotted = f"{prefix}{key}"
            if is_parameter(value):
                varying[dotted] = value
            elif isinstance(value, Mapping):
                walk(value, f"{dotted}.")
            else:
                fixed[dotted] = value

    walk(space, "")
    return varying, fixed


def _require_space(space: Space, example: str, left_out: Sequence[str] = ()) -> None:
    if not len(space):
        what = "; ".join(["there is nothing to search: no parameter varies", *left_out])
        raise NothingToSearch(what, f"for example: {example}")


def _last_part(name: str | None) -> str:
    return Path(name.partition(":")[0]).stem if name else ""


def _absolute(name: str | None) -> str | None:
    return str(Path(name).absolute()) if name and Path(name).is_file() else name


def _plain(value: Any) -> Any:
    """Values as JSON can hold them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
