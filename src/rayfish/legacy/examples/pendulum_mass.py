"""Pendulum whose rod has another mass in each task."""

from __future__ import annotations

from typing import Any

from gymnasium.envs.classic_control.pendulum import PendulumEnv

from rayfish.envs.tasks import TaskSettableEnv


class PendulumMassEnv(PendulumEnv, TaskSettableEnv):
    """A task is the mass of the rod, 0.5 to 2."""

    def sample_tasks(self, n_tasks: int) -> list[Any]:
        """Masses at random."""
        return [float(mass) for mass in self.np_random.uniform(0.5, 2.0, size=n_tasks)]

    def set_task(self, task: Any) -> None:
        """Put in a rod of this mass."""
        self.m = float(task)

    def get_task(self) -> Any:
        """The mass of the rod."""
        return self.m
