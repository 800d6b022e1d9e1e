"""Files people wrote for old RLlib, as they wrote them: notes on learning Ray, a dodgeball trainer."""

from __future__ import annotations

import json
import sys

import pandas as pd
import pytest

from rayfish import Experiment, train
from rayfish.cli.main import main
from tests.helpers import metrics_of, only_run, rayfish

CUSTOM_ENV = """
import gym
import numpy as np
from ray.rllib.env.apis.task_settable_env import TaskSettableEnv


class CustomEnv(gym.Env):
    # Old gym: reset gives the observation alone, step gives four values.
    def __init__(self, env_config=None):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self):
        self.t = 0
        return np.zeros(2, np.float32)

    def step(self, action):
        self.t += 1
        return np.full(2, self.t / 20, np.float32), float(action), self.t >= 20, {}


class CurriculumEnv(CustomEnv, TaskSettableEnv):
    difficulty = 0

    def get_task(self):
        return self.difficulty

    def set_task(self, task):
        self.difficulty = task

    def step(self, action):
        observation, reward, done, info = super().step(action)
        return observation, reward, done, {"metrics": {"difficulty": self.difficulty}}


def curriculum_fn(train_results, task_settable_env, env_ctx):
    time_steps = train_results.get('timesteps_total')
    difficulty = time_steps // 1000
    print(f'Current difficulty: {difficulty}')
    return difficulty
"""

CUSTOM_YML = """custom_env:
    env: custom_env.CustomEnv
    run: DQN
    checkpoint_freq: 1
    stop:
        timesteps_total: 10000
"""

CURRICULUM_YML = """curriculum:
    env: custom_env.CurriculumEnv
    run: PPO
    stop:
        timesteps_total: 3000
    config:
        env_task_fn: custom_env.curriculum_fn
        train_batch_size: 500
        num_workers: 0
"""

LSTM_YML = """repeat-after-me:
    env: ray.rllib.examples.env.repeat_after_me_env.RepeatAfterMeEnv
    run: PPO
    stop: {training_iteration: 2}
    config:
        # Make env partially observable.
        env_config:
          config:
            repeat_delay: 2
        num_workers: 0
        num_envs_per_worker: 20
        model:
            use_lstm: true
            lstm_cell_size: 64
            max_seq_len: 20
            fcnet_hiddens: [64]
            vf_share_layers: true
"""

CUSTOMNET = """
import torch
from torch import nn


class CustomModel(nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, units=8, **kwargs):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_space.shape[0], units), nn.Tanh())
        self.logits, self.value = nn.Linear(units, num_outputs), nn.Linear(units, 1)

    def forward(self, obs):
        features = self.body(obs)
        return self.logits(features), self.value(features).squeeze(-1)
"""

CUSTOMNET_YAML = """dodgeball-ppo-customnet:
    env: custom_env.CustomEnv
    run: PPO
    stop:
        training_iteration: 2
    config:
        num_workers: 0
        num_gpus: 0
        train_batch_size: 200
        sgd_minibatch_size: 100
        num_sgd_iter: 2
        model:
            custom_model: customnet # this should be the same as your python file name (w/o .py)
            custom_model_config:
                units: 24
"""


@pytest.fixture
def project(workdir, monkeypatch):
    monkeypatch.delitem(sys.modules, "custom_env", raising=False)  # another test's, of the same name
    (workdir / "custom_env.py").write_text(CUSTOM_ENV)
    for name, text in (("custom", CUSTOM_YML), ("curriculum", CURRICULUM_YML), ("lstm", LSTM_YML)):
        (workdir / f"{name}.yml").write_text(text)
    for folder in ("model", "config"):
        (workdir / folder).mkdir()
    (workdir / "model/customnet.py").write_text(CUSTOMNET)
    (workdir / "config/dodgeball-ppo-customnet.yaml").write_text(CUSTOMNET_YAML)
    return workdir


@pytest.mark.slow
def test_custom_yml_trains_as_written_and_its_checkpoint_is_evaluated_as_written(project):
    rayfish("train", "-f", "custom.yml", cwd=project)
    run = only_run(project)
    assert run.parent.name == "custom_env"
    assert 10_000 <= metrics_of(run)[-1]["run/env_steps"] < 12_000
    assert len(list((run / "checkpoints").glob("[0-9]*"))) == len(metrics_of(run)), "checkpoint_freq: 1"
    words = ("--run", "DQN", "--env", "custom_env.CustomEnv", "--steps", "100")
    said = rayfish("evaluate", str(run / "checkpoints/last"), *words, cwd=project).stdout
    assert float(said.split()[0]) > 15, "it learnt to take action 1"


def test_the_curriculum_function_sets_the_task_of_every_environment(project, ray_session, capfd):
    run = train(Experiment.compose("curriculum.yml"))
    difficulties = [line.get("env/difficulty") for line in metrics_of(run)]
    assert difficulties[0] == 0
    assert difficulties[-1] > 1, "it follows the steps"
    assert "Current difficulty: 2" in capfd.readouterr().out + (run / "log.txt").read_text()


def test_the_lstm_block_trains_as_written(project, ray_session):
    experiment = Experiment.compose("lstm.yml", ["training.train_batch_size_per_learner=800"])
    run = train(experiment)
    assert experiment.get("training.model.lstm_cell_size") == 64
    assert len(metrics_of(run)) == 2


def test_the_dodgeball_scripts_words_train_and_roll_out(project, ray_session, capsys):
    words = ["-f", "./config/dodgeball-ppo-customnet.yaml", "--local-dir", "logs", "--temp-dir", "/tmp/rf"]
    with pytest.raises(SystemExit) as ended:
        main(["train", *words, "--checkpoint-freq", "1", "--checkpoint-at-end", "--ray-num-nodes", "1"])
    assert ended.value.code == 0
    (run,) = (project / "logs/dodgeball-ppo-customnet").iterdir()
    assert sorted(path.name for path in (run / "checkpoints").glob("[0-9]*")) == ["000001", "000002"]
    policy = json.loads((run / "checkpoints/last/policy/policy.json").read_text())
    assert "customnet" in json.dumps(policy)
    flags = ["--run", "PPO", "--episodes", "1", "--num-workers", "0", "--num-gpus", "0", "--save-info"]
    with pytest.raises(SystemExit) as ended:
        main(["rollout", str(run / "checkpoints/000002"), *flags])
    assert ended.value.code == 0
    (folder,) = (run / "rollouts").iterdir()
    steps = pd.read_parquet(folder / "trajectories.parquet")
    assert len(steps) == 20
    assert "info" in steps
