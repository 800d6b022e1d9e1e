"""The algorithm where none is named: DQN for what it can learn, else PPO."""

from __future__ import annotations

import gymnasium as gym
import pytest

from rayfish import Experiment
from rayfish.run.choose import CHOSEN, with_fitting_algorithm
from rayfish.run.train import RunDirectory
from rayfish.sweep.plan import of_experiment
from tests.helpers import rayfish

FEW = (
    "stop_conditions.training_iteration=1",
    "training.train_batch_size_per_learner=128",
    "training.num_epochs=1",
)


class Many(gym.Env):
    """Several discrete actions at once."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.MultiDiscrete([2, 3])


@pytest.mark.parametrize(
    ("words", "name", "envs"),
    [
        (["CartPole-v1"], "DQN", 1),
        (["environment.env=Pendulum-v1"], "PPO", 8),
        (["Pendulum-v1", "SAC"], "SAC", 1),
    ],
)
def test_the_spaces_decide_where_nothing_names_an_algorithm(words, name, envs):
    found = with_fitting_algorithm(Experiment.compose(None, words))
    assert found.get("algo.name") == name
    assert found.get("rollouts.num_envs_per_env_runner") == envs, "what is filled in for that algorithm"
    told = [note for note in found.notes if "no algorithm is named" in note]
    assert len(told) == (name != "SAC")
    assert with_fitting_algorithm(found) == found, "once"


def test_an_environment_from_python_gets_an_algorithm_too():
    found = with_fitting_algorithm(Experiment.compose(env=Many))
    assert found.get("algo.name") == "PPO"
    assert found.origin("algo.name") == CHOSEN


def test_a_file_that_names_an_algorithm_keeps_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("algo: {name: DQN}\nenvironment: {env: Pendulum-v1}\n")
    assert with_fitting_algorithm(Experiment.compose("mine.yaml")).get("algo.name") == "DQN"


def test_an_environment_that_cannot_be_made_is_left_for_the_check():
    experiment = Experiment.compose("Nowhere-v0")
    assert with_fitting_algorithm(experiment) is experiment


def test_every_trial_of_a_sweep_has_the_algorithm_that_was_chosen():
    plan = of_experiment("Pendulum-v1", ["training.lr=loguniform(1e-4,1e-3)"])
    assert plan.target.payload({"training.lr": 1e-3}, None).get("algo.name") == "PPO"
    assert any("PPO is used" in note for note in plan.notes)
    compared = of_experiment(None, ["environment.env=CartPole-v1", "algo.name=DQN,PPO"])
    assert compared.target.payload({"algo.name": "PPO"}, None).get("algo.name") == "PPO"


def test_the_first_words_of_a_newcomer_train(tmp_path):
    done = rayfish("train", "Pendulum-v1", *FEW, "--plain", cwd=tmp_path)
    assert "PPO is used (DQN learns Discrete actions, this environment has Box" in done.stdout
    run = next((tmp_path / "runs").glob("*/*"))
    assert Experiment.load(run).get("algo.name") == "PPO"
    assert RunDirectory.open(run).status == "done"
