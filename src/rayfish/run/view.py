"""A look at what a trained policy does: episodes in its evaluation environment as a moving picture (GIF).

No Ray and no GPU. The episode is a fixed one: number `i` is reset with `seed + i`, as in `rayfish evaluate`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rayfish.envs.play import Actions, TimeStep
from rayfish.errors import EnvironmentFault, RayfishError
from rayfish.experiment.words import Override
from rayfish.run import player
from rayfish.run.player import EpisodePlan, Game, run_of, writing_to
from rayfish.supervise.error_messages import explained

MODE = "rgb_array"
"""The way of rendering that returns pictures."""

FPS = 12
"""Steps per second where the environment's metadata does not say."""

PAUSE_S = 1.0
"""How long the last picture of an episode stays before the next one begins."""

MOST_FPS = 50.0
MOST_FRAMES = 360
"""Pictures of one episode; of a longer one every second is kept, every fourth, and so on."""


@dataclass(frozen=True)
class View:
    """What was drawn.

    :param seconds: how long it plays up to the last picture
    :param frames: how many pictures it has
    :param every: steps from one picture to the next, of each episode
    :param returns: of each episode; `lengths` in steps
    :param figures: what the environment reported of each episode
    """

    file: str
    checkpoint: str
    env: str
    seed: int
    fps: float
    seconds: float
    frames: int
    every: list[int]
    returns: list[float]
    lengths: list[int]
    figures: list[dict[str, float]]


def view(
    run: str | Path,
    *overrides: Override,
    episodes: int = 1,
    seed: int = 0,
    explore: bool = False,
    env: Any = None,
    out: str | Path | None = None,
    fps: float | None = None,
    trust: bool = False,
) -> View:
    """Plays episodes as `evaluate` does, whose parameters mean the same here, and draws them.

    :param out: the file to write, in place of `view.gif` in the run's folder
    :param fps: steps per second, up to 50; None: the environment's `render_fps`
    """
    from rayfish.worlds.wildfire.pictures.render import save_gif

    if fps is not None and not 0 < fps <= MOST_FPS:
        raise RayfishError(f"{fps:g} steps per second cannot be shown", "choose --fps above 0 and up to 50")
    plan = EpisodePlan(episodes, seed=seed, explore=explore)
    game = player.prepare(run, overrides, plan, verb="view", env=env, trust=trust)
    place = run_of(game.checkpoint) or game.checkpoint.parent
    file = place / "view.gif" if out is None else Path(out).expanduser()
    if file.suffix.lower() != ".gif":
        raise RayfishError(f"--out is {file}, but a GIF is written", "name a file that ends in .gif")
    with explained(game.experiment), player.opened(game) as world:
        _require_pictures(game, world)
        if fps is None:
            of_env = (getattr(world, "metadata", None) or {}).get("render_fps")
            fps = float(of_env) if isinstance(of_env, int | float) and of_env > 0 else FPS
        pictures, played = _drawn(game, fps)
    with writing_to(file, "the GIF"):
        save_gif(file, pictures.frames, seconds=pictures.seconds)
    return View(
        file=str(file),
        checkpoint=str(game.checkpoint),
        env=game.env_name,
        seed=seed,
        fps=fps,
        seconds=sum(pictures.seconds[:-1]),
        frames=len(pictures.frames),
        every=pictures.every,
        returns=[one.total for one in played],
        lengths=[one.length for one in played],
        figures=[dict(one.figures) for one in played],
    )


@dataclass
class _Pictures:
    """Draws what is played (a `player.See`).

    :param seconds: how long each picture is shown
    :param every: steps from one picture to the next, of each episode
    """

    env: Any
    name: str
    fps: float
    frames: list[np.ndarray] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    every: list[int] = field(default_factory=list)
    _own: list[tuple[int, np.ndarray]] = field(default_factory=list)

    def __call__(self, step: int, actions: Actions, now: TimeStep) -> None:
        """A picture at every so many steps, as frame rate and length of a GIF allow, and of the last."""
        if step == 0:
            self._own = []
            self.every.append(math.ceil(self.fps / MOST_FPS))
        if step % self.every[-1] == 0 or now.over:
            self._own.append((step, self._picture()))
        if len(self._own) > MOST_FRAMES:
            last = [] if len(self._own) % 2 else self._own[-1:]
            self._own = self._own[::2] + (last if now.over else [])
            self.every[-1] *= 2
        if now.over:
            steps, pictures = zip(*self._own, strict=True)
            self.frames += pictures
            self.seconds += [(after - before) / self.fps for before, after in pairwise(steps)] + [PAUSE_S]

    def _picture(self) -> np.ndarray:
        found: Any = self.env.render()
        found = found[-1] if isinstance(found, list) and found else found
        if not isinstance(found, np.ndarray) or found.ndim != 3 or found.shape[2] not in (3, 4):
            kind = "nothing" if found is None else f"a {type(found).__name__}"
            raise EnvironmentFault(
                f"{self.name}: render() returned {kind}, not a picture",
                "return an array of numbers 0 to 255, [height, width, 3], when render_mode is rgb_array",
            )
        return np.array(found[:, :, :3], np.uint8)


def _drawn(game: Game, fps: float) -> tuple[_Pictures, list[player.PlayedEpisode]]:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        with player.opened(game, MODE) as env:
            pictures = _Pictures(env, game.env_name, fps)
            return pictures, list(player.play(game, env, pictures))
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise _needs(game.env_name, error) from error


def _require_pictures(game: Game, world: Any) -> None:
    modes = [str(mode) for mode in (getattr(world, "metadata", None) or {}).get("render_modes") or ()]
    if MODE not in modes:
        has = f"it has only {', '.join(modes)}" if modes else "it does not render at all"
        raise EnvironmentFault(
            f"{game.env_name} has no render mode {MODE}, which draws pictures: {has}",
            f'add "{MODE}" to its metadata["render_modes"], and let render() return an array then',
        )


def _needs(name: str, error: Exception) -> EnvironmentFault:
    """A package for drawing is missing; the hint names the extra of Rayfish that brings it."""
    missing = next((package for package in _EXTRAS if package in str(error).lower()), "")
    extra = _EXTRAS.get(missing, "")
    what = f"{name} cannot be drawn without {missing or 'a package that is missing'}"
    return EnvironmentFault(f"{what}: {error}", f"pip install {extra}" if extra else "install it")


_QUIET = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
"""Pygame draws into memory: it needs neither a screen nor a sound card, and need not complain of them."""

_EXTRAS = {
    "pygame": "'rayfish[box2d]'",
    "imageio": "'rayfish[mujoco]'",
    "mujoco": "'rayfish[mujoco]'",
    "opencv": "'rayfish[atari]'",
    "cv2": "'rayfish[atari]'",
}
