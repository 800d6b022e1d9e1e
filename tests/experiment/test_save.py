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
