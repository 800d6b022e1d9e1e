"""HyperOpt, BayesOpt, Nevergrad, Ax and BOHB, each through Ray Tune's own wrapper of it.

Tune's wrappers get neutral names and plain numbers only, so neither dots nor slashes in keys, nor
lists and dictionaries among the values, mean anything to them. A resumed method is given the recorded
points as if it had proposed them, with their scores.
"""

from __future__ import annotations

import importlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rayfish.errors import ConfigError, MissingExtra, Problem, RayfishError, did_you_mean
from rayfish.sweep.importance import is_number
from rayfish.sweep.records import FAILED
from rayfish.sweep.searchers.base import (
    METHOD_CONFIG,
    OPEN,
    Known,
    Searcher,
    built,
    check_settings,
    drawn,
    generator,
    isolated,
)
from rayfish.sweep.searchers.codec import CATEGORY, REAL, WHOLE, Axis, axes
from rayfish.sweep.settings import DEFAULT_SAMPLES, Search
from rayfish.sweep.space import Space

_METRIC = "score"


class TuneSearcher(Searcher):
    """A method behind one of Ray Tune's wrappers.

    The method sees every parameter that has a choice, also where its condition does not hold. What starting
    points leave out is drawn at random.

    :raises MissingExtra: where the method's package is not installed
    :raises ConfigError: for parameters or settings that the method cannot take
    """

    name: ClassVar[str]
    package: ClassVar[str]
    module: ClassVar[str]
    settings: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, search: Search, space: Space, start: Sequence[Mapping[str, Any]] = (), *, seed: int = 0
    ) -> None:
        super().__init__(search, space, start, seed=seed)
        require(self.module, self.package, f"tune-{self.name}", f"search.method={self.name}")
        self._axes = [axis for axis in axes(space) if axis.form == REAL or axis.size > 1]
        self._names = {f"p{index}": axis for index, axis in enumerate(self._axes)}
        self._config = dict(search.method_config)
        self._common: dict[str, Any] = {"metric": _METRIC, "mode": search.mode}
        check_settings(self._config, self.settings, METHOD_CONFIG, f"the method {self.name}")
        self._refuse()
        self._asked: set[str] = set()
        self._wrapper: Any = None
        if self._axes:
            self._open(seed)

    def ask(self, number: int) -> dict[str, Any] | None:
        """The method's proposal; a random point where it has none before it knows more scores."""
        if not self._axes:
            return drawn(self._space, {}, generator(self._seed, number))
        given = self._start_point(number) if number <= len(self._start) else None
        found = self._suggest(number) if given is None else self._place(number, self._encoded(given, number))
        self._asked.add(str(number))
        values = {axis.parameter.key: self._out(axis, found[name]) for name, axis in self._names.items()}
        return drawn(self._space, values | dict(given or {}), generator(self._seed, number))

    def tell(self, number: int, value: float | None, *, pruned: bool = False) -> None:
        """The final score; a failed point is withdrawn."""
        trial_id = str(number)
        if trial_id not in self._asked:
            return
        self._asked.discard(trial_id)
        with isolated(self._seed, number):
            if value is None or not math.isfinite(value):
                self._failed(trial_id)
            else:
                self._scored(trial_id, float(value))

    def recall(self, points: Sequence[Known]) -> None:
        """Gives the method the recorded points as its own, with their scores."""
        if not points or not self._axes:
            return
        self._open(self._seed + 7919 * len(points))  # a sequence of its own would begin with the same points
        for known in sorted(points, key=lambda point: point.number):
            self._place(known.number, self._encoded(known.params, known.number))
            self._asked.add(str(known.number))
            for step, value in known.curve:
                self.report(known.number, step, value)
            if known.state != OPEN:
                self.tell(known.number, None if known.state == FAILED else known.value)

    def _suggest(self, number: int) -> dict[str, Any]:
        """What the method proposes, in its own codes."""
        with isolated(self._seed, number):
            self._reseed(number)
            try:
                found = self._wrapper.suggest(str(number))
            except Exception as error:
                why = str(error) or type(error).__name__
                what = f"the method {self.name} could not propose point {number}: {why}"
                hint = "set search.method=optuna, or change search.method_config"
                raise RayfishError(what, hint) from error
        if isinstance(found, dict):
            return found
        return self._place(number, self._encoded({}, number))  # None: not now; "FINISHED": it repeats itself

    def _place(self, number: int, codes: Mapping[str, Any]) -> dict[str, Any]:
        """Makes a point the method's own proposal, in its own codes."""
        point = self._in(codes)
        with isolated(self._seed, number):
            self._wrapper._points_to_evaluate = [dict(point)]
            self._wrapper.suggest(str(number))
        return point

    def _encoded(self, params: Mapping[str, Any], number: int) -> dict[str, Any]:
        """The codes of a point; the method sees a random value for what is left out or not active."""
        rng = generator(self._seed, number)
        codes = {}
        for name, axis in self._names.items():
            key = axis.parameter.key
            codes[name] = axis.encode(params[key] if key in params else axis.parameter.sample(rng, {}))
        return codes

    def _open(self, seed: int) -> None:
        with isolated(seed):
            self._wrapper = built(self._make, {"seed": seed}, METHOD_CONFIG, f"the method {self.name}")

    @abstractmethod
    def _make(self, seed: int) -> Any:
        """Tune's wrapper of the library."""

    def _refuse(self) -> None:
        """Raises for parameters that the method cannot take."""

    def _reseed(self, number: int) -> None:
        """Gives point `number` random numbers of its own, where the library allows it."""

    def _in(self, codes: Mapping[str, Any]) -> dict[str, Any]:
        """Codes as this wrapper takes them: categories as words."""
        return {
            name: _word(code) if self._names[name].form == CATEGORY else code for name, code in codes.items()
        }

    def _out(self, axis: Axis, code: Any) -> Any:
        """The value that the wrapper's code stands for."""
        if axis.form == CATEGORY:
            return axis.decode(int(str(code)[1:]))
        whole = round(float(code)) if axis.form == WHOLE else float(code)
        return axis.decode(min(max(whole, axis.low), axis.high))

    def _scored(self, trial_id: str, value: float) -> None:
        self._wrapper.on_trial_complete(trial_id, result={_METRIC: value})

    def _failed(self, trial_id: str) -> None:
        self._wrapper.on_trial_complete(trial_id, error=True)

    @property
    def _domains(self) -> dict[str, Any]:
        """The space as Tune's domains."""
        from ray import tune

        found: dict[str, Any] = {}
        for name, axis in self._names.items():
            if axis.form == CATEGORY:
                found[name] = tune.choice([_word(code) for code in range(axis.size)])
            elif axis.form == WHOLE:
                whole = tune.lograndint if axis.log else tune.randint
                found[name] = whole(int(axis.low), int(axis.high) + 1)  # Tune's upper bound is excluded
            else:
                found[name] = (tune.loguniform if axis.log else tune.uniform)(axis.low, axis.high)
        return found


class HyperOptSearcher(TuneSearcher):
    """HyperOpt's tree-structured Parzen estimator."""

    name, package, module = "hyperopt", "hyperopt", "hyperopt"
    settings = ("n_initial_points", "gamma")

    def _make(self, seed: int) -> Any:
        from ray.tune.search.hyperopt import HyperOptSearch

        rest = {"random_state_seed": seed % 2**32, "n_initial_points": 10} | self._common
        return HyperOptSearch(HyperOptSearch.convert_search_space(self._domains), **rest | self._config)

    def _reseed(self, number: int) -> None:
        self._wrapper.rstate.seed([self._seed % 2**32, number])

    def _place(self, number: int, codes: Mapping[str, Any]) -> dict[str, Any]:
        # Not by the wrapper's own first points: HyperOpt would take them for the newest of all.
        from hyperopt.fmin import generate_trial

        trials = self._wrapper._hpopt_trials
        tid = trials.new_trial_ids(1)[0]
        trial = generate_trial(tid, dict(codes))
        trials.insert_trial_doc(trial)
        trials.refresh()
        self._wrapper._live_trial_mapping[str(number)] = (tid, trial)
        return self._in(codes)


class NevergradSearcher(TuneSearcher):
    """Nevergrad; by default its OnePlusOne, which suits few points and several at a time.

    NGOpt, which picks an algorithm by itself, picks some that fail with today's NumPy. The algorithms
    keep their own state: resumed, they go on from the recorded scores, not to the digit.
    """

    name, package, module = "nevergrad", "nevergrad", "nevergrad"
    settings = ("optimizer", "budget", "num_workers")

    def _make(self, seed: int) -> Any:
        import nevergrad
        from ray.tune.search.nevergrad import NevergradSearch

        name = str(self._config.get("optimizer", "OnePlusOne"))
        known = nevergrad.optimizers.registry
        if name not in known:
            close = " or ".join(did_you_mean(name, known))
            hint = f"did you mean {close}?" if close else "for example OnePlusOne, CMA, TBPSA, DE"
            what = f"Nevergrad has no optimizer {name!r}"
            raise ConfigError([Problem(f"{METHOD_CONFIG}.optimizer", what, hint)])
        space = NevergradSearch.convert_search_space(self._domains)
        space.random_state.seed(seed % 2**32)
        rest = {"budget": self._search.num_samples or DEFAULT_SAMPLES, "num_workers": 8} | self._config
        rest.pop("optimizer", None)
        rest["num_workers"] = max(2, int(rest["num_workers"]))  # with 1, asking before telling hangs
        return NevergradSearch(known[name], rest, space=space, **self._common)

    def _reseed(self, number: int) -> None:
        self._wrapper._nevergrad_opt.parametrization.random_state.seed([self._seed % 2**32, number])

    def _place(self, number: int, codes: Mapping[str, Any]) -> dict[str, Any]:
        point = self._in(codes)
        with isolated(self._seed, number):
            self._wrapper._nevergrad_opt.suggest(point)
            self._wrapper.suggest(str(number))
        return point

    def _failed(self, trial_id: str) -> None:
        self._wrapper.on_trial_complete(trial_id)


class AxSearcher(TuneSearcher):
    """Ax: Sobol points first, then Gaussian processes.

    Ax keeps its own random numbers: resumed, it goes on from the recorded scores, not to the digit.
    """

    name, package, module = "ax", "ax-platform", "ax"
    settings = ("parameter_constraints", "outcome_constraints", "enforce_sequential_optimization")

    def _make(self, seed: int) -> Any:
        from ray.tune.search.ax import AxSearch

        rest = {"random_seed": seed % 2**31, "verbose_logging": False} | self._common
        rest |= {"enforce_sequential_optimization": False}
        return AxSearch(AxSearch.convert_search_space(self._domains), **rest | self._config)

    def _failed(self, trial_id: str) -> None:
        self._wrapper.on_trial_complete(trial_id, result={_METRIC: math.nan})  # it abandons the trial


class BayesOptSearcher(TuneSearcher):
    """Bayesian optimisation with a Gaussian process over plain numbers.

    `random_search_steps` random points come first (10). Logarithms and steps are handled here: it sees
    numbers only, so lists of words cannot be searched with it.
    """

    name, package, module = "bayesopt", "bayesian-optimization", "bayes_opt"
    settings = ("utility_kwargs", "random_search_steps")

    def _make(self, seed: int) -> Any:
        from ray.tune.search.bayesopt import BayesOptSearch

        ends = {name: (axis.low, axis.high) for name, axis in self._names.items()}
        bounds = {
            n: tuple(math.log(x) if self._names[n].log else float(x) for x in e) for n, e in ends.items()
        }
        config = {key: value for key, value in self._config.items() if key != "random_search_steps"}
        rest: dict[str, Any] = {"random_state": seed % 2**32, "random_search_steps": 0}
        rest |= {"skip_duplicate": True, "patience": 2**31} | self._common
        wrapper = BayesOptSearch(bounds, **rest | config)
        wrapper.optimizer._space._allow_duplicate_points = True  # steps make points meet
        return wrapper

    def _reseed(self, number: int) -> None:
        self._wrapper.optimizer._random_state.seed([self._seed % 2**32, number])

    def _suggest(self, number: int) -> dict[str, Any]:
        if number <= int(self._config.get("random_search_steps", 10)):
            return self._place(number, self._encoded({}, number))
        return super()._suggest(number)

    def _place(self, number: int, codes: Mapping[str, Any]) -> dict[str, Any]:
        self._wrapper._skip_duplicate = False  # a point that is given is given, also twice
        point = super()._place(number, codes)
        self._wrapper._skip_duplicate = True
        return point

    def _in(self, codes: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name, code in codes.items():
            axis = self._names[name]
            place = _ranks(axis)[int(code)] if axis.form == CATEGORY else code
            found[name] = math.log(place) if axis.log else float(place)
        return found

    def _out(self, axis: Axis, code: Any) -> Any:
        place = math.exp(float(code)) if axis.log else float(code)
        if axis.form == REAL:
            return axis.decode(min(max(place, axis.low), axis.high))
        whole = min(max(round(place), int(axis.low)), int(axis.high))
        return axis.decode(_ranks(axis).index(whole) if axis.form == CATEGORY else whole)

    def _refuse(self) -> None:
        problems = []
        for axis in self._axes:
            values = axis.parameter.values
            if axis.form == CATEGORY and not all(is_number(value) for value in values):
                shown = ", ".join([*map(repr, values[:4]), *(["..."] if len(values) > 4 else [])])
                what = f"bayesopt knows numbers only, and this is one of {shown}"
                hint = "set search.method to optuna, hyperopt, nevergrad, ax or bohb"
                problems.append(Problem(axis.parameter.key, what, hint))
        if problems:
            raise ConfigError(problems)


class BohbSearcher(TuneSearcher):
    """BOHB: a kernel density model per budget; the budgets are HyperBand's.

    The scheduler reports when a trial has used up a budget (`reached`). A trial that ends between two
    budgets counts for the step it ended at.
    """

    name, package, module = "bohb", "hpbandster", "hpbandster"
    settings = (
        *("min_points_in_model", "top_n_percent", "num_samples"),
        *("random_fraction", "bandwidth_factor", "min_bandwidth"),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._steps: dict[str, float] = {}
        self._news: list[tuple[str, float, float]] = []
        self._budgeted: set[str] = set()
        self._ended: dict[str, float] = {}
        super().__init__(*args, **kwargs)

    def reached(self, number: int, budget: float, value: float) -> None:
        """A trial has used up one of HyperBand's budgets with this score."""
        if math.isfinite(value):
            self._news.append((str(number), float(budget), float(value)))
            self._budgeted.add(str(number))

    def report(self, number: int, step: float, value: float) -> None:
        """Records how far a trial is."""
        self._steps[str(number)] = float(step)

    def _suggest(self, number: int) -> dict[str, Any]:
        self._learn()
        return super()._suggest(number)

    def _learn(self) -> None:
        """Reports the budgets reached since the last call; those of points not yet recalled, later."""
        for trial_id, value in self._ended.items():
            if trial_id not in self._budgeted:
                self.reached(int(trial_id), self._steps.get(trial_id, 1.0), value)
        self._ended = {}
        news, self._news = self._news, []
        for trial_id, budget, value in news:
            if trial_id not in self._wrapper.trial_to_params:
                self._news.append((trial_id, budget, value))
                continue
            with isolated(self._seed, trial_id, budget):
                result = {_METRIC: value, "hyperband_info": {"budget": budget}}
                self._wrapper.on_trial_result(trial_id, result)

    def _make(self, seed: int) -> Any:
        require("ConfigSpace", "ConfigSpace", "tune-bohb", "search.method=bohb")
        from ray.tune.search.bohb import TuneBOHB

        space = _config_space(self._names)
        return TuneBOHB(space, bohb_config=self._config, seed=seed % 2**31, **self._common)

    def _reseed(self, number: int) -> None:
        self._wrapper._space.seed((self._seed * 1_000_003 + number) % 2**31)

    def _scored(self, trial_id: str, value: float) -> None:
        self._ended[trial_id] = value  # the budgets it reached may come before the next point

    def _failed(self, trial_id: str) -> None:
        """BOHB learns from budgets only; a failed trial is no budget."""


METHODS: dict[str, type[TuneSearcher]] = {
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


def _word(code: Any) -> str:
    return f"c{int(code)}"


def _ranks(axis: Axis) -> list[int]:
    """The place of each of a list's numbers when they are sorted: neighbours are alike."""
    values = axis.parameter.values
    order = sorted(range(len(values)), key=lambda index: values[index])
    return [order.index(index) for index in range(len(values))]


def _config_space(names: Mapping[str, Axis]) -> Any:
    """Our axes for BOHB; Tune's own conversion calls a function that ConfigSpace no longer has."""
    import ConfigSpace

    space = ConfigSpace.ConfigurationSpace()
    for name, axis in names.items():
        if axis.form == CATEGORY:
            space.add(ConfigSpace.CategoricalHyperparameter(name, [_word(code) for code in range(axis.size)]))
        elif axis.form == WHOLE:
            low, high = int(axis.low), int(axis.high)
            space.add(ConfigSpace.UniformIntegerHyperparameter(name, low, high, log=axis.log))
        else:
            space.add(ConfigSpace.UniformFloatHyperparameter(name, axis.low, axis.high, log=axis.log))
    return space
