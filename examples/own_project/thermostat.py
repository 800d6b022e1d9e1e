"""An environment of your own: keep a room at 20 °C with a heater that answers late."""

import logging

import gymnasium as gym
import numpy as np

log = logging.getLogger(__name__)


class Thermostat(gym.Env):
    """Observation: error to the target, heater's warmth, weather. Action: heater off, low, high.

    :param target: wanted temperature in °C
    :param weather: outside temperature in °C at the start of an episode, drifting after that
    """

    def __init__(self, target: float = 20.0, weather: float = 5.0):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(3)
        self.target, self.weather = target, weather
        log.info("a room to keep at %.0f °C", target)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.outside = self.weather + self.np_random.normal(0, 3)
        self.room = self.target + self.np_random.uniform(-5, 5)
        self.heater = 0.0
        self.time = 0
        self.inside = 0
        return self._observation(), {}

    def step(self, action):
        self.heater += 0.3 * (action / 2 - self.heater)  # it warms up and cools down slowly
        self.outside += self.np_random.normal(0, 0.2)
        self.room += 0.05 * (self.outside - self.room) + 2.0 * self.heater
        self.time += 1
        error = abs(self.room - self.target)
        self.inside += error < 1
        truncated = self.time == 100
        info = {"metrics": {"minutes_in_comfort": self.inside}} if truncated else {}
        return self._observation(), float(1 - min(error, 5)), False, truncated, info

    def _observation(self):
        return np.array([(self.room - self.target) / 5, self.heater, self.outside / 10], np.float32)
