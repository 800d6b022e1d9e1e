"""A frozen lake that grows with its level: the example of a curriculum."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from rayfish.envs.tasks import TaskSettableEnv

LEVELS = 10
_SIZE = 8
_LIMIT = 100


class CurriculumCapableEnv(TaskSettableEnv):
    """An 8x8 lake without slipping; the goal of level `n` is `n + 2` steps from the start.

    Reaching it is worth 10 times the level, each step before costs a little. A new level begins with
    a new episode.

    :param config: `start_level` (1) is the first task
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.cur_level = int((config or {}).get("start_level", 1))
        self.switch_env = False
        self.timesteps = 0
        self._make_lake()
        self.observation_space: gym.Space[Any] = self.frozen_lake.observation_space
        self.action_space: gym.Space[Any] = self.frozen_lake.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        """Start an episode, on the lake of the current level."""
        super().reset(seed=seed)
        if self.switch_env:
            self._make_lake()
        self.timesteps = 0
        return self.frozen_lake.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step; an episode that a new level interrupts ends here."""
        self.timesteps += 1
        observation, reward, terminated, truncated, info = self.frozen_lake.step(action)
        reward = 10.0 * self.cur_level if reward > 0 else -0.01
        truncated = truncated or self.switch_env or self.timesteps >= _LIMIT
        return observation, reward, terminated, truncated, info

    def sample_tasks(self, n_tasks: int) -> list[Any]:
        """Levels at random."""
        return [int(level) for level in self.np_random.integers(1, LEVELS + 1, size=n_tasks)]

    def get_task(self) -> Any:
        """The level."""
        return self.cur_level

    def set_task(self, task: Any) -> None:
        """Go to this level when the running episode has ended, which it does with its next step."""
        self.cur_level = int(task)
        self.switch_env = True

    def _make_lake(self) -> None:
        distance = min(max(self.cur_level, 1), LEVELS) + 2
        row = min(distance, _SIZE - 1)
        rows = [["F"] * _SIZE for _ in range(_SIZE)]
        rows[0][0], rows[row][distance - row] = "S", "G"
        self.frozen_lake = FrozenLakeEnv(desc=["".join(cells) for cells in rows], is_slippery=False)
        self.switch_env = False
