"""Which environment an experiment asks for, as a small object that travels to every worker."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from rayfish.envs.atari import Atari, atari_of
from rayfish.envs.rewards import Clip, clip_of
from rayfish.errors import CodeError, EnvironmentFault
from rayfish.experiment import imports as user_code
from rayfish.experiment.tree import merge

if TYPE_CHECKING:
    from rayfish.experiment.experiment import Experiment


EVALUATION = "evaluation.evaluation_config"
"""What differs in evaluation: `env`, `env_config`, `horizon`."""


class ImportsFault(CodeError):
    """What `environment.imports` names cannot be imported."""


@dataclass(frozen=True)
class EnvSpec:
    """How to find an environment on any process; what it is called with (`env_config`) is separate.

    :param name: as written in `environment.env`: a Gymnasium id, an import path, a registered name
    :param paths: folders where the user's code is looked up
    :param imports: modules or files loaded first, for what they register
    :param horizon: longest episode in steps; None leaves the environment's own limit alone
    :param object: a class or creator function handed in from Python, instead of a name
    :param clip_rewards: how rewards are clipped while training; None leaves them alone
    :param atari: the preprocessing of an Atari game; None leaves it alone
    :param old_api: whether it has the reset and step of old gym, where that is known; None tries it
    """

    name: str
    paths: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    horizon: int | None = None
    object: Any = None
    clip_rewards: Clip | None = None
    atari: Atari | None = None
    last_action: bool = False
    last_reward: bool = False
    old_api: bool | None = None

    def prepare(self) -> None:
        """Make the user's code importable in this process, and load `imports`."""
        user_code.use_paths(self.paths)
        for entry in self.imports:
            load = user_code.load_file if user_code.is_file_path(entry) else user_code.load_module
            try:
                load(entry, self.paths)
            except CodeError as error:
                raise ImportsFault(error.what, error.hint) from error

    def __getstate__(self) -> dict[str, Any]:
        """The object travels as its own pickle, to be opened only once its module can be found."""
        return {**self.__dict__, "object": None if self.object is None else cloudpickle.dumps(self.object)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Put the folders on the path, then unpickle the object that may live in them."""
        user_code.use_paths(state["paths"])
        pickled = state["object"]
        self.__dict__.update(state, object=None if pickled is None else cloudpickle.loads(pickled))


class EnvConfig(dict[str, Any]):
    """An `env_config` with the attributes RLlib's `EnvContext` has, for environments made without Ray.

    Environments written for RLlib read `config.worker_index` and its like in their constructor.
    """

    worker_index = 0
    vector_index = 0
    num_workers = 0
    remote = False
    recreated_worker = False

    def set_defaults(self, defaults: Mapping[str, Any]) -> None:
        """Add the keys of `defaults` that are not set yet."""
        for key, value in defaults.items():
            self.setdefault(key, value)

    def copy_with_overrides(
        self, env_config: Mapping[str, Any] | None = None, **attributes: Any
    ) -> EnvConfig:
        """A copy with other values or other worker attributes."""
        made = EnvConfig(copy.deepcopy(self if env_config is None else dict(env_config)))
        made.__dict__.update(self.__dict__, **attributes)
        return made


def from_experiment(experiment: Experiment, *, evaluation: bool = False) -> EnvSpec:
    """The environment of an experiment; with `evaluation`, the one its evaluation section names.

    Evaluation measures true rewards, so they are clipped for training only.
    """
    environment = experiment.environment
    name, given = environment.env, experiment.env
    horizon = experiment.rollouts.horizon
    if evaluation:
        override = experiment.mapping(EVALUATION)
        if override.get("env"):
            name, given = override["env"], None
        horizon = override.get("horizon", horizon)
    if horizon is not None and (isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1):
        hint = "give the longest episode as a whole number of steps, or null"
        raise EnvironmentFault(f"rollouts.horizon is {horizon!r}", hint)
    if given is None and not name:
        raise EnvironmentFault("no environment is set", "add environment.env=CartPole-v1 (or your own)")
    if isinstance(given, str):
        name, given = given, None
    if given is not None:
        name = f"{getattr(given, '__module__', '?')}.{getattr(given, '__qualname__', repr(given))}"
    listed = environment.imports or []
    return EnvSpec(
        name=str(name),
        paths=tuple(str(folder) for folder in experiment.paths),
        imports=(listed,) if isinstance(listed, str) else tuple(listed),
        horizon=horizon,
        object=given,
        clip_rewards=None if evaluation else clip_of(environment.clip_rewards),
        atari=atari_of(environment.atari),
        last_action=bool(environment.observe_last_action),
        last_reward=bool(environment.observe_last_reward),
    )


def env_config_of(experiment: Experiment, *, evaluation: bool = False) -> dict[str, Any]:
    """The `env_config` of an experiment; evaluation's own keys are merged over it, level by level."""
    config = experiment.mapping("environment.env_config")
    if evaluation:
        merge(config, experiment.mapping(f"{EVALUATION}.env_config"))
    return _located(config, experiment.paths)


_NAMES_A_PLACE = re.compile(r"(path|dir|directory|file|folder|root|assets)$", re.IGNORECASE)


def _located(value: Any, folders: Sequence[str | Path], key: str = "") -> Any:
    """Relative paths of files that are not here, but in a folder of the experiment, made absolute.

    So a run is evaluated from any folder. A bare word may be no path at all: it is one only where its key
    says so (`map_dir`).
    """
    if isinstance(value, Mapping):
        return {name: _located(part, folders, str(name)) for name, part in value.items()}
    if isinstance(value, list):
        return [_located(part, folders, key) for part in value]
    if not isinstance(value, str) or not ("/" in value or Path(value).suffix or _NAMES_A_PLACE.search(key)):
        return value
    try:
        if not value.strip() or Path(value).is_absolute() or Path(value).expanduser().exists():
            return value
        places = (Path(folder) / value for folder in folders)
        return next((str(place) for place in places if place.exists()), value)
    except (OSError, ValueError):  # too long for a path, or with signs that none has
        return value
