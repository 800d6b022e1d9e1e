"""An experiment is written beside its run and read again."""

from __future__ import annotations

import pytest

from rayfish import Experiment
from rayfish.errors import ConfigError
from rayfish.experiment.compose import changed


def test_saved_experiment_loads_equal(workdir):
    words = ["environment.env_config={a: [1, {b: x}], c: '1e-3', d: null, e: 'yes'}", "training.lr=1e-5"]
    experiment = Experiment.compose("cartpole", words)
    experiment.save(workdir / "config.yaml")
    loaded = Experiment.load(workdir / "config.yaml")
    assert loaded.config == experiment.config
    assert loaded.paths == experiment.paths
    same = {key for key, where in experiment.origins.items() if loaded.origins[key] == where}
    assert experiment.origins.keys() - same == {"environment.env_config.a"}  # the one written over lines
    assert Experiment.load(workdir).config == experiment.config


def test_saved_values_tell_their_origin(workdir):
    Experiment.compose("cartpole", ["training.lr=1e-5"]).save(workdir / "config.yaml")
    lines = (workdir / "config.yaml").read_text().splitlines()
    assert any("lr: 1.0e-05" in line and line.endswith("# command line") for line in lines)
    assert any("env: CartPole-v1" in line and "cartpole.yaml:" in line for line in lines)


def test_origin_is_beside_every_single_line_value(workdir):
    experiment = Experiment.compose("cartpole-dqn")
    experiment.save(workdir / "config.yaml")
    text = (workdir / "config.yaml").read_text()
    for key, where in experiment.origins.items():
        assert any(
            line.strip().startswith(f"{key.rpartition('.')[2]}:") and line.endswith(where)
            for line in text.splitlines()
        ), key


def test_saved_file_is_an_experiment_again(workdir):
    experiment = Experiment.compose("pendulum", ["training.gamma=0.5"])
    experiment.save(workdir / "again.yaml")
    assert Experiment.compose("again.yaml").config == experiment.config


def test_unreadable_file_is_a_clear_mistake(workdir):
    with pytest.raises(ConfigError, match="cannot be read"):
        Experiment.load(workdir / "nowhere")


def test_resolved_experiment_takes_more_words():
    experiment = Experiment.compose("cartpole", ["training.lr=1"])
    more = changed(experiment, ["stop_conditions.timesteps_total=9", "rollouts.num_workers=1"])
    assert more.get("stop_conditions.timesteps_total") == 9
    assert more.get("rollouts.num_env_runners") == 1
    assert more.get("training.lr") == 1
    assert more.overrides == ("training.lr=1", "stop_conditions.timesteps_total=9", "rollouts.num_workers=1")
    with pytest.raises(ConfigError, match="composed already"):
        changed(experiment, ["training/model=lstm"])
    with pytest.raises(ConfigError, match="--multirun"):
        changed(experiment, ["training.lr=1,2"])


def test_environment_variables_are_kept_by_name_and_resolved_when_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THE_TOKEN", "s3cret")
    (tmp_path / "mine.yaml").write_text(
        "environment:\n  env: CartPole-v1\n"
        "  env_config:\n    token: ${oc.env:THE_TOKEN}\n    url: a/${.token}\n"
        "evaluation:\n  evaluation_config:\n    env_config: ${environment.env_config}\n"
    )
    found = Experiment.compose("mine.yaml", ["environment.env_config.both=[1,'${oc.env:THE_TOKEN}']"])
    expected = {"token": "s3cret", "url": "a/s3cret", "both": [1, "s3cret"]}
    assert found.get("environment.env_config") == expected
    assert found.get("evaluation.evaluation_config.env_config") == expected
    found.save(tmp_path / "config.yaml")
    text = (tmp_path / "config.yaml").read_text()
    assert "s3cret" not in text
    assert "token: ${oc.env:THE_TOKEN}" in text
    monkeypatch.setenv("THE_TOKEN", "another")
    again = Experiment.load(tmp_path)
    assert again.get("evaluation.evaluation_config.env_config.url") == "a/another"
    assert "another" not in again.with_overrides(["training.lr=1e-3"]).to_yaml()
    assert again.with_overrides(["environment.env_config.token=x"]).get("environment.env_config.token") == "x"


def test_an_environment_variable_that_is_not_set_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THE_TOKEN", "s3cret")
    Experiment.compose("cartpole", ["environment.env_config.x=${oc.env:THE_TOKEN}"]).save("config.yaml")
    monkeypatch.delenv("THE_TOKEN")
    with pytest.raises(ConfigError, match=r"THE_TOKEN is not set[\s\S]*export THE_TOKEN=VALUE"):
        Experiment.load("config.yaml")
    assert (
        Experiment.load("config.yaml", resolve=False).get("environment.env_config.x") == "${oc.env:THE_TOKEN}"
    )
