"""DeepMind's preprocessing of Atari games (`environment.atari`), as old RLlib applied it by itself.

Up to 30 idle steps at the beginning, 4 frames per action with the brighter of the last two, 84x84 in
grey, and the last 4 of these images as channels. One thing differs from old RLlib's training: an
episode is a whole game, not one life, so that returns are scores.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym
import numpy as np

from rayfish.compat.library_internals import atari_settings
from rayfish.errors import EnvironmentFault, suggest


class AtariFault(EnvironmentFault):
    """`environment.atari` cannot be applied."""


@dataclass(frozen=True)
class Atari:
    """The settings of the preprocessing.

    :param dim: height and width of the images
    :param framestack: how many of the last images an observation holds
    :param grayscale: grey in place of colour
    :param frame_skip: frames per action; 1 where the game's id skips frames by itself
    :param noop_max: most idle steps at the beginning of a game
    :param zero_mean: numbers in [-1, 1] in place of bytes
    """

    dim: int = 84
    framestack: int = 4
    grayscale: bool = True
    frame_skip: int = 4
    noop_max: int = 30
    zero_mean: bool = False


def atari_of(value: Any) -> Atari | None:
    """What `environment.atari` says; None when games stay as they are."""
    if value is None or value is False:
        return None
    given = {} if value is True else dict(value)
    known = {entry.name: type(entry.default) for entry in fields(Atari)}
    if isinstance(given.get("framestack"), bool):
        given["framestack"] = 4 if given["framestack"] else 1
    for key, setting in given.items():
        if key not in known:
            raise AtariFault(f"has no key {key!r}", suggest(str(key), known, f"it takes {', '.join(known)}"))
        whole = isinstance(setting, int) and not isinstance(setting, bool)
        if known[key] is bool and not isinstance(setting, bool):
            raise AtariFault(f"{key} is {setting!r}", f"{key}: true or false")
        if known[key] is int and not (whole and setting >= (0 if key == "noop_max" else 1)):
            raise AtariFault(f"{key} is {setting!r}", f"{key} takes a whole number above 0")
    return Atari(**given)


def preprocessed(env: Any, settings: Atari | None, name: str) -> Any:
    """`env` with the preprocessing around it; as it is without `settings`."""
    if settings is None:
        return env
    inner = getattr(env, "unwrapped", env)
    if not hasattr(inner, "ale"):
        raise AtariFault(f"is set, but {name!r} is no Atari game", "remove it")
    obs_type, frameskip = atari_settings(inner)
    if len(inner.observation_space.shape) != 3:
        raise AtariFault(
            f"needs images, but {name!r} shows the machine's memory (obs_type={obs_type})",
            "use the id without -ram, or remove environment.atari",
        )
    skips = frameskip != 1
    try:
        env = gym.wrappers.AtariPreprocessing(
            env,
            noop_max=settings.noop_max,
            frame_skip=1 if skips else settings.frame_skip,
            screen_size=settings.dim,
            grayscale_obs=settings.grayscale,
            grayscale_newaxis=True,
        )
    except gym.error.DependencyNotInstalled as error:
        raise AtariFault(f"cannot be applied: {error}", "pip install 'rayfish[atari]'") from error
    return AtariImages(gym.wrappers.FrameStackObservation(env, settings.framestack), settings.zero_mean)


class AtariImages(gym.ObservationWrapper):
    """Stacked images as channels of one, the last axis, which is where networks look for them."""

    def __init__(self, env: gym.Env, zero_mean: bool = False) -> None:
        super().__init__(env)
        frames, height, width, channels = env.observation_space.shape or (0, 0, 0, 0)
        shape = (height, width, frames * channels)
        self._zero_mean = zero_mean
        self.observation_space: gym.Space[Any] = (
            gym.spaces.Box(-1.0, 1.0, shape, np.float32)
            if zero_mean
            else gym.spaces.Box(0, 255, shape, np.uint8)
        )

    def observation(self, observation: Any) -> Any:
        """Frames, height, width, channels -> height, width, frames times channels."""
        images = np.moveaxis(np.asarray(observation), 0, 2)
        images = images.reshape(*images.shape[:2], -1)
        return (images.astype(np.float32) - 128.0) / 128.0 if self._zero_mean else images
