"""`environment.atari`: real games of ale-py, seen as DeepMind's agents saw them."""

from __future__ import annotations

import numpy as np
import pytest

from rayfish.envs.atari import Atari, AtariFault, atari_of
from rayfish.envs.build import EnvSpec, from_experiment, make, problems
from rayfish.envs.check import check
from rayfish.experiment.experiment import Experiment
from tests.helpers import metrics_of, only_run, rayfish

GAME = "PongNoFrameskip-v4"


def test_a_game_is_seen_as_four_small_grey_images():
    env = make(EnvSpec(GAME, atari=Atari()))
    observation, _ = env.reset(seed=0)
    assert observation.shape == (84, 84, 4)
    assert observation.dtype == np.uint8
    assert observation in env.observation_space
    for _ in range(30):
        before = observation
        observation, *_ = env.step(env.action_space.sample())
    assert (observation[..., :3] == before[..., 1:]).all()  # the newest image is the last channel


def test_an_action_lasts_four_frames_and_a_game_idles_at_its_beginning():
    env = make(EnvSpec(GAME, atari=Atari(noop_max=0)))
    env.reset(seed=0)
    start = env.unwrapped.ale.getEpisodeFrameNumber()
    env.step(0)
    assert env.unwrapped.ale.getEpisodeFrameNumber() - start == 4
    idle = make(EnvSpec(GAME, atari=Atari()))
    frames = set()
    for seed in range(8):
        idle.reset(seed=seed)
        frames.add(idle.unwrapped.ale.getEpisodeFrameNumber())
    assert len(frames) > 1


@pytest.mark.parametrize(("game", "skip"), [("PongDeterministic-v4", 4), ("ALE/Pong-v5", 4)])
def test_a_game_that_skips_frames_by_itself_skips_no_more(game, skip):
    env = make(EnvSpec(game, atari=Atari(noop_max=0)))
    env.reset(seed=0)
    start = env.unwrapped.ale.getEpisodeFrameNumber()
    env.step(0)
    assert env.unwrapped.ale.getEpisodeFrameNumber() - start == skip


@pytest.mark.parametrize(
    ("settings", "shape", "dtype"),
    [
        ({"dim": 42, "framestack": 2}, (42, 42, 2), np.uint8),
        ({"framestack": False}, (84, 84, 1), np.uint8),
        ({"framestack": True}, (84, 84, 4), np.uint8),
        ({"grayscale": False, "framestack": 2}, (84, 84, 6), np.uint8),
        ({"zero_mean": True}, (84, 84, 4), np.float32),
    ],
)
def test_its_settings_change_what_is_seen(settings, shape, dtype):
    env = make(EnvSpec(GAME, atari=atari_of(settings)))
    observation, _ = env.reset(seed=0)
    assert (observation.shape, observation.dtype) == (shape, dtype)
    assert observation in env.observation_space
    if settings.get("zero_mean"):
        assert observation.min() < 0


def test_it_is_off_unless_asked_for():
    assert atari_of(None) is None and atari_of(False) is None
    assert make(EnvSpec(GAME)).observation_space.shape == (210, 160, 3)


def test_evaluation_sees_the_same_and_a_horizon_counts_actions():
    experiment = Experiment({"environment": {"env": GAME, "atari": {"dim": 42}}, "rollouts": {"horizon": 5}})
    spec = from_experiment(experiment, evaluation=True)
    env = make(spec)
    assert env.reset(seed=0)[0].shape == (42, 42, 4)
    assert [env.step(0)[3] for _ in range(5)] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("env", "setting", "said"),
    [
        ("CartPole-v1", True, "'CartPole-v1' is no Atari game"),
        ("Pong-ram-v4", True, "shows the machine's memory"),
        (GAME, {"dimension": 84}, "has no key 'dimension'"),
        (GAME, {"framestack": 0}, "framestack is 0"),
        (GAME, {"grayscale": 1}, "grayscale is 1"),
    ],
)
def test_what_cannot_be_applied_is_a_problem_of_its_key(env, setting, said):
    (found,), _ = problems(Experiment({"environment": {"env": env, "atari": setting}}))
    assert found.key == "environment.atari"
    assert said in found.what


def test_unknown_keys_get_the_nearest():
    with pytest.raises(AtariFault) as caught:
        atari_of({"frame_stack": 4})
    assert "framestack" in caught.value.hint


def test_the_preprocessed_game_passes_the_check():
    found = check(make(EnvSpec(GAME, atari=Atari(dim=42), horizon=40)))
    assert not [entry for entry in found if entry.level == "error"]


@pytest.mark.slow
def test_ppo_trains_on_a_game(tmp_path):
    words = ["training.train_batch_size_per_learner=64", "training.minibatch_size=32"]
    rayfish(
        "train", "algo.name=PPO", f"environment.env={GAME}", "environment.atari={dim: 42}",
        "environment.clip_rewards=true", "rollouts.num_envs_per_env_runner=1", *words,
        "reporting.min_sample_timesteps_per_iteration=64", "stop_conditions.timesteps_total=128",
        cwd=tmp_path,
    )  # fmt: skip
    last = metrics_of(only_run(tmp_path))[-1]
    assert last["run/env_steps"] >= 128
    assert any(name.startswith("learn/") for name in last)
