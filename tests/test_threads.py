"""The number of torch threads follows the size of the work and the cores, in training and in acting."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import rayfish
from rayfish import threads
from rayfish.run import resources
from rayfish.run.checkpoint import read_header
from rayfish.supervise import watchdog
from tests.run.test_train import SMALL

IMAGE = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)


@pytest.fixture
def free(monkeypatch):
    """Torch with two threads and nobody who has set `OMP_NUM_THREADS`."""
    monkeypatch.delenv(threads.VARIABLE)
    monkeypatch.setattr(threads, "machine_cpus", lambda: 8)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield monkeypatch
    torch.set_num_threads(before)


def test_convolutions_count_once_per_place_of_the_image_and_each_tower_begins_with_it():
    def tower():
        return nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.Linear(512, 6))

    one = 441 * 32 * 4 * 64 + 110.25 * 64 * 32 * 16 + 512 * 6
    assert threads.multiplications(tower(), IMAGE) == one
    assert threads.multiplications(nn.ModuleList([tower(), tower()]), IMAGE) == 2 * one
    assert threads.multiplications(nn.Linear(4, 64), gym.spaces.Box(-1, 1, (4,))) == 256


def test_small_work_gets_one_thread_and_large_work_no_more_than_half_of_the_cores(free):
    assert [threads.fitting(work) for work in (1e3, 1.9e9, 3e9, 1e12)] == [1, 1, 3, 4]


def test_omp_num_threads_decides_alone(free):
    free.setenv(threads.VARIABLE, "2")
    threads.use(1)
    with threads.limited_to(1):
        assert torch.get_num_threads() == 2


def test_a_loaded_image_policy_acts_with_one_thread_and_restores_the_others(free, ray_session, workdir):
    with rayfish.Trainer("cartpole", *SMALL, env=Pictures) as trainer:
        place = trainer.save(workdir / "checkpoint")
        torch.set_num_threads(2)
    agent, seen = rayfish.load(place), []
    module = next(iter(agent.policies.values())).module
    module.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    agent.act(np.zeros((12, 12, 3), np.uint8))
    assert (seen, torch.get_num_threads()) == ([1], 2)


def test_a_resumed_training_has_the_threads_of_its_checkpoint(free, ray_session, workdir):
    free.setattr(threads, "WORK_PER_THREAD", 1e3)
    with rayfish.Trainer("cartpole", *SMALL) as trainer:
        place, made = trainer.save(workdir / "checkpoint"), trainer.threads
        assert made["learning"] == 4
        assert read_header(place)["threads"] == made
    free.setattr(threads, "WORK_PER_THREAD", 1e9)
    seen = []
    with rayfish.Trainer("cartpole", *SMALL) as trainer:
        assert trainer.threads == {"acting": 1, "learning": 1}
        trainer.restore(place)
        free.setattr(watchdog, "report_progress", lambda *_: seen.append(torch.get_num_threads()))
        trainer.step()
    assert trainer.threads == made
    assert seen[-1] == 4  # of the last update


def test_a_slow_run_is_advised_by_the_part_that_takes_its_time(monkeypatch):
    monkeypatch.delenv(threads.VARIABLE)
    monkeypatch.setattr(resources, "machine_gpus", lambda: 1)
    monkeypatch.setattr(resources, "machine_cpus", lambda: 8)
    experiment = rayfish.Experiment.compose("cartpole", ["algo.name=PPO"])
    slow = {"time/iteration_s": 9.0, "time/learn_share": 0.8, "time/inference_share": 0.1}
    told = resources.advice(slow, experiment, 2)
    assert told.startswith("learner takes 80 % of the time: resources.num_gpus=1")
    assert "OMP_NUM_THREADS=8" in told and "num_epochs" in told
    other = {**slow, "time/learn_share": 0.1, "time/inference_share": 0.7}
    assert "rollouts.num_envs_per_env_runner" in resources.advice(other, experiment, 1)
    assert not resources.advice({**slow, "time/iteration_s": 0.1}, experiment, 2)
    assert not resources.advice({**slow, "time/learn_share": 0.4}, experiment, 2)


class Pictures(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (12, 12, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, True, False, {}
