"""Words without a `=`: which of experiment, algorithm and environment they name."""

from __future__ import annotations

import pytest

from rayfish import Experiment
from rayfish.errors import ConfigError, RayfishError
from rayfish.experiment.overrides import split_words


@pytest.mark.parametrize(
    ("words", "name", "settings"),
    [
        (["cartpole"], "cartpole", []),
        (["CartPole-v1"], None, ["environment.env=CartPole-v1"]),
        (["CartPole"], None, ["environment.env=CartPole"]),
        (["ALE/Pong-v5"], None, ["environment.env=ALE/Pong-v5"]),
        (["my_env.py:MyEnv"], None, ["environment.env='my_env.py:MyEnv'"]),
        (["package.module:MyEnv"], None, ["environment.env='package.module:MyEnv'"]),
        (["package.module.MyEnv"], None, ["environment.env=package.module.MyEnv"]),
        (["PPO", "CartPole-v1"], None, ["algo.name=PPO", "environment.env=CartPole-v1"]),
        (["CartPole-v1", "ppo"], None, ["environment.env=CartPole-v1", "algo.name=PPO"]),
        (["PPO,dqn", "CartPole-v1"], None, ["algo.name=PPO,DQN", "environment.env=CartPole-v1"]),
        (["cartpole", "DQN", "a=1"], "cartpole", ["algo.name=DQN", "a=1"]),
        (["a2c"], None, ["algo.name=a2c"]),
        (["mine.yaml"], "mine.yaml", []),
        (["old.yaml:first"], "old.yaml:first", []),
    ],
)
def test_a_bare_word_is_an_experiment_else_an_algorithm_else_an_environment(words, name, settings):
    assert split_words(words) == (name, settings)


def test_a_preset_of_the_users_own_comes_before_an_algorithm_and_an_environment(tmp_path):
    (tmp_path / "experiment").mkdir()
    for name in ("PPO", "CartPole-v1"):
        (tmp_path / "experiment" / f"{name}.yaml").write_text("# @package _global_\nalgo: {name: SAC}\n")
    assert split_words(["PPO"], tmp_path) == ("PPO", [])
    assert Experiment.compose("CartPole-v1", config_dir=tmp_path).get("algo.name") == "SAC"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["cartpole", "acrobot"], "two experiments were named: cartpole and acrobot"),
        (["PPO", "DQN"], "two algorithms were named: PPO and DQN"),
        (["CartPole-v1", "Acrobot-v1"], "two environments were named"),
        (["PPOO"], "did you mean PPO"),
        (["lunarlandr"], "did you mean lunarlander"),
        (["mountaincar"], "did you mean MountainCar"),
    ],
)
def test_words_that_name_one_thing_twice_or_nothing_are_refused(words, text):
    with pytest.raises(RayfishError) as error:
        split_words(words)
    assert text in str(error.value)


def test_a_word_longer_than_a_file_name_is_one_problem():
    with pytest.raises(ConfigError, match="cannot be looked up: File name too long"):
        split_words(["k" * 300])


def test_a_class_in_a_file_here_is_what_was_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "maze.py").write_text("class Maze: ...\n")
    with pytest.raises(ConfigError, match=r"did you mean maze\.py:Maze\?"):
        Experiment.compose("Maze")


def test_the_classes_of_the_file_of_that_name_are_suggested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "import gymnasium as gym\nclass Small(gym.Env): ...\nclass Own:\n    def step(self, action): ...\n"
    (tmp_path / "my_env.py").write_text(f"{text}class Config: ...\nraise SystemExit('never imported')\n")
    with pytest.raises(ConfigError, match=r"did you mean my_env\.py:Small or my_env\.py:Own\?"):
        Experiment.compose("my_env")
    (tmp_path / "my_env.py").write_text("class Broken(\n")
    with pytest.raises(ConfigError, match="there is no experiment, algorithm or environment 'my_env'"):
        Experiment.compose("my_env")


@pytest.mark.parametrize("file", ["lone.yaml", "lone.yml"])
def test_a_word_means_the_experiment_file_of_that_name(tmp_path, monkeypatch, file):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_text("environment: {env: Acrobot-v1}\n")
    assert split_words(["lone"]) == (file, [])
    assert Experiment.compose("lone").get("environment.env") == "Acrobot-v1"


def test_a_preset_and_an_algorithm_come_before_a_file_of_their_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cartpole", "PPO"):
        (tmp_path / f"{name}.yaml").write_text("environment: {env: Acrobot-v1}\n")
    assert split_words(["cartpole", "PPO"]) == ("cartpole", ["algo.name=PPO"])


def test_python_takes_the_same_words():
    found = Experiment.compose("PPO", ["CartPole-v1", "training.lr=0.5"])
    assert found.get("algo.name") == "PPO"
    assert found.get("environment.env") == "CartPole-v1"
    assert found.get("training.lr") == 0.5


def test_what_is_written_out_counts_more_than_a_bare_word():
    found = Experiment.compose("PPO", ["environment.env=Acrobot-v1", "algo.name=SAC"])
    assert (found.get("algo.name"), found.get("environment.env")) == ("SAC", "Acrobot-v1")


def test_an_environment_without_an_experiment_is_not_trained_for_ever():
    found = Experiment.compose("CartPole-v1")
    assert found.get("stop_conditions.timesteps_total") == 100_000
    assert "stop_conditions.timesteps_total=1000000" in found.notes[0]
    given = Experiment.compose("CartPole-v1", ["stop_conditions.training_iteration=3"])
    assert given.get("stop_conditions.timesteps_total") == 2_000_000_000
    assert given.notes == ()
    assert (
        Experiment.compose("CartPole-v1", config_name="ppo").get("stop_conditions.timesteps_total") == 500_000
    )


def test_a_file_without_stop_conditions_keeps_the_shipped_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("environment: {env: CartPole-v1}\n")
    assert Experiment.compose("mine.yaml").get("stop_conditions.timesteps_total") == 2_000_000_000


def test_naming_nothing_is_reported():
    assert "this is the experiment cartpole" in Experiment.compose().notes[0]
    assert "this is the experiment pendulum" in Experiment.compose("SAC").notes[0]
    assert Experiment.compose("cartpole").notes == ()
