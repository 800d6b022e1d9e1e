"""The door to `legacy` for packages above this one: keys, settings, recordings, old checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rayfish.legacy.checkpoints import refuse as refuse_old_checkpoint
from rayfish.legacy.hydra_keys import GONE_KEYS, OLD_KEYS, SECTION_ALIASES, is_old

if TYPE_CHECKING:
    import gymnasium as gym

    from rayfish.experiment.experiment import Experiment

__all__ = [
    "GONE_KEYS",
    "OLD_KEYS",
    "SECTION_ALIASES",
    "epsilon_schedule",
    "is_old",
    "refuse_old_checkpoint",
    "todays_recordings",
    "with_old_config",
]


def with_old_config(experiment: Experiment, config: Mapping[str, Any]) -> Experiment:
    """The experiment with the settings of an old trainer's `config` laid upon it."""
    from rayfish.legacy.python_config import laid_upon

    return laid_upon(experiment, config)


def epsilon_schedule(exploration_config: Mapping[str, Any]) -> list[list[Any]]:
    """EpsilonGreedy's settings as [step, epsilon] points."""
    from rayfish.legacy import nested_keys

    return nested_keys.epsilon_schedule(exploration_config)


def todays_recordings(paths: Sequence[str], actions: gym.Space | None) -> str | None:
    """The folder with the episodes of old recordings among `paths`; None where there are none.

    :param actions: the space of recorded actions, which are scaled from its bounds to -1..1; None takes them
        as they are
    """
    from rayfish.legacy.recordings import converted, old_files

    found = old_files(paths)
    return converted(found, actions) if found else None
