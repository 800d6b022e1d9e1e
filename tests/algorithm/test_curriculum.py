"""`environment.env_task_fn`: a function gives every environment its next task after each iteration."""

from __future__ import annotations

import math
import os
import signal
import sys
import time

import pytest

import rayfish
from rayfish.algorithm import curriculum
from rayfish.errors import ConfigError, RayfishError
from tests.helpers import comparable, metrics_of, only_run
from tests.helpers import rayfish as command

CURRICULUM = '''
import threading

import gym
import numpy as np
from gym import spaces
from ray.rllib.env.apis.task_settable_env import TaskSettableEnv, TaskType


class CurriculumEnv(TaskSettableEnv):
    """Ten steps, each worth the level; the old reset and step."""

    def __init__(self, config=None):
        self.level = 0
        self.observation_space = spaces.Box(-1.0, 100.0, (2,), dtype=np.float32)
        self.action_space = spaces.Discrete(2)

    def seed(self, seed=None):
        self.random = np.random.RandomState(seed)

    def reset(self):
        self.t = 0
        return np.array([self.random.rand(), self.level])

    def step(self, action):
        self.t += 1
        return np.array([self.random.rand(), self.level]), float(self.level), self.t >= 10, {}

    def get_task(self):
        return self.level

    def set_task(self, task: TaskType):
        self.level = task


class Locked(CurriculumEnv):
    """One that can be neither pickled nor asked for its state."""

    def __init__(self, config=None):
        super().__init__(config)
        self.lock = threading.Lock()


class NoTasks(gym.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)

    def reset(self):
        return np.zeros(2)

    def step(self, action):
        return np.zeros(2), 0.0, True, {}


def curriculum_fn(train_results, task_settable_env, env_ctx):
    time_steps = train_results.get('timesteps_total')
    difficulty = time_steps // 100
    print(f'Current difficulty: {difficulty}')
    return difficulty


def by_place(train_results, env, env_ctx):
    """Tells apart who asked, and what the results hold."""
    assert isinstance(env, CurriculumEnv) and env_ctx["size"] == 3, (env, env_ctx)
    assert train_results["training_iteration"] == train_results["timesteps_total"] // 80
    assert train_results["episodes_total"] == train_results["timesteps_total"] // 10
    assert train_results["episode_len_mean"] == 10
    assert train_results["time_total_s"] > 0
    mean = train_results["episode_reward_mean"]
    assert mean == train_results["env_runners"]["episode_return_mean"]
    assert train_results["episode_reward_min"] <= mean <= train_results["episode_reward_max"]
    return 10 * env_ctx.worker_index + env_ctx.vector_index + 1


def broken(train_results, env, env_ctx):
    raise RuntimeError("no such level")


not_a_function = 3
'''
PPO = (
    "algo.name=PPO", "training.train_batch_size_per_learner=80", "training.minibatch_size=40",
    "training.num_epochs=1", "training.model.fcnet_hiddens=[8]", "rollouts.num_envs_per_env_runner=2",
)  # fmt: skip


def words(function, env="CurriculumEnv", *more):
    return (
        *PPO, f"environment.env=lessons.{env}", f"environment.env_task_fn=lessons.{function}", *more
    )  # fmt: skip


@pytest.fixture
def folder(workdir, monkeypatch, ray_session):
    """A folder with the user's environment and curriculum; forgotten afterwards."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    (workdir / "lessons.py").write_text(CURRICULUM)
    yield workdir
    sys.modules.pop("lessons", None)


def levels(trainer):
    return [found for found in trainer.foreach_runner(_levels) if found]


def _levels(runner):
    return [env.get_task() for _, env in curriculum._environments(runner)]


def test_the_task_follows_the_steps_as_the_function_says(folder):
    with rayfish.Trainer(*words("curriculum_fn")) as trainer:
        seen = []
        for _ in range(4):
            metrics = trainer.step()
            seen += levels(trainer)
        assert seen == [[0, 0], [1, 1], [2, 2], [3, 3]]
        assert metrics["rollout/return_max"] == 20.0


@pytest.mark.parametrize("runners", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_function_sees_the_users_own_environment_its_place_and_old_names(folder, runners):
    more = (f"rollouts.num_env_runners={runners}", "environment.env_config.size=3")
    with rayfish.Trainer(*words("by_place", "CurriculumEnv", *more)) as trainer:
        trainer.step()
        assert levels(trainer) == ([[1, 2]] if runners == 0 else [[11, 12], [21, 22]])
        trainer.step()


@pytest.mark.slow
def test_a_runner_that_died_comes_back_with_the_task_of_the_moment(folder):
    more = ("rollouts.num_env_runners=1", "rollouts.num_envs_per_env_runner=1")
    with rayfish.Trainer(*words("curriculum_fn", "CurriculumEnv", *more)) as trainer:
        trainer.step()
        trainer.step()
        assert levels(trainer) == [[1]]
        (pid,) = [pid for pid in trainer.foreach_runner(_pid) if pid != os.getpid()]
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            metrics = trainer.step()
            if [pid for pid in trainer.foreach_runner(_pid) if pid != os.getpid()]:
                break
        assert levels(trainer) == [[metrics["run/env_steps"] // 100]]


def _pid(runner):
    return os.getpid()


def test_environments_remade_within_a_runner_keep_their_tasks(folder):
    with rayfish.Trainer(*words("curriculum_fn")) as trainer:
        trainer.step()
        trainer.step()
        trainer.foreach_runner(lambda runner: runner.make_env())
        assert levels(trainer) == [[1, 1]]


@pytest.mark.parametrize("env", ["CurriculumEnv", "Locked"])
def test_a_restored_run_goes_on_with_its_tasks_exactly(folder, env):
    with rayfish.Trainer(*words("curriculum_fn", env)) as trainer:
        trainer.step()
        trainer.step()
        checkpoint = trainer.save("saved")
        expected = [comparable(trainer.step()) for _ in range(2)]
        reached = levels(trainer)
    with rayfish.Trainer(*words("curriculum_fn", env)) as again:
        assert again.info.saved_by == ("pickle" if env == "CurriculumEnv" else "fresh")
        again.restore(checkpoint)
        curriculum.reapply(again.algorithm)
        assert levels(again) == [[1, 1]]
        assert [comparable(again.step()) for _ in range(2)] == expected
        assert levels(again) == reached == [[3, 3]]


def test_before_an_episode_has_ended_counts_are_zero_and_means_unknown():
    setter = curriculum.TaskSetter("lessons.curriculum_fn")
    results = setter._old_names({})
    assert (results["timesteps_total"], results["episodes_total"]) == (0, 0)
    assert math.isnan(results["episode_reward_mean"])


@pytest.mark.parametrize(
    ("function", "env", "more", "said"),
    [
        ("curriculum_fn", "NoTasks", (), "NoTasks has no get_task() and set_task(task)"),
        ("nowhere", "CurriculumEnv", (), "has no 'nowhere'"),
        ("not_a_function", "CurriculumEnv", (), "is a int"),
        ("curriculum_fn", "CurriculumEnv", ("rollouts.gym_env_vectorize_mode=async",), "cannot reach"),
    ],
)
def test_what_cannot_work_is_reported_before_training(folder, function, env, more, said):
    with pytest.raises(ConfigError) as caught:
        rayfish.Trainer(*words(function, env, *more))
    assert said in str(caught.value)
    assert "environment.env_task_fn" in str(caught.value)


@pytest.mark.parametrize("runners", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_function_that_raises_ends_the_run_with_its_line(folder, runners):
    with (
        rayfish.Trainer(*words("broken", "CurriculumEnv", f"rollouts.num_env_runners={runners}")) as trainer,
        pytest.raises(RayfishError) as caught,
    ):
        trainer.step()
    assert "no such level" in str(caught.value)
    assert "lessons.py" in str(caught.value)


@pytest.mark.slow
def test_the_command_prints_what_the_function_prints_and_resumes_with_its_tasks(workdir):
    (workdir / "lessons.py").write_text(CURRICULUM)
    stop = "stop_conditions.training_iteration={}"
    done = command("train", *words("curriculum_fn", "Locked"), stop.format(3), cwd=workdir)
    assert "Current difficulty: 2" in done.stdout
    command("train", "--resume", "last", stop.format(5), cwd=workdir)
    assert metrics_of(only_run(workdir))[-1]["rollout/return_max"] == 30.0
