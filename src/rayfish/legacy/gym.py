"""What `import gym` gives where gym is not installed: Gymnasium, with gym 0.21's reset and step.

A class that inherits from `gym.Env` is wrapped when it is made for training (`envs.old_api`). Code
that itself makes or wraps environments expects their old form (`obs = env.reset()`, four values
from `step`), so `make` and the wrapper classes here speak that form.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import Space, error, logger, register, registry, spaces
from gymnasium.envs.registration import EnvSpec, spec

__version__ = "0.21.0"
__all__ = [
    "ActionWrapper",
    "Env",
    "EnvSpec",
    "GoalEnv",
    "ObservationWrapper",
    "RewardWrapper",
    "Space",
    "TimeLimit",
    "Wrapper",
    "error",
    "logger",
    "make",
    "register",
    "registry",
    "spaces",
    "spec",
]


def __getattr__(name: str) -> Any:
    """Everything else is Gymnasium's; parts of gym are imported by their old names."""
    if name in ("envs", "wrappers", "utils", "core"):
        import importlib

        return importlib.import_module(f"gym.{name}")
    return getattr(gymnasium, name)


class Env(gymnasium.Env):
    """Gymnasium's, with the `seed` method that environments had."""

    def seed(self, seed: int | None = None) -> list[Any]:
        """Seed `np_random`; environments with a generator of their own have their own `seed`."""
        gymnasium.Env.reset(self, seed=seed)
        return [seed]


GoalEnv = Env


class Wrapper(Env):
    """An environment around another one, both with the old reset and step."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.reward_range = getattr(env, "reward_range", (-float("inf"), float("inf")))

    def __getattr__(self, name: str) -> Any:
        """Whatever the wrapper has not is the inner environment's; nothing private."""
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.env, name)

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self.env.unwrapped

    def reset(self, **keywords: Any) -> Any:
        """Start an episode; gives the observation."""
        return self.env.reset(**keywords)

    def step(self, action: Any) -> Any:
        """One step; gives observation, reward, done, info."""
        return self.env.step(action)

    def seed(self, seed: int | None = None) -> Any:
        """Seed the inner environment."""
        return self.env.seed(seed)

    def render(self, *arguments: Any, **keywords: Any) -> Any:
        """The frame of the inner environment."""
        return self.env.render(*arguments, **keywords)

    def close(self) -> None:
        """Close the inner environment."""
        self.env.close()


class ObservationWrapper(Wrapper):
    """Changes observations by its method `observation`."""

    def reset(self, **keywords: Any) -> Any:
        """The first observation, changed."""
        return self.observation(self.env.reset(**keywords))

    def step(self, action: Any) -> Any:
        """One step, its observation changed."""
        observation, reward, done, info = self.env.step(action)
        return self.observation(observation), reward, done, info

    def observation(self, observation: Any) -> Any:
        """What the agent sees; to be written."""
        raise NotImplementedError(f"{type(self).__name__} has no observation()")


class RewardWrapper(Wrapper):
    """Changes rewards by its method `reward`."""

    def step(self, action: Any) -> Any:
        """One step, its reward changed."""
        observation, reward, done, info = self.env.step(action)
        return observation, self.reward(reward), done, info

    def reward(self, reward: Any) -> Any:
        """What the agent gets; to be written."""
        raise NotImplementedError(f"{type(self).__name__} has no reward()")


class ActionWrapper(Wrapper):
    """Changes actions by its method `action`."""

    def step(self, action: Any) -> Any:
        """One step with the changed action."""
        return self.env.step(self.action(action))

    def action(self, action: Any) -> Any:
        """What the environment is given; to be written."""
        raise NotImplementedError(f"{type(self).__name__} has no action()")


class TimeLimit(Wrapper):
    """Ends an episode after a number of steps, and says so in its last info."""

    def __init__(self, env: Any, max_episode_steps: int | None = None) -> None:
        super().__init__(env)
        self._max_episode_steps = max_episode_steps
        self._elapsed_steps = 0

    def reset(self, **keywords: Any) -> Any:
        """Start an episode and its count."""
        self._elapsed_steps = 0
        return self.env.reset(**keywords)

    def step(self, action: Any) -> Any:
        """One step; the last one allowed ends the episode."""
        observation, reward, done, info = self.env.step(action)
        self._elapsed_steps += 1
        if self._max_episode_steps is not None and self._elapsed_steps >= self._max_episode_steps:
            done, info = True, {**info, "TimeLimit.truncated": not done}
        return observation, reward, done, info


class OldForm(Wrapper):
    """One of Gymnasium's environments, as `gym.make` gave it: reset and step in their old form."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._seed: int | None = None

    def seed(self, seed: int | None = None) -> list[Any]:
        """Kept for the next reset, where Gymnasium takes it."""
        self._seed = seed
        return [seed]

    def reset(self, *, seed: int | None = None, options: Any = None, **keywords: Any) -> Any:
        """Start an episode; gives the observation alone."""
        seed, self._seed = self._seed if seed is None else seed, None
        observation, _ = self.env.reset(seed=seed, options=options)
        return observation

    def step(self, action: Any) -> Any:
        """One step in four values; an episode that was cut off says so in its info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if truncated:
            info = {**info, "TimeLimit.truncated": not terminated}
        return observation, reward, terminated or truncated, info

    def render(self, mode: str = "human", **keywords: Any) -> Any:
        """The frame; how it is drawn was chosen when the environment was made."""
        return self.env.render()


def make(id: Any, **keywords: Any) -> Any:
    """An environment by its id, of today or of the time, with the old reset and step."""
    import warnings

    from rayfish.envs import catalog
    from rayfish.legacy.env_names import todays_env

    today = todays_env(id) if isinstance(id, str) else None
    if today is not None:
        id, keywords = today.env, {**today.env_config, **keywords}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is out of date")
        found = (catalog.find_id(id) or id) if isinstance(id, str) else id
        return OldForm(gymnasium.make(found, disable_env_checker=True, **keywords))
