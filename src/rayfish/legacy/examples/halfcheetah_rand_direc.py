"""HalfCheetah that is to run forwards or backwards, as the task says."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.mujoco.half_cheetah_v4 import HalfCheetahEnv

from rayfish.envs.tasks import TaskSettableEnv


class HalfCheetahRandDirecEnv(HalfCheetahEnv, TaskSettableEnv):
    """A task is the direction: 1 (forwards) or -1; the speed that way is rewarded.

    :param goal_direction: the first task; None draws it
    """

    def __init__(self, goal_direction: float | None = None, **keywords: Any) -> None:
        drawn = 1.0 if np.random.random() < 0.5 else -1.0
        self.goal_direction = float(goal_direction) if goal_direction else drawn
        super().__init__(**keywords)

    def sample_tasks(self, n_tasks: int) -> list[Any]:
        """Directions at random."""
        return [float(sign) for sign in self.np_random.choice((-1.0, 1.0), size=n_tasks)]

    def set_task(self, task: Any) -> None:
        """Run that way from now on."""
        self.goal_direction = float(task)

    def get_task(self) -> Any:
        """The direction to run in."""
        return self.goal_direction

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of HalfCheetah, with its forward reward turned to the task's direction."""
        observation, _, terminated, truncated, info = super().step(action)
        forward = self._forward_reward_weight * info["x_velocity"]
        reward = self.goal_direction * forward - self.control_cost(action)
        return observation, float(reward), terminated, truncated, info
