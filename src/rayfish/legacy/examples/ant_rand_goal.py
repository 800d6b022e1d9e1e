"""Ant that is to walk to a place, another one in each task."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.mujoco.ant_v4 import AntEnv

from rayfish.envs.tasks import TaskSettableEnv


class AntRandGoalEnv(AntEnv, TaskSettableEnv):
    """A task is a goal (x, y) within 3 m of the start; being near it is rewarded."""

    def __init__(self, **keywords: Any) -> None:
        self.goal_pos = self._goals(np.random.default_rng(np.random.randint(2**31)), 1)[0]
        super().__init__(**keywords)

    @staticmethod
    def _goals(generator: np.random.Generator, count: int) -> list[np.ndarray]:
        angles = generator.uniform(0.0, 2 * np.pi, count)
        distances = 3.0 * np.sqrt(generator.uniform(0.0, 1.0, count))
        return [r * np.array((np.cos(a), np.sin(a))) for r, a in zip(distances, angles, strict=True)]

    def sample_tasks(self, n_tasks: int) -> list[Any]:
        """Goals at random, evenly over the disc."""
        return self._goals(self.np_random, n_tasks)

    def set_task(self, task: Any) -> None:
        """Walk to this goal from now on."""
        self.goal_pos = np.asarray(task, dtype=float)

    def get_task(self) -> Any:
        """The goal."""
        return self.goal_pos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of Ant, rewarded by the distance to the goal in place of the speed forwards."""
        observation, _, terminated, truncated, info = super().step(action)
        distance = float(np.abs(self.get_body_com("torso")[:2] - self.goal_pos).sum())
        reward = self.healthy_reward - distance - self.control_cost(action)
        return observation, float(reward), terminated, truncated, {**info, "goal_distance": distance}
