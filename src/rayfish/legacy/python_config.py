"""Old RLlib configs given from Python (`config={"num_workers": 4}`): translated like old files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym

from rayfish.errors import ConfigError, RayfishError
from rayfish.experiment.experiment import Experiment
from rayfish.experiment.words import plain
from rayfish.legacy.file_format import OldExperiment
from rayfish.legacy.translate import translate

_ORIGIN = "config={...}"


def experiment_of(
    algo: str, config: Mapping[str, Any] | None, env: Any = None, *, closest: bool = False
) -> Experiment:
    """The experiment that `DQNTrainer(env=..., config={...})` describes.

    :param closest: an algorithm that RLlib has dropped becomes the closest one it has
    """
    config = dict(config or {})
    given = config.pop("env", None)
    env = given if env is None else env
    if env is None:
        raise RayfishError(f"{algo} is given no environment", "write env=MyEnv or env='CartPole-v1'")
    named = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
    values = {"run": algo, "config": _plain(config), **({"env": env} if isinstance(env, str) else {})}
    old = OldExperiment(f"{algo}-{named}", values, file=_ORIGIN)
    try:
        made = Experiment.compose(old, env=None if isinstance(env, str) else env, closest=closest)
    except ConfigError as error:
        raise ConfigError([_in_python(problem) for problem in error.problems]) from error
    return made if config else replace(made, notes=())


def laid_upon(experiment: Experiment, config: Mapping[str, Any]) -> Experiment:
    """An experiment with old keys laid upon it; what the config does not name stays as it is.

    :raises ConfigError: with everything in the config that a person must decide
    """
    values = {"run": experiment.algo.name, "config": _plain(config)}
    translation = translate(OldExperiment(_ORIGIN, values, file=_ORIGIN)).required()
    asked: dict[str, Any] = {}
    for entry in translation.entries:
        if entry.old.startswith("config."):
            asked |= entry.outcome.values
    changed = experiment.with_overrides(asked)
    notes = (*experiment.notes, *translation.notes())
    return replace(changed, notes=notes, fit=True)


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config as a file would hold it."""
    return {str(key): plain(_in_a_file(value), str(key)) for key, value in config.items()}


def _in_a_file(value: Any) -> Any:
    """RLlib's own objects in the form of old files; spaces are left to the environment, which has them."""
    if isinstance(value, gym.Space):
        return None
    if hasattr(value, "policy_class") and hasattr(value, "config"):  # a PolicySpec
        return [value.policy_class, None, None, _in_a_file(value.config or {})]
    if isinstance(value, Mapping):
        return {key: _in_a_file(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_in_a_file(inner) for inner in value]
    return value


def _in_python(problem: Any) -> Any:
    """A problem whose next step is a flag of the command line, in Python's words."""
    return replace(problem, hint=problem.hint.replace("add --closest", "add closest=True"))
