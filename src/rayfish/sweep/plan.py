"""A sweep before it begins: what is tuned, what varies, how it is searched, what is scored."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rayfish.algorithm.keys import key_problems
from rayfish.errors import ConfigError, Problem, RayfishError, RunNotFound, did_you_mean
from rayfish.experiment import Experiment, tree
from rayfish.experiment.imports import load_object
from rayfish.experiment.overrides import split_words
from rayfish.experiment.result_names import todays_metric
from rayfish.experiment.sections import SECTIONS, defaults
from rayfish.experiment.words import word
from rayfish.metrics import names
from rayfish.run.choose import CHOSEN, with_fitting_algorithm
from rayfish.run.directory import find_run
from rayfish.run.trust import target_digest
from rayfish.sweep import settings
from rayfish.sweep.amounts import resources_of
from rayfish.sweep.directory import SweepDirectory, find_sweep
from rayfish.sweep.experiment import METRIC, ExperimentTarget
from rayfish.sweep.function import SCORE, FunctionTarget
from rayfish.sweep.program.settings import REPORTS
from rayfish.sweep.records import finite, plain
from rayfish.sweep.schedulers import MAX_T
from rayfish.sweep.searchers import method_of
from rayfish.sweep.searchers.base import allowed
from rayfish.sweep.settings import DEFAULT_SAMPLES, PAUSING, POPULATIONS, Search
from rayfish.sweep.space import Parameter, Space, from_words, is_parameter, ordered, parameters_in
from rayfish.sweep.space import read as read_parameter
from rayfish.sweep.task import Target
from rayfish.sweep.view import stored_view

_TARGET = "target.pkl"
_BEST_OF_A_SWEEP = 3
_IN_STEPS = {"max_t", "grace_period", "perturbation_interval", "burn_in_period", "min_time_slice"}
_USERS_OWN = ("env_config", "custom_model_config", "simulation")
_MOST_CHECKED = 12


class NothingToSearch(RayfishError):
    """A sweep in which no parameter varies."""


@dataclass
class Plan:
    """One sweep.

    :param kind: experiment, function or program
    :param metric: the score, by its name in a report
    :param source: what the target is made from, for a resume
    :param seed: of the search
    :param seeds: the first of the seeds of a point's repetitions
    :param paths: folders where the user's modules are
    :param notes: lines for the user to see first
    """

    kind: str
    name: str
    title: str
    target: Target
    space: Space
    search: Search
    metric: str
    source: dict[str, Any]
    seed: int
    seeds: int = 0
    root: str = "runs"
    paths: tuple[str, ...] = ()
    start: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def time(self) -> str:
        """What schedulers count."""
        return self.search.time or self.target.step_name

    @property
    def population(self) -> bool:
        """Whether all trials run side by side and learn from each other."""
        return self.search.scheduler in POPULATIONS

    @property
    def points(self) -> int:
        """How many points are tried."""
        if method_of(self.search, self.space) == "grid":
            return len(self.space.grid) * (self.search.num_samples or 1)
        return self.search.num_samples or DEFAULT_SAMPLES

    def with_score(self, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
        """Where no metric is set, a function's only number is its score, whatever its name."""
        if self.metric in metrics or self.search.metric is not None or self.kind != "function":
            return metrics
        ours = ("step", self.target.step_name)
        numbers = [value for key, value in metrics.items() if key not in ours and finite(value) is not None]
        return {**metrics, self.metric: numbers[0]} if len(numbers) == 1 else metrics

    def keep_target(self, folder: SweepDirectory) -> None:
        """Saves what came from Python and has no name, so that a resume finds it."""
        import cloudpickle

        if isinstance(self.target, FunctionTarget):
            function = self.target.function if self.source["function"] is None else None
            kept = {"function": function, "config": self.target.config, "space": self.space}
            (folder.path / _TARGET).write_bytes(cloudpickle.dumps(kept))
        if isinstance(self.target, ExperimentTarget):
            if self.source["env"]:
                (folder.path / _TARGET).write_bytes(cloudpickle.dumps({"env": self.target.base.env}))
            self.target.base.save(folder.path / "base.yaml")
        folder.update(target_sha256=target_digest(folder.path))  # sweep.json is signed, this with it


def of_experiment(
    name: str | None,
    words: Sequence[str] = (),
    *,
    space: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
    **where: Any,
) -> Plan:
    """A sweep over an experiment.

    :param words: `key=value`, and `key=loguniform(1e-5,1e-2)` for what varies
    :param search: settings that override the experiment's `search` section
    :param where: more arguments of `Experiment.compose`: config_name, config_dir, env, closest
    """
    rest, from_command_line = from_words(words)
    name, rest = split_words(rest, where.get("config_dir"), name)
    base = Experiment.compose(name, rest, **where)
    if "algo.name" not in from_command_line.keys:
        base = with_fitting_algorithm(base)
        rest += [f"algo.name={base.algo.name}"] if base.origin("algo.name") == CHOSEN else []
    with _located(base):
        written = parameters_in(base.section("tunables"))
    found = ordered([*written, *_embedded(base.config), *parameters_in(space or {}), *from_command_line])
    found, left_out = _settled(found, base.get)
    with _located(base):
        how = _with_horizon(settings.read({**base.section("search"), **(search or {})}), base)
    _require_space(found, "rayfish tune cartpole 'training.lr=loguniform(1e-5,1e-2)'", left_out)
    with _located(base, from_command_line.keys):
        _check_keys(base, found)
    compose = partial(_compose, name, tuple(rest), where, str(Path.cwd()))
    target = ExperimentTarget(compose, population=how.scheduler in POPULATIONS)
    env, config_dir, seed = where.get("env"), where.get("config_dir"), target.seed()
    label = Path(name.partition(":")[0]).stem if name else base.algo.name
    title = base.runtime.name or name or base.algo.name
    notes = [note for note in base.notes if "`rayfish tune`" not in note]
    return Plan(
        kind="experiment",
        name=str(base.runtime.name or f"tune-{label}"),
        title=f"{title} · {base.algo.name} on {getattr(base.env, '__name__', None) or base.environment.env}",
        target=target,
        space=found,
        search=how,
        metric=_metric_of(how, base),
        source={
            "experiment": str(Path(name).absolute()) if name and Path(name).is_file() else name,
            "words": list(rest),
            "config_name": where.get("config_name", "config"),
            "config_dir": str(Path(config_dir).absolute()) if config_dir else None,
            "closest": bool(where.get("closest")),
            "cwd": str(Path.cwd()),
            "env": None if env is None else plain(env),
        },
        seed=seed if how.seed is None else how.seed,
        seeds=seed,
        root=str(base.runtime.local_dir or "runs"),
        paths=base.paths,
        start=starting_points(how.start_from, found),
        notes=[*notes, *left_out, *_horizon_note(how, names.ITERATION)],
    )


def of_function(
    function: Callable[..., Any] | str,
    space: Space,
    config: Mapping[str, Any],
    *,
    search: Mapping[str, Any],
    name: str | None = None,
    root: str = "runs",
    where: str = "",
) -> Plan:
    """A sweep over a function, given itself or by its import path (`module:function`, `file.py:function`).

    :param config: more values for the function, which do not vary
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
        hint = "name one: module:function or file.py:function"
        raise RayfishError(f"{path or function!r} is no function", hint)
    space, left_out = _settled(space, lambda key: config[key] if key in config else tree.get(config, key))
    _require_space(space, 'rayfish.tune(function, {"x": "uniform(-1,1)"})', left_out)
    how = settings.read(search, where)
    _travels(function)
    label = getattr(function, "__name__", type(function).__name__).strip("<>")
    target = FunctionTarget(function, dict(config), resources_of(how.resources), how.metric or SCORE)
    return Plan(
        kind="function",
        name=name or f"tune-{label}",
        title=path or f"{getattr(function, '__module__', '')}:{label}".lstrip(":"),
        target=target,
        space=space,
        search=how,
        metric=how.metric or SCORE,
        source={"function": path or None, "config": _plain(config), "cwd": str(Path.cwd())},
        seed=how.seed or 0,
        root=root,
        paths=tuple(paths),
        start=starting_points(how.start_from, space),
        notes=[*left_out, *_horizon_note(how, target.step_name)],
    )


def of_program(
    program: Mapping[str, Any],
    space: Space,
    *,
    search: Mapping[str, Any],
    name: str | None = None,
    root: str = "runs",
    where: str = "",
) -> Plan:
    """A sweep over a program.

    :param where: the file that describes the sweep
    """
    from rayfish.sweep.program import Program

    how, notes = _counted_in_reports(settings.read(search, where))
    problems = []
    if how.metric is None:
        what = "is not set, and a program has no metric of its own"
        hint = "name one that it writes: search.metric=rollout/ep_rew_mean"
        problems.append(Problem("search.metric", what, hint))
    _require_space(space, "rayfish tune --program 'python train.py --lr {lr}' 'lr=loguniform(1e-5,1e-2)'")
    target = Program(program, how.resources, how.metric, where)
    if (how.scheduler in PAUSING or how.method == "bohb") and not target.can_resume:
        what = f"{how.scheduler if how.method != 'bohb' else 'bohb'} lets trials wait and go on later"
        hint = 'set program.checkpoints and program.resume ("--load {checkpoint}"), or search.scheduler=asha'
        problems.append(Problem("program.resume", f"is not set, but {what}", hint))
    problems += target.problems(space.keys)
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


def of_resumed(
    folder: SweepDirectory,
    changes: Mapping[str, Any],
    function: Any = None,
    env: Any = None,
    config: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan of a sweep that exists.

    :param changes: settings of the search that change from now on
    :param function: the function again, where it was given from Python
    """
    data = folder.data
    source, kind = data["source"], data["kind"]
    search = {**data["search"], **changes, "start_from": []}
    space = parameters_in(data["space"], str(folder.path / "sweep.json"))
    began_in = Path(source.get("cwd") or ".")
    with chdir(began_in if began_in.is_dir() else "."):
        if kind == "experiment":
            if env is None and source.get("env"):
                env = _kept(folder, f"env={source['env']}")["env"]
            where = {key: source[key] for key in ("config_name", "config_dir", "closest")} | {"env": env}
            _require_unchanged(folder, source["experiment"], source["words"], where)
            plan = of_experiment(
                source["experiment"], source["words"], space=data["space"], search=search, **where
            )
        elif kind == "program":
            plan = of_program(source["program"], space, search=search)
        else:
            kept: dict[str, Any] = {}
            try:
                kept = _kept(folder, "function")
            except RayfishError:
                if function is None and not source["function"]:  # else sweep.json has all of it in words
                    raise
            function = function or source["function"] or kept["function"]
            config = config or kept.get("config", source["config"])
            plan = of_function(function, kept.get("space", space), config or {}, search=search)
    return replace(plan, name=data["name"], seed=data["seed"], start=data.get("start") or [])


def starting_points(wanted: Sequence[Any], space: Space) -> list[Mapping[str, Any]]:
    """Points to try first: given key by key, or the best of earlier sweeps and runs."""
    points: list[Mapping[str, Any]] = []
    for entry in sorted(wanted, key=lambda entry: not isinstance(entry, Mapping)):  # given ones first
        if isinstance(entry, Mapping):
            points.append(dict(tree.leaves(dict(entry))))
        else:
            found = _points_of(str(entry), space)
            points += [{k: v for k, v in point.items() if allowed(space[k], v)} for point in found]
    return points


def _points_of(text: str, space: Space) -> list[Mapping[str, Any]]:
    """The best points of a sweep, or the one of a run or its file."""
    try:
        folder = SweepDirectory.open(find_sweep(text))
    except RunNotFound:
        file = Path(text)
        try:
            file = file if file.is_file() else find_run(text) / "config.yaml"
        except RunNotFound as error:
            what, hint = f"{text!r} is neither a sweep nor a run", error.hint or "name one, or a point"
            raise ConfigError([Problem("search.start_from", what, hint)]) from None
        experiment = Experiment.load(file)
        return [{key: experiment.get(key) for key in space.keys if experiment.get(key) is not None}]
    view = stored_view(folder)
    scored = [(point.value, point.params) for point in view.points() if point.value is not None]
    ranked = sorted(scored, key=lambda pair: -view.search.sign * pair[0])
    best = [{key: params[key] for key in space.keys if key in params} for _, params in ranked]
    unique = [point for i, point in enumerate(best) if point and point not in best[:i]]
    if not unique:
        raise RayfishError(f"the sweep {folder.path} has no finished trial to start from", "leave it out")
    return list(unique[:_BEST_OF_A_SWEEP])


@contextmanager
def _located(base: Experiment, from_command_line: Sequence[str] = ()) -> Iterator[None]:
    """Adds to problems which file and line, or word, they come from.

    :param from_command_line: keys that vary by a word of the command line
    """

    def where(key: str) -> str:
        if key in from_command_line:
            return "command line"
        place = f"tunables.{key}"
        lines = [at for name, at in base.origins.items() if name == place or name.startswith(f"{place}.")]
        return lines[0] if lines else base.origin(key)

    try:
        yield
    except ConfigError as error:
        raise ConfigError([replace(one, where=where(one.key)) for one in error.problems]) from None


def _metric_of(search: Search, base: Experiment) -> str:
    """The metric of an experiment, by its name today.

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
    """Schedulers that need to know how long a trial may become take it from the experiment."""
    ends = {names.ITERATION: "training_iteration", names.ENV_STEPS: "timesteps_total"}
    condition = ends.get(search.time or names.ITERATION)
    needs_horizon = search.scheduler in ("asha", "hyperband") or search.method == "bohb"
    key = f"stop_conditions.{condition}"
    end = base.get(key)
    if not needs_horizon or condition is None or not isinstance(end, int | float) or end == defaults()[key]:
        return search
    return search.replace(scheduler_config={"max_t": int(end), **search.scheduler_config})


def _counted_in_reports(search: Search) -> tuple[Search, list[str]]:
    """How far a program counts is unknown: unless set otherwise, schedulers count its reports."""
    judged = search.scheduler not in ("none", "pruner") or search.method == "bohb"
    if not judged or search.time or _IN_STEPS & set(search.scheduler_config):
        return search, []
    name = search.scheduler if search.scheduler != "none" else search.method
    hint = "to count the program's own steps, set search.scheduler_config.max_t or search.time=step"
    return search.replace(time=REPORTS), [f"{name} counts the program's reports; {hint}"]


def _horizon_note(search: Search, counted: str) -> list[str]:
    """HyperBand needs to know how long a trial may become; a longer one is cut there."""
    if (search.scheduler != "hyperband" and search.method != "bohb") or "max_t" in search.scheduler_config:
        return []
    counted = search.time or counted
    return [f"HyperBand lets trials run to {MAX_T} ({counted}) at most: search.scheduler_config.max_t"]


def _compose(
    name: str | None, words: tuple[str, ...], where: Mapping[str, Any], cwd: str, more: tuple[str, ...]
) -> Experiment:
    with chdir(cwd):  # a resumed sweep's words may name files relative to its first folder
        experiment = Experiment.compose(name, (*words, *more), **where)
    return replace(experiment, config={**experiment.config, "tunables": {}})


def _embedded(config: Mapping[str, Any]) -> Iterator[Parameter]:
    """Search spaces written in place of a value: `training: {lr: {grid_search: [1e-3, 1e-4]}}`."""
    problems: list[Problem] = []

    def walk(value: Any, path: tuple[str, ...]) -> Iterator[Parameter | None]:
        if any(part in _USERS_OWN for part in path):
            varies = isinstance(value, Mapping) and set(value) == {"grid_search"}
        else:
            varies = is_parameter(value)
        if varies:
            yield read_parameter(".".join(path), value, problems)
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                yield from walk(inner, (*path, str(key)))

    for section, values in config.items():
        if section not in ("tunables", "search"):
            yield from (parameter for parameter in walk(values, (section,)) if parameter is not None)
    if problems:
        raise ConfigError(problems)


def _settled(space: Space, fixed_value: Callable[[str], Any]) -> tuple[Space, list[str]]:
    """Settles conditions on keys that do not vary, by the values these have.

    Returns the space that remains, and a sentence about each parameter that is left out.
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
    """Every parameter is a key of the experiment, and its values are ones that the key takes.

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
            what = f"there is no section {section!r} to search"
            problems[parameter.key] = Problem(parameter.key, what, hint)
            continue
        if parameter.kind == "sample_from":
            continue  # its value is known with a point
        samples = parameter.values[:_MOST_CHECKED] if parameter.is_list else parameter.bounds
        for value in samples:
            tried = base.with_overrides([word(parameter.key, parameter.rounded(value))])
            for problem in key_problems(tried):
                if problem.key == parameter.key or problem.key.startswith(f"{parameter.key}."):
                    problems.setdefault(parameter.key, problem)
    if problems:
        raise ConfigError(list(problems.values()))


def _require_unchanged(
    folder: SweepDirectory, name: str | None, words: list[str], where: Mapping[str, Any]
) -> None:
    """New trials of a resumed sweep must be comparable with its old ones."""
    kept = folder.path / "base.yaml"
    if not kept.is_file():
        return
    was = dict(tree.leaves(Experiment.load(kept).config))
    now = dict(tree.leaves(_compose(name, tuple(words), where, ".", ()).config))
    ignored = ("search.", "tunables", "runtime.")
    changed = [key for key in {**was, **now} if was.get(key) != now.get(key) and not key.startswith(ignored)]
    if changed:
        lines = ", ".join(f"{key} was {was.get(key)}, is {now.get(key)}" for key in changed[:5])
        raise RayfishError(
            f"the experiment {name or ''} has changed since the sweep began: {lines}",
            "put it back, or begin a new sweep with search.start_from=[this one]",
        )


def _kept(folder: SweepDirectory, what: str) -> dict[str, Any]:
    """What `Plan.keep_target` saved.

    :raises RayfishError: it cannot be read back
    """
    try:
        return dict(pickle.loads((folder.path / _TARGET).read_bytes()))
    except Exception as error:
        raise RayfishError(
            f"the {what} of {folder.path} was given from Python and cannot be read back: "
            f"{type(error).__name__}: {error}",
            "resume from Python and give it again: rayfish.tune(function, resume=folder), or env=",
        ) from None


def _travels(function: Callable[..., Any]) -> None:
    """Lets a function that workers cannot import by name be pickled with its code."""
    import cloudpickle

    module = sys.modules.get(getattr(function, "__module__", "") or "")
    if module is None or module.__name__ == "__main__":
        return
    try:
        known = importlib.util.find_spec(module.__name__) is not None
    except (ImportError, ValueError):
        known = False
    if not known or os.sep not in str(getattr(module, "__file__", "")):
        cloudpickle.register_pickle_by_value(module)


def _require_space(space: Space, example: str, left_out: Sequence[str] = ()) -> None:
    if not len(space):
        what = "; ".join(["there is nothing to search: no parameter varies", *left_out])
        raise NothingToSearch(what, f"for example: {example}")


def _plain(values: Mapping[str, Any]) -> Any:
    """Values as JSON can hold them."""
    return json.loads(json.dumps(values, default=str))
