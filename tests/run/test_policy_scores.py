"""A loaded policy scores exactly what RLlib's own evaluation of the same checkpoint scores."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import rayfish

pytestmark = pytest.mark.usefixtures("ray_session", "workdir")

PPO = (
    "algo.name=PPO",
    "rollouts.num_envs_per_env_runner=4",
    "training.train_batch_size_per_learner=256",
    "training.minibatch_size=64",
    "training.num_epochs=2",
    "training.lr=1e-2",
    "training.model.fcnet_hiddens=[16]",
    "evaluation.evaluation_interval=1",
    "evaluation.evaluation_duration=6",
    "evaluation.evaluation_config.num_envs_per_env_runner=1",  # episodes are numbered by their environment
)


class Numbered(gym.Env):
    """Episode `k` of an instance is seeded with `k`, whatever seed the caller gives; 4 actions."""

    action_space = gym.spaces.Discrete(4)
    observation_space = gym.spaces.Box(-1e4, 1e4, (6,), np.float32)

    def __init__(self):
        self.number = -1

    def reset(self, *, seed=None, options=None):
        self.number += 1
        self.rng = np.random.default_rng(self.number)
        self.state, self.t = self.rng.normal(size=6), 0
        return self.observe(), {}

    def step(self, action):
        reward = float(self.state[action])
        self.state = 0.9 * np.roll(self.state, action + 1) + 0.3 * self.rng.normal(size=6)
        self.t += 1
        info = {"metrics": {"number": self.number}} if self.t == 25 else {}
        return self.observe(), reward, False, self.t == 25, info

    def observe(self):
        return (self.state * [1, 10, 100, 1000, 1, 1] + [0, 5, 500, 0, 0, 0]).astype(np.float32)


class Picture(Numbered):
    """The same seen as an image."""

    observation_space = gym.spaces.Box(0, 255, (16, 16, 3), np.uint8)

    def observe(self):
        canvas = np.zeros((16, 16, 3), np.uint8)
        for row, value in enumerate(self.state):
            canvas[2 * row : 2 * row + 2, : int(8 + 3 * np.clip(value, -2, 2)), row % 3] = 255
        return canvas


class Masked(Numbered):
    """The same with two of four actions forbidden at any time; a forbidden one fails the test."""

    observation_space = gym.spaces.Dict(
        {"observations": Numbered.observation_space, "action_mask": gym.spaces.Box(0, 1, (4,), np.int8)}
    )

    def observe(self):
        self.allowed = np.roll(np.array([1, 1, 0, 0], np.int8), self.t)
        return {"observations": super().observe(), "action_mask": self.allowed}

    def step(self, action):
        assert self.allowed[action], f"action {action} is masked out by {self.allowed}"
        return super().step(action)


class Lever(Numbered):
    """The same with two continuous actions whose bounds are not -1 to 1."""

    action_space = gym.spaces.Box(np.array([-2, 0], np.float32), np.array([3, 10], np.float32))

    def step(self, action):
        assert self.action_space.contains(action), action
        wanted = self.state[:2]
        observation, _, *rest = super().step(int(abs(action).sum()) % 4)
        return observation, float(-abs(action - wanted).sum()), *rest


CASES = {
    "continuous": (Lever, ("rollouts.observation_filter=MeanStdFilter",)),
    "continuous, clipped": (Lever, ("environment.normalize_actions=false", "environment.clip_actions=true")),
    "continuous sac": (Lever, ("algo.name=SAC",)),
    "normalised": (Numbered, ("rollouts.observation_filter=MeanStdFilter",)),
    "lstm": (
        Numbered,
        ("training.model.use_lstm=true", "training.model.lstm_cell_size=8", "training.model.max_seq_len=10"),
    ),
    "cnn": (Picture, ()),
    "masked": (Masked, ("rollouts.observation_filter=MeanStdFilter",)),
    "masked dqn": (Masked, ("algo.name=DQN",)),
}
OFF_POLICY = (
    "rollouts.num_envs_per_env_runner=1",
    "training.num_steps_sampled_before_learning_starts=64",
    "reporting.min_sample_timesteps_per_iteration=200",
    "training.train_batch_size_per_learner=32",
    "training.model.fcnet_hiddens=[16]",
    "evaluation.evaluation_interval=1",
    "evaluation.evaluation_duration=6",
    "evaluation.evaluation_config.num_envs_per_env_runner=1",  # episodes are numbered by their environment
)


@pytest.mark.parametrize("case", CASES)
def test_loaded_policy_equals_rllibs_evaluation(case, tmp_path):
    env_class, settings = CASES[case]
    base = OFF_POLICY if any(word.startswith("algo.name=") for word in settings) else PPO
    with rayfish.Trainer(None, *base, *settings, env=env_class) as trainer:
        trainer.step()
        trainer.step()
        result = trainer.algorithm.evaluate()["env_runners"]["rayfish"]
        agent = rayfish.load(trainer.save(tmp_path / "checkpoint"))
    expected = dict(zip(result["env"]["number"], result["returns"], strict=True))
    assert len(expected) == 6
    assert {int(number): play(agent, env_class, int(number)) for number in expected} == pytest.approx(
        {int(number): value for number, value in expected.items()}, abs=1e-4
    )


def play(agent, env_class, number: int) -> float:
    env = env_class()
    env.number = number - 1
    observation, _ = env.reset()
    agent.reset()
    total, done = 0.0, False
    while not done:
        observation, reward, _, done, _ = env.step(agent.act(observation))
        total += reward
    return total
