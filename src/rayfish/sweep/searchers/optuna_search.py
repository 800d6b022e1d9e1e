"""Optuna through its ask-and-tell interface: Parzen estimators, Gaussian processes, CMA-ES and others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rayfish.compat.library_internals import seed_sampler
from rayfish.errors import ConfigError, MissingExtra, Problem, suggest
from rayfish.sweep.searchers.base import (
    CATEGORY,
    METHOD_CONFIG,
    WHOLE,
    Axis,
    Searcher,
    arguments,
    axes,
    built,
    check_settings,
    generator,
)
from rayfish.sweep.settings import Search
from rayfish.sweep.space import Space

if TYPE_CHECKING:
    import optuna

SAMPLERS = {
    "tpe": "TPESampler",
    "gp": "GPSampler",
    "cmaes": "CmaEsSampler",
    "random": "RandomSampler",
    "qmc": "QMCSampler",
}
PRUNERS = {
    "median": "MedianPruner",
    "successive_halving": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
    "percentile": "PercentilePruner",
    "wilcoxon": "WilcoxonPruner",
    "threshold": "ThresholdPruner",
    "patient": "PatientPruner",
}
_IN_SEQUENCE = ("cmaes", "qmc")
"""Samplers that keep their place in a sequence in the study: it is restored by asking them again."""

_NOT_SET = (
    "self",
    "seed",
    "independent_sampler",
    "warn_independent_sampling",
    "warn_asynchronous_seeding",
    "constraints_func",
    "source_trials",
    "weights",
    "wrapped_pruner",
)
_PRUNER_DEFAULTS: dict[str, dict[str, Any]] = {"percentile": {"percentile": 25.0}, "patient": {"patience": 5}}
_NAME = "rayfish"  # Optuna's Hyperband draws brackets from the study's name: a random one would not repeat


class OptunaSearcher(Searcher):
    """An Optuna study in memory.

    The sampler is reseeded for each point from the seed and the point's number, so a resumed search goes on
    exactly as it would have (`tpe`, `gp`, `random`, `qmc`; `cmaes` continues, but not to the digit).
    What starting points leave out is Optuna's choice.
    """

    def __init__(self, search: Search, space: Space, start: Sequence[Mapping[str, Any]], seed: int) -> None:
        super().__init__(search, space, start, seed)
        with quiet():
            self._kind, sampler = make_sampler(search.method_config, seed)
            self.study = make_study(search.mode, pruner_in(search.method_config), sampler)
        self._axes = {axis.parameter.key: axis for axis in axes(space)}
        self._open: dict[int, optuna.Trial] = {}

    def ask(self, number: int) -> dict[str, Any] | None:
        """The point that Optuna proposes, given the scores so far and the points still open."""
        return self._ask(number, self._start_point(number))

    def report(self, number: int, step: float, value: float) -> None:
        """An intermediate score: points that end early are compared by it."""
        if number in self._open and math.isfinite(value):
            with quiet():
                self._open[number].report(float(value), int(step))

    def tell(self, number: int, value: float | None, *, pruned: bool = False) -> None:
        """The final score; a point without one counts as failed, and nothing is learnt from it."""
        from optuna.trial import TrialState

        trial = self._open.pop(number, None)
        if trial is None:
            return
        usable = value is not None and math.isfinite(value)
        reported = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        with quiet():
            if pruned and reported:
                self.study.tell(trial, state=TrialState.PRUNED)
            elif usable:
                self.study.tell(trial, value)
            else:
                self.study.tell(trial, state=TrialState.FAIL)

    def _take(self, number: int, params: Mapping[str, Any]) -> None:
        self._ask(number, params)

    def _ask(self, number: int, given: Mapping[str, Any]) -> dict[str, Any]:
        with quiet():
            # Each point has random numbers of its own, so that a resumed search proposes the same.
            seed_sampler(self.study.sampler, [self._seed % 2**32, number])
            codes = {key: self._axes[key].encode(v) for key, v in given.items() if key in self._axes}
            if codes:
                self.study.enqueue_trial(codes)
            trial = self.study.ask()
            self._open[number] = trial
            if self._kind in _IN_SEQUENCE:
                _ = trial.relative_params  # takes its turn, also where every value is given
            point: dict[str, Any] = {}
            for parameter in self._space:
                if not parameter.active(point, self._space.keys):
                    continue
                axis = self._axes.get(parameter.key)
                value = axis.decode(_suggest(trial, axis)) if axis is not None else None
                if parameter.key in given:
                    value = given[parameter.key]  # as it was written, not its nearest code
                elif axis is None:
                    value = parameter.sample(generator(self._seed, number), point)
                point[parameter.key] = value
        return point


def make_study(
    mode: str,
    pruner: optuna.pruners.BasePruner | None = None,
    sampler: optuna.samplers.BaseSampler | None = None,
) -> optuna.Study:
    """A study in memory."""
    import optuna

    return optuna.create_study(
        study_name=_NAME,
        sampler=sampler,
        pruner=pruner,
        direction="maximize" if mode == "max" else "minimize",
    )


def make_sampler(config: Mapping[str, Any], seed: int) -> tuple[str, optuna.samplers.BaseSampler]:
    """The sampler that `search.method_config` asks for, and its name.

    :raises ConfigError: for a name or a setting that does not exist
    """
    import optuna

    kind = named(config.get("sampler"), "sampler", "tpe", SAMPLERS)
    if kind == "cmaes" and find_spec("cmaes") is None:
        raise MissingExtra("cmaes", "tune-cmaes", "search.method_config.sampler=cmaes")
    make = getattr(optuna.samplers, SAMPLERS[kind])
    known = arguments(make.__init__, *_NOT_SET)
    of_pruner = _pruner_arguments(named(config.get("pruner"), "pruner", "median", PRUNERS))
    everything = [*known, *of_pruner, "sampler", "pruner", "pruner_config"]
    check_settings(config, everything, METHOD_CONFIG, f"Optuna's sampler {kind}")
    given = {key: value for key, value in config.items() if key in known}
    if kind == "qmc":
        given.setdefault("scramble", True)  # else every seed gives the same points
    return kind, built(make, given | {"seed": seed % 2**32}, METHOD_CONFIG, f"Optuna's {SAMPLERS[kind]}")


def pruner_in(config: Mapping[str, Any]) -> optuna.pruners.BasePruner:
    """The pruner that `search.method_config` asks for.

    Its settings are written next to it, or in `pruner_config`: a sampler has an `n_startup_trials` too.
    """
    kind = named(config.get("pruner"), "pruner", "median", PRUNERS)
    known = [name for name in _pruner_arguments(kind) if name != "n_startup_trials"]
    direct = {key: value for key, value in config.items() if key in known}
    return make_pruner({**direct, **(config.get("pruner_config") or {}), "pruner": kind})


def make_pruner(config: Mapping[str, Any], where: str = METHOD_CONFIG) -> optuna.pruners.BasePruner:
    """The pruner that a section names, with the section's other settings.

    :param where: the section that the settings are written in
    :raises ConfigError: for a name or a setting that does not exist
    """
    import optuna

    kind = named(config.get("pruner"), "pruner", "median", PRUNERS, where)
    given = {key: value for key, value in config.items() if key != "pruner"}
    check_settings(given, _pruner_arguments(kind), where, f"Optuna's pruner {kind}")
    given = _PRUNER_DEFAULTS.get(kind, {}) | given
    if kind == "patient":
        given = {"wrapped_pruner": optuna.pruners.MedianPruner(), **given}
    made: optuna.pruners.BasePruner = built(
        getattr(optuna.pruners, PRUNERS[kind]), given, where, f"Optuna's {PRUNERS[kind]}"
    )
    return made


def named(name: Any, key: str, default: str, known: Mapping[str, str], where: str = METHOD_CONFIG) -> str:
    """A sampler's or pruner's name.

    :raises ConfigError: where there is none of that name
    """
    name = str(name or default).lower()
    if name not in known:
        raise ConfigError([Problem(f"{where}.{key}", f"there is no {key} {name!r}", suggest(name, known))])
    return str(name)


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna without its log lines and its warnings about what is experimental."""
    from optuna import logging

    level = logging.get_verbosity()  # also sets the level, the first time
    logging.set_verbosity(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.set_verbosity(level)


def _pruner_arguments(kind: str) -> list[str]:
    import optuna

    return arguments(getattr(optuna.pruners, PRUNERS[kind]).__init__, *_NOT_SET)


def _suggest(trial: optuna.Trial, axis: Axis) -> Any:
    key = axis.parameter.key
    if axis.form == CATEGORY:
        return trial.suggest_categorical(key, range(axis.size))
    if axis.form == WHOLE:
        return trial.suggest_int(key, int(axis.low), int(axis.high), log=axis.log)
    return trial.suggest_float(key, axis.low, axis.high, log=axis.log)
