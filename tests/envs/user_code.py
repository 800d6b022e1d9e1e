"""Code as a user would write it."""

from __future__ import annotations

from pathlib import Path

GOOD = '''
import gymnasium as gym
import numpy as np

class GridEnv(gym.Env):
    """Ten steps of noise; its size is configurable."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, size=3, render_mode=None):
        self.observation_space = gym.spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._look(), {}

    def step(self, action):
        self.t += 1
        return self._look(), float(action), self.t >= 10, False, {}

    def _look(self):
        return self.np_random.uniform(-1, 1, self.observation_space.shape).astype(np.float32)

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)


class Dictated(GridEnv):
    """RLlib's habit: one dictionary."""

    def __init__(self, config=None):
        super().__init__(config.get("size", 3))
        self.worker = config.worker_index


def creator(env_config):
    return GridEnv(**env_config)
'''

PARALLEL = '''
import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv


class Relay(ParallelEnv):
    """Three agents: the first leaves after 2 steps, then one is terminated as the other is truncated."""

    metadata = {"name": "relay"}

    def __init__(self, length=5):
        self.length = length
        self.possible_agents = ["first", "second", "third"]
        self.agents = []

    def observation_space(self, agent):
        return gym.spaces.Box(-1, 1, (2 if agent == "first" else 4,), np.float32)

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def _look(self):
        shapes = {agent: self.observation_space(agent).shape for agent in self.agents}
        return {agent: self.rng.uniform(-1, 1, shape).astype(np.float32) for agent, shape in shapes.items()}

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.t = 0
        self.agents = self.possible_agents[:]
        return self._look(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents), f"actions for {set(actions)}, alive are {self.agents}"
        self.t += 1
        seen = self._look()
        ended = {agent: (agent, self.t >= self.length) == ("second", True) for agent in seen}
        ended |= {agent: self.t >= 2 for agent in seen if agent == "first"}
        cut = {agent: agent == "third" and self.t >= self.length for agent in seen}
        self.agents = [agent for agent in seen if not (ended[agent] or cut[agent])]
        return seen, {agent: 1.0 for agent in seen}, ended, cut, {agent: {} for agent in seen}
'''

OLD_RLLIB = '''
import gymnasium as gym
import numpy as np
from ray.rllib.env.multi_agent_env import MultiAgentEnv


class Pair(MultiAgentEnv):
    """Written for an older RLlib: agents only in _agent_ids, one space for both."""

    def __init__(self, config):
        super().__init__()
        self._agent_ids = {"left", "right"}
        self.observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def _look(self):
        return {agent: np.zeros(3, np.float32) for agent in ("left", "right")}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._look(), {}

    def step(self, actions):
        self.t += 1
        rewards = {agent: float(action) for agent, action in actions.items()}
        return self._look(), rewards, {"__all__": self.t >= 8}, {"__all__": False}, {}
'''


class UserFolder:
    """A folder with a user's Python files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.paths = (str(path),)

    def write(self, name: str, code: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
        return file
