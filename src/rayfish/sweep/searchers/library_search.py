"""HyperOpt, BayesOpt, Nevergrad, Ax and BOHB, each through its library's own interface.

A library sees neutral names and the codes of `Axis`, so neither dots in keys nor lists and dictionaries
among the values mean anything to it. A resumed method is given the recorded points as if it had proposed
them, with their scores.
"""

from __future__ import annotations

import importlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from rayfish.errors import ConfigError, MissingExtra, Problem, RayfishError, did_you_mean
from rayfish.sweep.records import finite
from rayfish.sweep.searchers.base import (
    CATEGORY,
    METHOD_CONFIG,
    REAL,
    WHOLE,
    Axis,
    Known,
    Searcher,
    axes,
    built,
    check_settings,
    generator,
    isolated,
)
from rayfish.sweep.settings import DEFAULT_SAMPLES, Search
from rayfish.sweep.space import Space

_METRIC = "score"


class LibrarySearcher(Searcher):
    """A method of another library.

    The library sees every parameter that has a choice, also where its condition does not hold. What starting
    points leave out is drawn at random.

    :raises MissingExtra: where the library is not installed
    :raises ConfigError: for parameters or settings that the method cannot take
    """

    name: ClassVar[str]
    package: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]
    settings: ClassVar[tuple[str, ...]]

    def __init__(self, search: Search, space: Space, start: Sequence[Mapping[str, Any]], seed: int) -> None:
        super().__init__(search, space, start, seed)
        for module in self.modules:
            require(module, self.package, f"tune-{self.name}", f"search.method={self.name}")
        chosen = [axis for axis in axes(space) if axis.form == REAL or axis.size > 1]
        self._axes = {f"p{index}": axis for index, axis in enumerate(chosen)}
        self._config = dict(search.method_config)
        check_settings(self._config, self.settings, METHOD_CONFIG, f"the method {self.name}")
        self._asked: dict[int, Any] = {}  # what the library knows each open point by
        self._restart(seed)

    def ask(self, number: int) -> dict[str, Any] | None:
        """The method's proposal; a random point where it has none before it knows more scores."""
        given, values = self._start_point(number), {}
        if self._axes:
            codes = None if number <= len(self._start) else self._proposed(number)
            codes = self._added(number, given) if codes is None else codes
            values = {axis.parameter.key: _value(axis, codes[name]) for name, axis in self._axes.items()}
        return self._space.completed(values | dict(given), generator(self._seed, number))

    def tell(self, number: int, value: float | None, *, pruned: bool = False) -> None:
        """The final score; a failed point is withdrawn."""
        if number in self._asked:
            usable = value is not None and math.isfinite(value)
            with isolated(self._seed, number):
                self._learn(self._asked.pop(number), value if usable else None)

    def recall(self, points: Sequence[Known]) -> None:
        """Gives the method the recorded points as its own, with their scores."""
        if points and self._axes:
            # The same sequence would begin with the same points.
            self._restart(self._seed + 7919 * len(points))
            super().recall(points)

    def _take(self, number: int, params: Mapping[str, Any]) -> None:
        self._added(number, params)

    def _restart(self, seed: int) -> None:
        if self._axes:
            with isolated(seed):
                built(self._open, {"seed": seed}, METHOD_CONFIG, f"the method {self.name}")

    def _proposed(self, number: int) -> Mapping[str, Any] | None:
        with isolated(self._seed, number):
            try:
                found = self._propose(number)
            except Exception as error:
                why = str(error) or type(error).__name__
                what = f"the method {self.name} could not propose point {number}: {why}"
                hint = "set search.method=optuna, or change search.method_config"
                raise RayfishError(what, hint) from error
        if found is None:
            return None
        self._asked[number], codes = found
        return codes

    def _added(self, number: int, params: Mapping[str, Any]) -> dict[str, Any]:
        """Makes a point the method's own; what is left out or not active gets a random value."""
        rng, codes = generator(self._seed, number), {}
        for name, axis in self._axes.items():
            key = axis.parameter.key
            codes[name] = axis.encode(params[key] if key in params else axis.parameter.sample(rng, {}))
        with isolated(self._seed, number):
            self._asked[number] = self._add(number, codes)
        return codes

    @abstractmethod
    def _open(self, seed: int) -> None:
        """Makes the library's optimizer."""

    @abstractmethod
    def _propose(self, number: int) -> tuple[Any, Mapping[str, Any]] | None:
        """A new point as the library knows it, and its codes; None where the library has none now."""

    @abstractmethod
    def _add(self, number: int, codes: dict[str, Any]) -> Any:
        """Makes a point one that the library has proposed; returns it as the library knows it."""

    @abstractmethod
    def _learn(self, point: Any, value: float | None) -> None:
        """Tells the library the score of a point; None where it failed."""


class HyperOptSearcher(LibrarySearcher):
    """HyperOpt's tree-structured Parzen estimator."""

    name, package, modules = "hyperopt", "hyperopt", ("hyperopt",)
    settings = ("n_initial_points", "gamma")

    def _open(self, seed: int) -> None:
        from hyperopt import Domain, Trials, hp

        def distribution(name: str, axis: Axis) -> Any:
            if axis.form == CATEGORY:
                return hp.choice(name, range(axis.size))
            if not axis.log:
                return (hp.uniform if axis.form == REAL else hp.uniformint)(name, axis.low, axis.high)
            low, high = math.log(axis.low), math.log(axis.high)
            return hp.loguniform(name, low, high) if axis.form == REAL else hp.qloguniform(name, low, high, 1)

        space = {name: distribution(name, axis) for name, axis in self._axes.items()}
        self._domain, self._trials = Domain(lambda point: point, space), Trials()

    def _propose(self, number: int) -> tuple[Any, Mapping[str, Any]]:
        from hyperopt import tpe
        from hyperopt.base import spec_from_misc

        seed = np.random.RandomState([self._seed % 2**32, number]).randint(2**31 - 1)
        settings = {
            "n_startup_jobs": self._config.get("n_initial_points", 10),
            "gamma": self._config.get("gamma", 0.25),
        }
        ids = self._trials.new_trial_ids(1)
        self._trials.refresh()
        trial = self._insert(tpe.suggest(ids, self._domain, self._trials, seed, **settings)[0])
        return trial, spec_from_misc(trial["misc"])

    def _add(self, number: int, codes: dict[str, Any]) -> Any:
        from hyperopt.fmin import generate_trial

        return self._insert(generate_trial(self._trials.new_trial_ids(1)[0], codes))

    def _insert(self, trial: Any) -> Any:
        self._trials.insert_trial_doc(trial)
        self._trials.refresh()
        return self._trials.trials[-1]  # HyperOpt's own copy

    def _learn(self, point: Any, value: float | None) -> None:
        from hyperopt import JOB_STATE_DONE, JOB_STATE_ERROR

        point["state"] = JOB_STATE_ERROR if value is None else JOB_STATE_DONE
        if value is not None:
            point["result"] = {"loss": -self._search.sign * value, "status": "ok"}
        self._trials.refresh()


class NevergradSearcher(LibrarySearcher):
    """Nevergrad; by default its OnePlusOne, which suits few points and several at a time.

    NGOpt, which picks an algorithm by itself, picks some that fail with today's NumPy. The algorithms
    keep their own state: resumed, they go on from the recorded scores, not to the digit.
    """

    name, package, modules = "nevergrad", "nevergrad", ("nevergrad",)
    settings = ("optimizer", "budget", "num_workers")

    def _open(self, seed: int) -> None:
        import nevergrad

        config = {"budget": self._search.num_samples or DEFAULT_SAMPLES, "num_workers": 8} | self._config
        name, known = str(config.pop("optimizer", "OnePlusOne")), nevergrad.optimizers.registry
        if name not in known:
            close = " or ".join(did_you_mean(name, known))
            hint = f"did you mean {close}?" if close else "for example OnePlusOne, CMA, TBPSA, DE"
            what = f"Nevergrad has no optimizer {name!r}"
            raise ConfigError([Problem(f"{METHOD_CONFIG}.optimizer", what, hint)])

        def parameter(axis: Axis) -> Any:
            if axis.form == CATEGORY:
                return nevergrad.p.Choice(range(axis.size))
            kind, base = (nevergrad.p.Log, {"exponent": math.e}) if axis.log else (nevergrad.p.Scalar, {})
            number = kind(lower=axis.low, upper=axis.high, **base)
            return number.set_integer_casting() if axis.form == WHOLE else number

        space = nevergrad.p.Dict(**{name: parameter(axis) for name, axis in self._axes.items()})
        space.random_state.seed(seed % 2**32)
        config["num_workers"] = max(2, int(config["num_workers"]))  # with 1, asking before telling hangs
        self._optimizer = known[name](space, **config)

    def _propose(self, number: int) -> tuple[Any, Mapping[str, Any]]:
        self._optimizer.parametrization.random_state.seed([self._seed % 2**32, number])
        point = self._optimizer.ask()
        return point, point.value

    def _add(self, number: int, codes: dict[str, Any]) -> Any:
        self._optimizer.suggest(codes)
        return self._optimizer.ask()

    def _learn(self, point: Any, value: float | None) -> None:
        if value is not None:
            self._optimizer.tell(point, -self._search.sign * value)


class AxSearcher(LibrarySearcher):
    """Ax: Sobol points first, then Gaussian processes.

    Ax keeps its own random numbers: resumed, it goes on from the recorded scores, not to the digit.
    """

    name, package, modules = "ax", "ax-platform", ("ax",)
    settings = ("parameter_constraints", "outcome_constraints", "enforce_sequential_optimization")

    def _open(self, seed: int) -> None:
        from ax.service.ax_client import AxClient, ObjectiveProperties

        def parameter(name: str, axis: Axis) -> dict[str, Any]:
            if axis.form == CATEGORY:
                values = list(range(axis.size))
                return {"name": name, "type": "choice", "values": values, "is_ordered": False}
            kind = {"value_type": "int" if axis.form == WHOLE else "float", "log_scale": axis.log}
            return {"name": name, "type": "range", "bounds": [axis.low, axis.high], **kind}

        config = {"enforce_sequential_optimization": False} | self._config
        constraints = {key: config.pop(key, None) for key in ("parameter_constraints", "outcome_constraints")}
        self._client = AxClient(random_seed=seed % 2**31, verbose_logging=False, **config)
        self._client.create_experiment(
            parameters=[parameter(name, axis) for name, axis in self._axes.items()],
            objectives={_METRIC: ObjectiveProperties(minimize=self._search.mode == "min")},
            **constraints,
        )

    def _propose(self, number: int) -> tuple[Any, Mapping[str, Any]] | None:
        from ax.exceptions.core import DataRequiredError
        from ax.exceptions.generation_strategy import MaxParallelismReachedException

        try:
            found, index = self._client.get_next_trial()
        except (MaxParallelismReachedException, DataRequiredError):
            return None
        return index, found

    def _add(self, number: int, codes: dict[str, Any]) -> Any:
        return self._client.attach_trial(codes)[1]

    def _learn(self, point: Any, value: float | None) -> None:
        if value is None:
            self._client.abandon_trial(point)
        else:
            self._client.complete_trial(point, raw_data={_METRIC: (value, None)})


class BayesOptSearcher(LibrarySearcher):
    """Bayesian optimisation with a Gaussian process over plain numbers.

    `random_search_steps` random points come first (10). Logarithms and steps are handled here: it sees
    numbers only, so lists of words cannot be searched with it.
    """

    name, package, modules = "bayesopt", "bayesian-optimization", ("bayes_opt",)
    settings = ("utility_kwargs", "random_search_steps")

    def _open(self, seed: int) -> None:
        from bayes_opt import BayesianOptimization, UtilityFunction

        problems = []
        for axis in self._axes.values():
            values = axis.parameter.values
            if axis.form == CATEGORY and not all(finite(value) is not None for value in values):
                shown = ", ".join([*map(repr, values[:4]), *(["..."] if len(values) > 4 else [])])
                what = f"bayesopt knows numbers only, and this is one of {shown}"
                hint = "set search.method to optuna, hyperopt, nevergrad, ax or bohb"
                problems.append(Problem(axis.parameter.key, what, hint))
        if problems:
            raise ConfigError(problems)
        bounds = {
            name: tuple(math.log(end) if axis.log else float(end) for end in (axis.low, axis.high))
            for name, axis in self._axes.items()
        }
        utility = {"kind": "ucb", "kappa": 2.576, "xi": 0.0}
        self._utility = UtilityFunction(**(self._config.get("utility_kwargs") or utility))
        self._rng = np.random.RandomState(seed % 2**32)
        self._optimizer = BayesianOptimization(
            None, bounds, random_state=self._rng, verbose=0, allow_duplicate_points=True
        )
        self._seen: set[tuple[float, ...]] = set()

    def _propose(self, number: int) -> tuple[Any, Mapping[str, Any]] | None:
        if number <= int(self._config.get("random_search_steps", 10)):
            return None
        self._rng.seed([self._seed % 2**32, number])
        point = self._optimizer.suggest(self._utility)
        if self._mark(point) in self._seen:  # the process has converged
            return None
        self._seen.add(self._mark(point))
        return point, {name: self._code(axis, point[name]) for name, axis in self._axes.items()}

    def _add(self, number: int, codes: dict[str, Any]) -> Any:
        point = {}
        for name, axis in self._axes.items():
            place = _ranks(axis)[codes[name]] if axis.form == CATEGORY else codes[name]
            point[name] = math.log(place) if axis.log else float(place)
        self._seen.add(self._mark(point))
        return point

    def _learn(self, point: Any, value: float | None) -> None:
        if value is not None:
            self._optimizer.register(point, self._search.sign * value)

    def _mark(self, point: Mapping[str, float]) -> tuple[float, ...]:
        return tuple(round(float(point[name]), 5) for name in self._axes)

    def _code(self, axis: Axis, place: float) -> Any:
        code = math.exp(place) if axis.log else float(place)
        if axis.form != CATEGORY:
            return code
        return _ranks(axis).index(min(max(round(code), 0), int(axis.high)))


class BohbSearcher(LibrarySearcher):
    """BOHB: a kernel density model per budget; the budgets are HyperBand's.

    The scheduler reports when a trial has used up a budget (`reached`). A trial that ends between two
    budgets counts for the step it ended at.
    """

    name, package, modules = "bohb", "hpbandster", ("hpbandster", "ConfigSpace")
    settings = (
        *("min_points_in_model", "top_n_percent", "num_samples"),
        *("random_fraction", "bandwidth_factor", "min_bandwidth"),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._codes: dict[int, Mapping[str, Any]] = {}
        self._steps: dict[int, float] = {}
        self._news: list[tuple[int, float, float]] = []
        self._budgeted: set[int] = set()
        self._ended: dict[int, float] = {}
        super().__init__(*args, **kwargs)

    def reached(self, number: int, budget: float, value: float) -> None:
        """A trial has used up one of HyperBand's budgets with this score."""
        if math.isfinite(value):
            self._news.append((number, float(budget), float(value)))
            self._budgeted.add(number)

    def report(self, number: int, step: float, value: float) -> None:
        """Records how far a trial is."""
        self._steps[number] = float(step)

    def _open(self, seed: int) -> None:
        import ConfigSpace
        from hpbandster.optimizers.config_generators.bohb import BOHB

        def parameter(name: str, axis: Axis) -> Any:
            if axis.form == CATEGORY:
                return ConfigSpace.CategoricalHyperparameter(name, range(axis.size))
            kind = "UniformIntegerHyperparameter" if axis.form == WHOLE else "UniformFloatHyperparameter"
            return getattr(ConfigSpace, kind)(name, axis.low, axis.high, log=axis.log)

        self._configurations = ConfigSpace.ConfigurationSpace(seed=seed % 2**31)
        self._configurations.add(*[parameter(name, axis) for name, axis in self._axes.items()])
        self._model = BOHB(self._configurations, **self._config)

    def _propose(self, number: int) -> tuple[Any, Mapping[str, Any]]:
        self._learn_budgets()
        self._configurations.seed((self._seed * 1_000_003 + number) % 2**31)
        codes, _ = self._model.get_config(None)
        return self._add(number, codes), codes

    def _add(self, number: int, codes: Mapping[str, Any]) -> Any:
        self._codes[number] = codes
        return number

    def _learn(self, point: Any, value: float | None) -> None:
        if value is not None:
            self._ended[point] = value  # the budgets it reached may come before the next point

    def _learn_budgets(self) -> None:
        """Reports the budgets reached since the last call; those of points not yet recalled, later."""
        for number, value in self._ended.items():
            if number not in self._budgeted:
                self.reached(number, self._steps.get(number, 1.0), value)
        self._ended = {}
        news, self._news = self._news, []
        for number, budget, value in news:
            if number not in self._codes:
                self._news.append((number, budget, value))
                continue
            loss = {"loss": -self._search.sign * value}
            used = {"budget": budget, "config": dict(self._codes[number])}
            with isolated(self._seed, number, budget):
                self._model.new_result(SimpleNamespace(result=loss, kwargs=used, exception=None))


METHODS: dict[str, type[LibrarySearcher]] = {
    kind.name: kind
    for kind in (HyperOptSearcher, NevergradSearcher, AxSearcher, BayesOptSearcher, BohbSearcher)
}


def require(module: str, package: str, extra: str, purpose: str) -> None:
    """That a package is installed.

    :raises MissingExtra: where it is not
    """
    try:
        with isolated():
            importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(package, extra, purpose) from error


def _value(axis: Axis, code: Any) -> Any:
    """The value of a library's code, which may be a float for a whole number, or just outside the bounds."""
    exact = float(code) if axis.form == REAL else round(float(code))
    return axis.decode(min(max(exact, axis.low), axis.high))


def _ranks(axis: Axis) -> list[int]:
    """The place of each of a list's numbers when they are sorted: neighbours are alike."""
    values = axis.parameter.values
    order = sorted(range(len(values)), key=lambda index: values[index])
    return [order.index(index) for index in range(len(values))]
