"""Files, presets and overrides become one resolved experiment."""

from __future__ import annotations

import pytest

from rayfish import Experiment
from rayfish.errors import ConfigError
from rayfish.experiment import tree
from rayfish.experiment.compose import DEFAULT_STEPS
from rayfish.experiment.sections import SECTIONS, defaults


def problems_of(error) -> str:
    return str(error.value)


def test_nothing_named_gives_the_default_experiment():
    experiment = Experiment.compose()
    assert experiment.get("environment.env") == "CartPole-v1"
    assert experiment.get("algo.name") == "PPO"
    assert experiment.get("stop_conditions.episode_reward_mean") == 475


def test_values_without_a_name_change_the_default_experiment():
    experiment = Experiment.compose(overrides=["training.lr=1e-3"])
    assert (experiment.get("environment.env"), experiment.get("training.lr")) == ("CartPole-v1", 1e-3)


@pytest.mark.parametrize(
    ("algo", "env"),
    [("DQN", "CartPole-v1"), ("sac", "Pendulum-v1"), ("APPO", "CartPole-v1"), ("IMPALA", "CartPole-v1")],
)
def test_the_default_experiment_follows_the_algorithm(algo, env):
    experiment = Experiment.compose(overrides=[f"algo.name={algo}"])
    assert experiment.get("environment.env") == env
    assert experiment.get("algo.name").lower() == algo.lower()


def test_naming_an_environment_takes_no_preset():
    experiment = Experiment.compose(overrides=["environment.env=Acrobot-v1"])
    assert experiment.get("environment.env") == "Acrobot-v1"
    assert experiment.get("algo.name") == "DQN"
    assert experiment.get("stop_conditions.episode_reward_mean") is None


def test_an_environment_handed_in_from_python_takes_no_preset():
    def creator():
        return None

    experiment = Experiment.compose(env=creator)
    assert experiment.env is creator
    assert experiment.get("environment.env") is None


@pytest.mark.parametrize("name", ["acrobot", "cartpole", "cartpole-dqn", "lunarlander", "pendulum"])
def test_every_preset_composes_with_all_sections(name):
    experiment = Experiment.compose(name)
    assert set(SECTIONS) <= set(experiment.config)


@pytest.mark.parametrize(("name", "algo"), [("dqn", "DQN"), ("ppo", "PPO"), ("config", "PPO")])
def test_main_config_by_name(name, algo):
    assert Experiment.compose(config_name=name).get("algo.name") == algo


def test_shipped_files_say_what_the_section_table_says():
    """The reference page shows the table's defaults; the files are what runs."""
    experiment = Experiment.compose(overrides=["environment.env=X-v0"])
    resolved = {"rollouts.num_envs_per_env_runner": 1, "environment.env": "X-v0"}
    resolved["stop_conditions.timesteps_total"] = DEFAULT_STEPS  # no experiment is named
    silent = {"resources.num_gpus", "offline_data.input_"}  # left to RLlib's own default
    for dotted, default in defaults().items():
        if dotted in silent:
            continue
        expected = resolved.get(dotted, default)
        found = experiment.get(dotted, tree.MISSING)
        if dotted == "evaluation.evaluation_config":
            found = {key: value for key, value in found.items() if key != "env_config"}
        assert found == expected, dotted


@pytest.mark.parametrize(("algo", "count"), [("PPO", 8), ("DQN", 1), ("SAC", 1), ("IMPALA", 8)])
def test_environments_per_runner_are_chosen_by_algorithm(algo, count):
    experiment = Experiment.compose(overrides=[f"algo.name={algo}", "environment.env=CartPole-v1"])
    assert experiment.get("rollouts.num_envs_per_env_runner") == count


def test_group_choice_is_taken():
    experiment = Experiment.compose("cartpole", ["training/model=lstm"])
    assert experiment.get("training.model.use_lstm") is True
    assert experiment.origin("training.model.use_lstm") == "rayfish/conf/training/model/lstm.yaml:4"


def test_interpolation_sees_overrides():
    words = ["environment.env_config.size=${simulation.size}", "simulation.size=7"]
    assert Experiment.compose("cartpole", words).get("environment.env_config.size") == 7


def test_broken_interpolation_names_the_key():
    with pytest.raises(ConfigError) as error:
        Experiment.compose("cartpole", ["training.lr=${nowhere.lr}"])
    assert "nowhere" in problems_of(error)


def test_unknown_preset_offers_the_nearest():
    with pytest.raises(ConfigError) as error:
        Experiment.compose("cartpol")
    assert "did you mean cartpole" in problems_of(error)
    assert "pendulum" in problems_of(error)


def test_unknown_group_option_lists_the_options():
    with pytest.raises(ConfigError) as error:
        Experiment.compose("cartpole", ["training/model=lsmt"])
    assert "did you mean lstm" in problems_of(error)
    assert "mlp" in problems_of(error)


def test_unknown_main_config_lists_the_configs():
    with pytest.raises(ConfigError) as error:
        Experiment.compose(config_name="dqm")
    assert "did you mean dqn" in problems_of(error)


def test_two_algorithms_spelled_differently_are_the_same():
    experiment = Experiment.compose("cartpole", ["algo.name=ppo"])
    assert experiment.get("algo.name") == "PPO"


def test_with_values_leaves_the_original_alone():
    experiment = Experiment.compose("cartpole")
    changed = experiment.with_values({"training.lr": 1.0, "environment.env_config": {"a": 1}}, "--fit")
    assert changed.get("training.lr") == 1.0
    assert changed.origin("training.lr") == "--fit"
    assert changed.origin("environment.env_config.a") == "--fit"
    assert experiment.get("training.lr") == 6e-3


def test_section_is_a_copy():
    experiment = Experiment.compose("cartpole")
    experiment.section("training")["lr"] = 9
    assert experiment.get("training.lr") == 6e-3
    assert experiment.section("nowhere") == {}


def test_composing_does_not_disturb_hydra_in_the_same_process(tmp_path):
    """A notebook may use Hydra for itself."""
    from hydra import compose, initialize_config_dir

    (tmp_path / "mine.yaml").write_text("a: 1\n")
    with initialize_config_dir(version_base=None, config_dir=str(tmp_path)):
        Experiment.compose("cartpole")
        assert compose("mine").a == 1
