"""CartPole whose cart and pole have other masses in each task."""

from __future__ import annotations

from typing import Any

from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from rayfish.envs.tasks import TaskSettableEnv


class CartPoleMassEnv(CartPoleEnv, TaskSettableEnv):
    """A task is a pair: the mass of the cart (0.5 to 2) and of the pole (0.05 to 0.2)."""

    def sample_tasks(self, n_tasks: int) -> list[Any]:
        """Pairs of masses at random."""
        return [
            (float(self.np_random.uniform(0.5, 2.0)), float(self.np_random.uniform(0.05, 0.2)))
            for _ in range(n_tasks)
        ]

    def set_task(self, task: Any) -> None:
        """Put in a cart and a pole of these masses."""
        self.masscart, self.masspole = (float(mass) for mass in task)
        self.total_mass = self.masspole + self.masscart
        self.polemass_length = self.masspole * self.length

    def get_task(self) -> Any:
        """The masses of cart and pole."""
        return self.masscart, self.masspole
