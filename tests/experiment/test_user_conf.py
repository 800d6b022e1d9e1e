"""A project's own config folder and files, outside of Rayfish."""

from __future__ import annotations

import pytest

from rayfish import Experiment
from rayfish.errors import ConfigError
from rayfish.experiment.compose import catalogue


@pytest.fixture
def conf(workdir):
    folder = workdir / "conf"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "mine.yaml").write_text(
        "# @package _global_\n# My own task.\nenvironment:\n  env: my_env.py:MyEnv\nalgo:\n  name: PPO\n"
    )
    (folder / "training" / "model").mkdir(parents=True)
    (folder / "training" / "model" / "tiny.yaml").write_text("fcnet_hiddens: [4]\n")
    return folder


def test_own_preset_with_its_lines(conf):
    experiment = Experiment.compose("mine", config_dir=conf)
    assert experiment.get("environment.env") == "my_env.py:MyEnv"
    assert experiment.origin("environment.env") == "conf/experiment/mine.yaml:4"
    assert experiment.get("checkpoint.checkpoint_frequency") == 20


def test_own_group_option_beside_the_shipped_ones(conf):
    experiment = Experiment.compose("mine", ["training/model=tiny"], config_dir=conf)
    assert experiment.get("training.model.fcnet_hiddens") == [4]
    assert Experiment.compose("mine", ["training/model=lstm"], config_dir=conf).get("training.model.use_lstm")


def test_code_is_looked_up_beside_the_config_folder(conf, workdir):
    experiment = Experiment.compose("mine", config_dir=conf)
    assert set(experiment.paths) == {str(workdir), str(conf)}


def test_own_main_config_that_builds_on_ours(conf):
    (conf / "big.yaml").write_text("defaults:\n  - config\n  - _self_\nalgo:\n  name: SAC\n")
    experiment = Experiment.compose(overrides=["environment.env=A-v0"], config_name="big", config_dir=conf)
    assert experiment.get("algo.name") == "SAC"
    assert experiment.origin("algo.name") == "conf/big.yaml:5"


def test_own_main_config_of_the_same_name_is_completed_with_ours(conf):
    (conf / "config.yaml").write_text("algo:\n  name: PPO\nenvironment:\n  env: Acrobot-v1\n")
    experiment = Experiment.compose(config_dir=conf)
    assert experiment.get("environment.env") == "Acrobot-v1"
    assert experiment.get("checkpoint.checkpoint_frequency") == 20
    assert experiment.origin("algo.name") == "conf/config.yaml:2"
    assert experiment.origin("debugging.seed").startswith("rayfish/conf/config.yaml:")


def test_own_file_replaces_the_shipped_one_of_the_same_name_with_its_defaults(conf):
    (conf / "training" / "default.yaml").write_text("defaults:\n  - model: tiny\n  - _self_\ngamma: 0.5\n")
    experiment = Experiment.compose("mine", config_dir=conf)
    assert experiment.get("training.model.fcnet_hiddens") == [4]
    assert experiment.get("training.gamma") == 0.5


def test_main_config_without_an_experiment_entry_takes_a_preset_all_the_same(conf):
    (conf / "config.yaml").write_text("algo:\n  name: DQN\n")
    assert Experiment.compose("mine", config_dir=conf).get("algo.name") == "PPO"


def test_own_main_config_may_override_hydra_groups(conf):
    (conf / "config.yaml").write_text(
        "defaults:\n  - _self_\n  - override hydra/job_logging: disabled\nenvironment:\n  env: A-v0\n"
    )
    assert Experiment.compose(config_dir=conf).get("environment.env") == "A-v0"


def test_a_file_anywhere_is_an_experiment(workdir):
    file = workdir / "deep" / "exp.yaml"
    file.parent.mkdir()
    file.write_text("environment:\n  env: Acrobot-v1\ntraining:\n  gamma: 0.5\n")
    for name in ("deep/exp.yaml", "./deep/exp.yaml", str(file)):
        experiment = Experiment.compose(name, ["training.lr=1"])
        assert experiment.get("environment.env") == "Acrobot-v1"
        assert experiment.origin("training.gamma") == "deep/exp.yaml:4"
    assert str(file.parent) in experiment.paths


def test_a_file_may_use_groups_beside_it(workdir, conf):
    (conf / "experiment" / "other.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /training/model: tiny\nenvironment:\n  env: A-v0\n"
    )
    experiment = Experiment.compose("conf/experiment/other.yaml")
    assert experiment.get("training.model.fcnet_hiddens") == [4]


def test_a_file_may_have_any_name(workdir):
    (workdir / "my exp=1.2.yaml").write_text("environment:\n  env: Acrobot-v1\n")
    experiment = Experiment.compose("my exp=1.2.yaml")
    assert experiment.origin("environment.env") == "my exp=1.2.yaml:2"


def test_presets_may_lie_in_subfolders(conf):
    (conf / "experiment" / "robots").mkdir()
    (conf / "experiment" / "robots" / "arm.yaml").write_text(
        "# @package _global_\nenvironment:\n  env: Arm-v0\n"
    )
    assert Experiment.compose("robots/arm", config_dir=conf).get("environment.env") == "Arm-v0"


def test_missing_file_and_folder_are_named(workdir):
    with pytest.raises(ConfigError, match=r"no file nowhere\.yaml"):
        Experiment.compose("nowhere.yaml")
    with pytest.raises(ConfigError, match="no folder nowhere"):
        Experiment.compose("cartpole", config_dir="nowhere")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("environment:\n  env: [1, 2\nalgo:\n  name: PPO\n", "2"),
        ("environment:\n  env: A-v0\n   horizon: 3\n", "3"),
        ("a: 1\nb: 'open\n", "2"),
        ("a: 1\na: 2\n", "2"),
    ],
)
def test_broken_yaml_names_file_and_line(workdir, text, line):
    (workdir / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        Experiment.compose("bad.yaml")
    assert "not valid YAML" in str(error.value)
    assert f"bad.yaml:{line}" in str(error.value)


def test_a_file_that_is_a_list_is_refused(workdir):
    (workdir / "bad.yaml").write_text("- 1\n- 2\n")
    with pytest.raises(ConfigError):
        Experiment.compose("bad.yaml")


def test_numbers_in_files_are_read_as_people_write_them(workdir):
    (workdir / "exp.yaml").write_text("environment: {env: A-v0}\ntraining: {lr: 1e-3, gamma: 1.0e-1}\n")
    experiment = Experiment.compose("exp.yaml")
    assert (experiment.get("training.lr"), experiment.get("training.gamma")) == (1e-3, 0.1)


def test_presets_are_listed_with_what_they_are(conf):
    names = {name: (doc, path) for name, doc, path in catalogue(conf)["Presets"]}
    assert names["mine"] == ("My own task.", "conf/experiment/mine.yaml")


def test_hydra_run_dir_is_where_the_run_goes(conf):
    experiment = Experiment.compose("mine", ["hydra.run.dir=/data/x", "hydra.job.name=a"], config_dir=conf)
    assert experiment.get("runtime.local_dir") == "/data/x"
    assert [note for note in experiment.notes if "hydra.run.dir" in note]
    kept = Experiment.compose("mine", ["hydra.run.dir=/x", "runtime.local_dir=y"], config_dir=conf)
    assert kept.get("runtime.local_dir") == "y" and "is ignored" in kept.notes[0]


def test_values_of_hydra_and_the_time_resolve(conf):
    (conf / "config.yaml").write_text(
        "environment:\n  env: A-v0\n  env_config:\n    name: ${hydra:job.name}\n    day: ${now:%Y}\n"
        "    model: ${hydra:runtime.choices.model}\ndefaults:\n  - hydra: mine\n  - training/model@m: tiny\n"
        "  - _self_\nruntime:\n  local_dir: ${hydra:run.dir}\n"
    )
    (conf / "hydra").mkdir()
    (conf / "hydra" / "mine.yaml").write_text("run:\n  dir: out/${hydra.job.name}\nverbose: true\n")
    words = ["hydra.job.name=fire", "hydra/launcher=joblib", "~environment.env_config.model"]
    experiment = Experiment.compose(overrides=words, config_dir=conf)
    assert experiment.get("runtime.local_dir") == "out/fire" and experiment.get("hydra") is None
    assert experiment.get("environment.env_config.name") == "fire"
    assert experiment.get("environment.env_config.day").isdigit()
    (note,) = [note for note in experiment.notes if "hydra" in note]
    assert note.startswith("hydra.verbose, hydra.launcher: ignored")


def test_a_group_is_laid_upon_the_dictionary_an_interpolation_leads_to(conf):
    (conf / "evaluation").mkdir()
    (conf / "evaluation" / "mine.yaml").write_text("evaluation_config:\n  env_config:\n    size: 3\n")
    (conf / "config.yaml").write_text(
        "defaults:\n  - _self_\n  - evaluation: mine\nenvironment:\n  env: A-v0\n  env_config:\n    size: 1\n"
        "    inner:\n      twice: ${..size}\nevaluation:\n  evaluation_config:\n"
        "    env_config: ${environment.env_config}\n"
    )
    experiment = Experiment.compose(overrides=["environment.env_config.wind=7"], config_dir=conf)
    found = experiment.get("evaluation.evaluation_config.env_config")
    assert found == {"size": 3, "wind": 7, "inner": {"twice": 3}}
    assert experiment.origin("evaluation.evaluation_config.env_config.wind") == "command line"
    assert experiment.get("environment.env_config.inner.twice") == 1
