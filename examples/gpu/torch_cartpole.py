"""CartPole for as many copies as you like, in torch: on a GPU nothing of it ever leaves the device.

    rayfish train examples/gpu/cartpole.yaml

An environment of tensors is a Gymnasium `VectorEnv` that resets in the same step, always puts what each
copy saw last into `infos["final_obs"]`, and (`in_place`) keeps its state in the same memory, so that a
whole rollout can be recorded as one CUDA graph. Chance comes from torch's own generator.
"""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class TorchCartPole(VectorEnv):
    """The dynamics and limits of Gymnasium's CartPole-v1."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "in_place": True}  # noqa: RUF012

    def __init__(self, num_envs: int = 1, max_episode_steps: int = 500, device: str | None = None) -> None:
        self.num_envs = num_envs
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.max_episode_steps = max_episode_steps
        high = np.array([4.8, np.inf, 24 * math.pi / 180, np.inf], np.float32)
        self.single_observation_space = gym.spaces.Box(-high, high, dtype=np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._state = torch.zeros(4, num_envs, device=self.device)
        self._steps = torch.zeros(num_envs, dtype=torch.int32, device=self.device)

    def reset(self, *, seed=None, options=None):
        self._state.uniform_(-0.05, 0.05)
        self._steps.zero_()
        return self._state.t().clone(), {}

    def step(self, actions):
        x, x_dot, theta, theta_dot = self._state.unbind(0)
        force = torch.as_tensor(actions, device=self.device) * 20.0 - 10.0
        cos, sin = theta.cos(), theta.sin()
        push = (force + 0.05 * theta_dot.square() * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos.square() / 1.1))
        slide = push - 0.05 * turn * cos / 1.1
        after = torch.stack(
            [x + 0.02 * x_dot, x_dot + 0.02 * slide, theta + 0.02 * theta_dot, theta_dot + 0.02 * turn]
        )
        self._steps += 1
        terminated = (after[0].abs() > 2.4) | (after[2].abs() > 12 * math.pi / 180)
        truncated = (self._steps >= self.max_episode_steps) & ~terminated
        over = terminated | truncated
        begun = torch.empty_like(after).uniform_(-0.05, 0.05)
        torch.where(over, begun, after, out=self._state)
        self._steps.masked_fill_(over, 0)
        rewards = torch.ones_like(x)
        return self._state.t().clone(), rewards, terminated, truncated, {"final_obs": after.t()}


# A single copy, for evaluation and for looking at it, is Gymnasium's own.
gym.register(
    "TorchCartPole-v0",
    entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv",
    vector_entry_point=TorchCartPole,
    max_episode_steps=500,
)
