"""`environment.clip_rewards`: clipped for the learner, true in what is reported and evaluated."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import rayfish
from rayfish.algorithm.adapters import EnvCreator
from rayfish.envs.build import EnvSpec, from_experiment, problems
from rayfish.envs.rewards import TRUE_RETURN, ClipFault, clip_of, clipped
from rayfish.experiment.experiment import Experiment
from tests.envs.user_code import OLD_RLLIB, PARALLEL
from tests.helpers import comparable


class Paying(gym.Env):
    """Pays -3, 0.5, 7 and so on: 4.5 in three steps; eleven steps are an episode."""

    observation_space = gym.spaces.Box(-20, 20, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    length = 11

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        reward = (-3.0, 0.5, 7.0)[(self.t - 1) % 3]
        return np.full(1, self.t, np.float32), reward, self.t >= self.length, False, {"kept": 1}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (True, [-1.0, 1.0, 1.0]),
        (1, [-1.0, 0.5, 1.0]),
        (2.0, [-2.0, 0.5, 2.0]),
        ([0, 5], [0.0, 0.5, 5.0]),
        (None, [-3.0, 0.5, 7.0]),
        (False, [-3.0, 0.5, 7.0]),
    ],
)
def test_rewards_are_clipped_as_the_setting_says(setting, expected):
    env = clipped(Paying(), clip_of(setting))
    env.reset(seed=0)
    assert [env.step(0)[1] for _ in range(3)] == expected


def test_the_last_info_tells_the_true_return_of_its_episode_and_nothing_is_lost():
    env = clipped(Paying(), clip_of(True))
    for _ in range(2):
        env.reset(seed=0)
        infos = [env.step(0)[4] for _ in range(11)]
        assert infos[-1] == {"kept": 1, TRUE_RETURN: pytest.approx(3 * 4.5 - 3 + 0.5)}
        assert all(TRUE_RETURN not in info for info in infos[:-1])


@pytest.mark.parametrize("setting", [-1, 0, "sign", [1], [3, 2], ["a", "b"]])
def test_a_setting_that_clips_to_nothing_is_a_problem_of_its_key(setting):
    with pytest.raises(ClipFault):
        clip_of(setting)
    experiment = Experiment({"environment": {"env": "CartPole-v1", "clip_rewards": setting}})
    (found,), _ = problems(experiment)
    assert found.key == "environment.clip_rewards"
    assert "[low, high]" in found.hint


def test_evaluation_keeps_the_true_rewards():
    experiment = Experiment({"environment": {"env": "CartPole-v1", "clip_rewards": True}})
    assert from_experiment(experiment).clip_rewards is not None
    assert from_experiment(experiment, evaluation=True).clip_rewards is None


@pytest.mark.parametrize(("code", "name"), [(PARALLEL, "Relay"), (OLD_RLLIB, "Pair")])
def test_the_rewards_of_several_agents_are_clipped_each(folder, code, name):
    folder.write("agents.py", code)
    env = EnvCreator(EnvSpec(f"agents:{name}", folder.paths, clip_rewards=clip_of([0.0, 0.25])))({})
    observations, _ = env.reset(seed=0)
    true, over = {}, False
    while not over:
        observations, rewards, ended, cut, infos = env.step(dict.fromkeys(env.agents, 1))
        assert set(rewards.values()) == {0.25}
        for agent in rewards:
            true[agent] = true.get(agent, 0.0) + 1.0
        over = ended["__all__"] or cut["__all__"]
    assert all(infos[agent][TRUE_RETURN] == true for agent in observations)


def test_copies_that_step_as_one_tell_each_its_own_return():
    vector = gym.vector.SyncVectorEnv([Paying, lambda: gym.wrappers.TimeLimit(Paying(), 3)])
    env = clipped(vector, clip_of(True))
    env.reset(seed=0)
    told = []
    for _ in range(11):
        _, rewards, ended, cut, infos = env.step([0, 0])
        assert np.abs(rewards).max() <= 1
        told += [(index, infos[TRUE_RETURN][index]) for index in np.flatnonzero(ended | cut)]
    assert told == [(1, 4.5), (1, 4.5), (0, 11.0), (1, 4.5)]


PPO = (
    "rollouts.num_envs_per_env_runner=2", "training.train_batch_size_per_learner=50",
    "training.minibatch_size=25", "training.num_epochs=1", "training.model.fcnet_hiddens=[8]",
    "algo.name=PPO",
)  # fmt: skip


@pytest.mark.usefixtures("ray_session", "workdir")
def test_a_run_learns_from_clipped_rewards_reports_true_ones_and_resumes_exactly():
    words = ("environment.clip_rewards=true", *PPO)
    with rayfish.Trainer(*words, env=Paying) as trainer:
        first = trainer.step()  # its end is in the middle of episodes of 11 steps
        assert first["rollout/return_mean"] == 11.0
        assert trainer.result["env_runners"]["episode_return_mean"] == 3.0  # signs: 3 * 1 - 1 + 1
        checkpoint = trainer.save("saved")
        expected = comparable(trainer.step())
    with rayfish.Trainer(*words, env=Paying) as again:
        again.restore(checkpoint)
        assert comparable(again.step()) == expected
        assert expected["rollout/return_mean"] == 11.0
