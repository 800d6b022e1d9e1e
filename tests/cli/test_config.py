"""`rayfish config`: show, check, list, keys."""

from __future__ import annotations

import pytest
import yaml
from typer.testing import CliRunner

from rayfish.cli.config import app
from rayfish.errors import ConfigError, RayfishError


def call(*words):
    return CliRunner().invoke(app, list(words), catch_exceptions=True)


def test_show_tells_value_and_origin():
    result = call("show", "cartpole", "training.lr=3e-4", "rollouts.num_workers=1")
    lines = [line.split() for line in result.output.splitlines()]
    assert ["lr", "0.0003", "command", "line"] in lines
    assert ["env", "CartPole-v1", "rayfish/conf/experiment/cartpole.yaml:10"] in lines
    assert "note: rollouts.num_workers is today's rollouts.num_env_runners" in result.output
    assert result.exit_code == 0


def test_show_yaml_can_be_read_again():
    result = call("show", "cartpole", "--yaml")
    assert yaml.safe_load(result.stdout)["environment"]["env"] == "CartPole-v1"


def test_check_says_fine_and_what_it_looked_at():
    result = call("check", "cartpole")
    assert result.exit_code == 0, result.output
    assert "fine: PPO on CartPole-v1" in result.output
    assert "Discrete(2)" in result.output


def test_check_reports_every_problem_and_fails():
    result = call("check", "cartpole", "training.lrr=1", "rollouts.runner=x", "environment.env=CartPole-v9")
    assert result.exit_code == 1
    assert "3 problems" in result.output
    assert "did you mean training.lr?" in result.output
    assert "environment.env" in result.output


def test_check_of_an_unknown_experiment_raises_for_the_command_to_show():
    assert isinstance(call("check", "cartpol").exception, ConfigError)


def test_file_and_preset_together_are_refused():
    assert isinstance(call("show", "cartpole", "-f", "x.yaml").exception, RayfishError)


def test_list_names_presets_with_what_they_are():
    result = call("list")
    assert "cartpole-dqn" in result.output
    assert "DQN solves CartPole-v1" in result.output
    assert "Main configs" in result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["keys"], "training.model"),
        (["keys", "rollouts"], "rollouts.horizon"),
        (["keys", "training.model"], "fcnet_hiddens"),
        (["keys", "training", "--algo", "ppo"], "clip_param"),
        (["keys", "fragment"], "rollouts.rollout_fragment_length"),
        (["keys", "clip_param"], "training.clip_param"),
    ],
)
def test_keys_are_explained(words, expected):
    result = call(*words)
    assert result.exit_code == 0, result.output
    assert expected in result.output


def test_keys_of_an_unknown_word_offers_the_nearest():
    error = call("keys", "rolouts").exception
    assert isinstance(error, RayfishError)
    assert "rollouts" in error.hint


def test_list_shows_whole_texts_with_their_brackets(tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# Needs pip install x[extra].\n# Second line.\nalgo: {}\n"
    )
    shown = " ".join(call("list", "--config-dir", str(tmp_path)).output.split())
    assert "pip install 'rayfish[box2d]'" in shown
    assert "they have to share the work." in shown, "the end of a text of two lines"
    assert "Needs pip install x[extra]. Second line." in shown


def test_check_takes_the_options_that_it_advises(monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # a Ray of other tests would offer its CPUs
    words = ("cartpole", "rollouts.num_env_runners=500")
    assert "or --fit, or --ray-num-cpus" in call("check", *words).output
    assert "rollouts.num_env_runners 500 ->" in call("check", *words, "--fit").output
    assert call("check", *words, "--ray-num-cpus", "501").exit_code == 0


def test_a_section_without_keys_says_what_it_is():
    assert "--on ADDRESS" in call("keys", "cluster").output


def test_a_name_in_place_of_a_section_is_its_main_key():
    shown = " ".join(
        call("show", "algo=SAC", "environment=Pendulum-v1", "training.model=lstm").output.split()
    )
    assert "name SAC command line" in shown
    assert "env Pendulum-v1 command line" in shown
    assert "use_lstm true" in shown
