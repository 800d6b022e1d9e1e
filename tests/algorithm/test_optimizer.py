"""`training.optimizer`: another optimiser than RLlib's, also after a resume."""

from __future__ import annotations

import pytest
import torch

import rayfish
from rayfish.algorithm import signatures
from rayfish.experiment import Experiment

pytestmark = pytest.mark.usefixtures("ray_session", "workdir")

TINY = (
    "environment.env=CartPole-v1", "training.train_batch_size_per_learner=64", "training.minibatch_size=32",
    "training.num_epochs=1", "training.model.fcnet_hiddens=[8]", "rollouts.num_envs_per_env_runner=2",
)  # fmt: skip


def optimizers(trainer):
    learner = trainer.algorithm.learner_group._learner
    return list(learner._named_optimizers.values())


def test_rmsprop_takes_the_place_of_adam_and_survives_a_resume():
    settings = "training.optimizer={type: rmsprop, decay: 0.9, momentum: 0.5, epsilon: 0.01}"
    with rayfish.Trainer(None, "algo.name=PPO", settings, "training.lr=0.002", *TINY) as trainer:
        (optimizer,) = optimizers(trainer)
        assert isinstance(optimizer, torch.optim.RMSprop)
        (group,) = optimizer.param_groups
        assert (group["alpha"], group["momentum"], group["eps"]) == (0.9, 0.5, 0.01)
        assert group["lr"] == 0.002
        trainer.step()
        saved = trainer.save()
        after = trainer.step()
        trainer.restore(saved)
        again = trainer.step()
        assert isinstance(optimizers(trainer)[0], torch.optim.RMSprop)
        assert again["learn/default_policy/policy_loss"] == after["learn/default_policy/policy_loss"]


def test_adams_epsilon_can_be_set():
    words = ("algo.name=DQN", "environment.env=CartPole-v1", "training.optimizer.epsilon=0.00015")
    with rayfish.Trainer(None, *words) as trainer:
        (optimizer,) = optimizers(trainer)
        assert isinstance(optimizer, torch.optim.Adam)
        assert optimizer.param_groups[0]["eps"] == 0.00015


@pytest.mark.parametrize(
    ("algo", "settings", "said"),
    [
        ("SAC", "{epsilon: 0.1}", "an optimiser for each of its networks"),
        ("PPO", "{type: lion}", "not one of adam, adamw, rmsprop, sgd"),
        ("PPO", "{decay: 0.9}", "adam has no decay"),
        ("PPO", "{epsilom: 0.9}", "there is no such key"),
    ],
)
def test_what_no_optimizer_takes_is_reported(algo, settings, said):
    env = "Pendulum-v1" if algo == "SAC" else "CartPole-v1"
    words = [f"algo.name={algo}", f"environment.env={env}", f"training.optimizer={settings}"]
    (problem,) = signatures.problems(Experiment.compose(None, words))
    assert said in problem.what


def test_soft_q_draws_the_better_actions_more_often_in_training_and_from_the_checkpoint():
    words = (
        "algo.name=DQN", "environment.env=CartPole-v1", "training.model.fcnet_hiddens=[8]",
        "exploration.exploration_config={type: SoftQ, temperature: 1000.0}",
        "reporting.min_sample_timesteps_per_iteration=50",
    )  # fmt: skip
    with rayfish.Trainer(None, *words) as trainer:
        trainer.step()
        checkpoint = trainer.save()
    agent = rayfish.load(checkpoint)
    agent.seed(0)
    observation = [0.0, 0.1, 0.0, -0.1]
    drawn = [int(agent.act(observation, explore=True)) for _ in range(200)]
    assert 60 < sum(drawn) < 140, "at such a temperature all actions are alike"
    assert len({int(agent.act(observation)) for _ in range(20)}) == 1, "without exploring, the best one"
