"""The trainer by RLlib's names: the Python loop of old notebooks, and RLlib's config objects."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

import rayfish
from rayfish.legacy.python_config import experiment_of
from rayfish.run.trainer import as_experiment
from tests.helpers import comparable
from tests.run.test_train import SMALL

pytestmark = pytest.mark.usefixtures("ray_session", "workdir")

QUICK = {
    "num_workers": 1,
    "timesteps_per_iteration": 200,
    "learning_starts": 100,
    "rollout_fragment_length": 4,
    "hiddens": [16],
    "model": {"fcnet_hiddens": [16]},
}


class Rendezvous3DOF(gym.Env):
    """Old gym's form: a bare reset, four values of a step."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(-10, 10, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(3)

    def reset(self):
        self.t, self.x = 0, np.ones(3, np.float32)
        return self.x

    def step(self, action):
        self.t += 1
        return self.x, float(action), self.t >= 5, {}


def test_the_python_loop_of_old_notebooks_runs_as_it_is(capsys):
    import rayfish.rllib

    pretty_print = importlib.import_module("ray.tune.logger").pretty_print
    DQNTrainer = importlib.import_module("ray.rllib.agents.dqn").DQNTrainer

    trainer = DQNTrainer(env=Rendezvous3DOF, config=QUICK)
    config = trainer.get_config()
    assert "lr: " in pretty_print(config)
    assert config["num_workers"] == config["num_env_runners"] == 1
    assert config["env"] is Rendezvous3DOF
    for _ in range(2):
        result = trainer.train()
    assert "episode_reward_mean: " in pretty_print(result)
    assert result["training_iteration"] == 2
    assert result["timesteps_total"] == result["run/env_steps"] >= 400
    assert result["episode_len_mean"] == result["env_runners"]["episode_len_mean"] == 5
    assert len(result["hist_stats"]["episode_reward"]) == result["episodes_this_iter"] > 0
    assert math.isfinite(result["info"]["learner"]["default_policy"]["learner_stats"]["cur_lr"])

    checkpoint = trainer.save()
    evaluation = trainer.evaluate(checkpoint)
    assert evaluation["evaluation"]["episode_reward_mean"] == evaluation["eval/return_mean"]

    restored_trainer = DQNTrainer(env=Rendezvous3DOF, config={**QUICK, "num_workers": 0})
    restored_trainer.restore(checkpoint)
    assert restored_trainer.iteration == 2
    restored_trainer.stop()

    env, done, steps = Rendezvous3DOF(), False, 0
    observation = env.reset()
    while not done:
        observation, _, done, _ = env.step(trainer.compute_single_action(observation))
        steps += 1
    assert steps == 5
    actions = trainer.compute_actions({"obs1": env.reset(), "obs2": env.reset()}, explore=False)
    assert actions["obs1"] == actions["obs2"] == trainer.compute_single_action(env.reset(), explore=False)

    policy = trainer.get_policy()
    given = trainer.workers.foreach_worker(lambda worker: worker.get_policy().get_weights())
    assert len(given) == 2
    weights = policy.get_weights()
    assert all(np.array_equal(given[1][name], weights[name]) for name in given[1])
    capsys.readouterr()
    policy.model.base_model.summary()
    printed = capsys.readouterr().out
    assert "16x3 + 16" in printed
    assert printed.splitlines()[-1].split()[0] == "total"

    assert trainer.workers.foreach_env(lambda env: type(env).__name__)[1] == ["Rendezvous3DOF"]
    with pytest.raises(rayfish.RayfishError, match="division by zero"):
        trainer.foreach_worker(lambda worker: 1 / 0)
    assert trainer.train()["run/worker_restarts"] == 0, "a faulty function is no faulty runner"
    policy.set_weights({name: np.zeros_like(value) for name, value in weights.items()})
    assert not any(value.any() for value in trainer.get_weights()["default_policy"].values())
    trainer.cleanup()


def test_acting_and_evaluating_leave_the_training_as_it_was():
    def trained(look):
        with rayfish.Trainer("cartpole", *SMALL) as trainer:
            trainer.step()
            if look:
                trainer.compute_single_action(np.zeros(4, np.float32))
                trainer.evaluate()
            return comparable(trainer.step())

    assert trained(look=True) == trained(look=False)


def test_old_settings_are_laid_upon_an_experiment_with_their_messages(capsys):
    words = ("training.train_batch_size_per_learner=100", "training.minibatch_size=50")
    with rayfish.Trainer("cartpole", *words, config={"lr": 0.002, "num_workers": 0}) as trainer:
        assert trainer.experiment.get("training.lr") == 0.002
        assert trainer.get_config()["train_batch_size"] == 100, "what the config does not name stays"
    assert "RLlib's old language" in capsys.readouterr().out
    named = as_experiment("cartpole", env="Acrobot-v1", config={"env": "Pendulum-v1"})
    assert named.get("environment.env") == "Acrobot-v1", "env= goes before the config's"
    assert as_experiment(None, config={"env": Rendezvous3DOF, "lr": 0.5}).env is Rendezvous3DOF
    with pytest.raises(rayfish.RayfishError, match="has a key 'lrr'"):
        rayfish.Trainer("cartpole", config={"lrr": 0.002})


def curriculum(train_results, task_settable_env, env_ctx):
    return train_results.get("timesteps_total") // 1000


def test_objects_in_old_configs_become_what_a_file_would_say():
    config = {
        "env": Rendezvous3DOF,
        "env_task_fn": curriculum,
        "observation_space": gym.spaces.Discrete(2),
        "env_config": {"size": np.int64(3)},
        "lr": np.float32(0.5),
    }
    found = experiment_of("PPO", config)
    assert found.env is Rendezvous3DOF
    assert found.get("environment.env_task_fn") == f"{__name__}:curriculum"
    assert found.get("environment.env_config.size") == 3
    assert found.get("training.lr") == 0.5
    with pytest.raises(
        rayfish.RayfishError, match="callbacks is a lambda, which no other process can import"
    ):
        experiment_of("PPO", {"env": "CartPole-v1", "callbacks": lambda: None})
    with pytest.raises(rayfish.RayfishError, match="PPO is given no environment"):
        experiment_of("PPO", {})
    with pytest.raises(rayfish.RayfishError, match="add closest=True"):
        experiment_of("A2C", {"env": "CartPole-v1"})
    assert experiment_of("A2C", {"env": "CartPole-v1"}, closest=True).get("algo.name") == "PPO"


@pytest.mark.slow  # it starts a Ray of its own
def test_a_function_of_the_main_script_is_a_curriculum_on_remote_workers_too(tmp_path):
    (tmp_path / "script.py").write_text(
        "import gymnasium as gym\n"
        "from rayfish.rllib import PPO\n"
        "from rayfish.envs.tasks import TaskSettableEnv\n"
        "class Env(TaskSettableEnv):\n"
        "    observation_space = gym.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gym.spaces.Discrete(2)\n"
        "    task = 0\n"
        "    def get_task(self): return self.task\n"
        "    def set_task(self, task): self.task = task\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        self.t = 0\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        "        self.t += 1\n"
        "        return self.observation_space.sample(), 1.0, self.t == 10, False, {}\n"
        "def curriculum_fn(train_results, env, env_ctx):\n"
        "    return train_results.get('timesteps_total') // 100\n"
        "config = {'env': Env, 'env_task_fn': curriculum_fn, 'num_workers': 1,\n"
        "          'train_batch_size': 200, 'sgd_minibatch_size': 100, 'num_sgd_iter': 1}\n"
        "trainer = PPO(config=config)\n"
        "trainer.train()\n"
        "print(trainer.workers.foreach_env(lambda env: env.task)[1][0])\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["2"], done.stdout + done.stderr


def test_rllibs_config_objects_are_experiments(workdir):
    from ray.rllib.algorithms.ppo import PPOConfig

    config = (
        PPOConfig()
        .environment("CartPole-v1", env_config={"sutton_barto_reward": True})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(lr=0.002, train_batch_size_per_learner=100, minibatch_size=50, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=5)
    )
    with rayfish.Trainer(config, {"training.gamma": 0.9}) as trainer:
        assert trainer.config.lr == 0.002
        assert trainer.config.gamma == 0.9
        assert (8, 4) in [value.shape for value in trainer.get_weights()["default_policy"].values()]
        assert 90 <= trainer.train()["timesteps_this_iter"] <= 110
    run = rayfish.train(config, {"stop_conditions": {"training_iteration": 1}}, plain=True)
    found = rayfish.Experiment.load(run)
    assert found.get("environment.env_config") == {"sutton_barto_reward": True}
    assert found.get("debugging.seed") == 5


def test_what_an_experiment_has_no_place_for_is_refused_by_name():
    from ray.rllib.algorithms.dqn import DQNConfig
    from ray.rllib.algorithms.ppo import PPOConfig

    config = PPOConfig().environment("CartPole-v1").callbacks(on_episode_end=lambda **kwargs: None)
    config.api_stack(enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False)
    with pytest.raises(rayfish.RayfishError) as refused:
        as_experiment(config)
    assert "callbacks_on_episode_end: callbacks.on_episode_end is a lambda" in str(refused.value)
    assert "old API stack is not supported" in str(refused.value)
    found = as_experiment(PPOConfig())
    assert found.get("environment.env") == "CartPole-v1"
    assert [note.partition(" is")[0] for note in found.notes][-1] == "num_env_runners"
    assert as_experiment(DQNConfig(), env=Rendezvous3DOF).get("algo.name") == "DQN"


OWN_MODULE = """
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule

class Own(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        self.pi, self.vf = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.pi(batch[Columns.OBS])}

    def compute_values(self, batch, embeddings=None):
        return self.vf(batch[Columns.OBS]).squeeze(-1)
"""


def test_an_rlmodule_of_the_users_acts_and_is_evaluated_while_it_is_trained(workdir):
    (workdir / "own.py").write_text(OWN_MODULE)
    with rayfish.Trainer(
        "cartpole", *SMALL, "~training.model.fcnet_hiddens", "training.model.custom_model=own.py:Own"
    ) as trainer:
        assert trainer.compute_single_action(np.zeros(4, np.float32)) in (0, 1)
        assert trainer.get_policy().get_weights()["pi.weight"].shape == (2, 4)
        assert trainer.evaluate()["evaluation"]["episode_reward_mean"] > 0
