"""Moving pictures of a policy: a fixed episode, its last picture, and environments that cannot be drawn."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

import rayfish
from rayfish.errors import RayfishError
from rayfish.run import view as viewing
from rayfish.run.view import view

pytestmark = pytest.mark.usefixtures("ray_session", "workdir")

SMALL = (
    "algo.name=PPO",
    "training.train_batch_size_per_learner=64",
    "training.minibatch_size=64",
    "rollouts.num_envs_per_env_runner=1",
    "training.model.fcnet_hiddens=[8]",
)


class Dark(gym.Env):
    """An episode seeded with `s` has `4 + s` steps; cannot be drawn."""

    observation_space = gym.spaces.Box(0, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        self.number, self.t = seed or 0, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        over = self.t == 4 + self.number
        return np.full(1, self.t, np.float32), 1.0, over, False, {"metrics": {"seed": self.number}}


class Bright(Dark):
    """Every step is a little brighter."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def render(self):
        return np.full((8, 6, 3), 10 * self.t, np.uint8)


class Fast(Bright):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012


class Faster(Bright):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 125}  # noqa: RUF012


class Empty(Bright):
    def render(self):
        return None


class Unequipped(Bright):
    def render(self):
        raise gym.error.DependencyNotInstalled("pygame is not installed")


@pytest.fixture(scope="module")
def policy(tmp_path_factory, ray_session):
    with rayfish.Trainer(None, *SMALL, env=Bright) as trainer:
        return trainer.save(tmp_path_factory.mktemp("bright") / "checkpoint")


def shades(file):
    """The brightness of every picture."""
    found = []
    with Image.open(file) as gif:
        for index in range(gif.n_frames):
            gif.seek(index)
            found.append(gif.convert("RGB").getpixel((0, 0))[0])
    return found


def durations(file):
    """How long every picture is shown, in ms."""
    with Image.open(file) as gif:
        return [gif.seek(index) or gif.info["duration"] for index in range(gif.n_frames)]


def test_every_step_is_a_picture_from_the_reset_to_the_last(policy):
    found = view(policy, env=Bright)
    assert shades(found.file) == [0, 10, 20, 30, 40]
    assert (found.frames, found.returns, found.lengths) == (5, [4.0], [4])
    assert found.figures == [{"seed": 0}]


def test_the_same_episode_every_time_and_another_by_its_seed(policy, workdir):
    first, again = (view(policy, env=Bright, out=workdir / name) for name in ("a.gif", "b.gif"))
    assert (workdir / "a.gif").read_bytes() == (workdir / "b.gif").read_bytes()
    assert first.lengths == again.lengths
    assert view(policy, env=Bright, seed=3, out=workdir / "c.gif").lengths == [7]


def test_the_environment_says_how_fast_its_pictures_follow_each_other(policy, workdir):
    assert view(policy, env=Bright, out=workdir / "a.gif").fps == 12
    found = view(policy, env=Fast, out=workdir / "b.gif")
    with Image.open(found.file) as gif:
        assert (found.fps, gif.info["duration"]) == (25, 40)
    assert view(policy, env=Fast, fps=10, out=workdir / "c.gif").fps == 10


def test_several_episodes_follow_each_other_with_a_pause(policy, workdir):
    found = view(policy, env=Bright, episodes=2, fps=10, out=workdir / "two.gif")
    assert found.lengths == [4, 5]
    assert found.frames == 5 + 6
    assert durations(found.file) == [100] * 4 + [1000] + [100] * 5 + [2000]


def test_a_long_episode_keeps_few_pictures_and_its_last(policy, workdir, monkeypatch):
    monkeypatch.setattr(viewing, "MOST_FRAMES", 6)
    found = view(policy, env=Bright, seed=9, out=workdir / "long.gif")
    assert found.lengths == [13]
    assert found.every == [4]
    assert shades(found.file) == [0, 40, 80, 120, 130]


def test_a_long_episode_plays_at_the_speed_of_the_environment(policy, workdir, monkeypatch):
    monkeypatch.setattr(viewing, "MOST_FRAMES", 6)
    found = view(policy, env=Fast, seed=9, out=workdir / "long.gif")
    assert durations(found.file) == [160, 160, 160, 40, 2000]
    assert found.seconds == 13 / 25


def test_an_environment_faster_than_a_gif_plays_at_its_speed(policy, workdir):
    found = view(policy, env=Faster, seed=9, out=workdir / "fast.gif")
    assert (found.fps, found.every) == (125, [3])
    assert durations(found.file)[:-2] == [20, 30, 20, 30]  # 24 ms each: a GIF counts in 10 ms


@pytest.mark.parametrize(
    ("env", "what", "hint"),
    [
        (Dark, "no render mode rgb_array", "render_modes"),
        (Empty, "returned nothing", "height, width, 3"),
        (Unequipped, "without pygame", "rayfish[box2d]"),
    ],
)
def test_an_environment_that_cannot_be_drawn_is_one_sentence(policy, env, what, hint):
    with pytest.raises(RayfishError, match=what) as caught:
        view(policy, env=env)
    assert hint in caught.value.hint


def test_only_a_gif_is_written(policy):
    with pytest.raises(RayfishError, match=r"a\.png, but a GIF"):
        view(policy, env=Bright, out="a.png")
    with pytest.raises(RayfishError, match="0 steps per second"):
        view(policy, env=Bright, fps=0)
