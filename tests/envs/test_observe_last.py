"""`environment.observe_last_action` and `_reward`: what was done and earned is observed."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import rayfish
from rayfish.envs.build import make
from rayfish.envs.spec import EnvSpec
from rayfish.envs.wrappers import LastFault


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_the_observation_holds_the_last_action_and_reward(name):
    env = make(EnvSpec(name, last_action=True, last_reward=True))
    observation, _ = env.reset(seed=0)
    assert not np.any(observation["last_action"])
    assert observation["last_reward"] == [0.0]
    assert env.observation_space.contains(observation)
    action = env.action_space.sample()
    observation, reward, *_ = env.step(action)
    assert np.array_equal(observation["last_action"], action)
    assert observation["last_reward"] == np.float32(reward)
    assert env.observation_space.contains(observation)


def test_a_dict_observation_keeps_its_keys():
    class Room(gym.Env):
        observation_space = gym.spaces.Dict({"door": gym.spaces.Discrete(2)})
        action_space = gym.spaces.Discrete(3)

        def reset(self, *, seed=None, options=None):
            return {"door": 1}, {}

        def step(self, action):
            return {"door": 0}, 1.0, True, False, {}

    env = make(EnvSpec("room", object=Room, last_action=True))
    assert set(env.observation_space) == {"door", "last_action"}
    env.reset()
    assert env.step(2)[0] == {"door": 0, "last_action": 2}


def test_several_agents_are_refused():
    name = "ray.rllib.examples.envs.classes.multi_agent.MultiAgentCartPole"
    with pytest.raises(LastFault, match="only a single agent"):
        make(EnvSpec(name, last_reward=True), {"num_agents": 2})


def test_a_policy_trained_on_it_plays_alone(workdir, ray_session):
    words = (
        "algo.name=PPO", "environment.env=CartPole-v1", "environment.observe_last_action=true",
        "environment.observe_last_reward=true", "training.train_batch_size_per_learner=64",
        "training.minibatch_size=32", "training.num_epochs=1", "training.model.fcnet_hiddens=[8]",
        "training.model.use_lstm=true", "training.model.lstm_cell_size=8",
    )  # fmt: skip
    with rayfish.Trainer(None, *words) as trainer:
        trainer.step()
        checkpoint = trainer.save()
    assert rayfish.evaluate(checkpoint, episodes=2).steps > 10
