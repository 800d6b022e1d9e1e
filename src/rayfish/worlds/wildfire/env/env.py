"""The wildfire environments: many episodes as one Gymnasium `VectorEnv`, and a single one.

    envs = WildfireVectorEnv(256, simulation="small")
    obs, _ = envs.reset(seed=1)
    obs, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())

In a step agents leave their line and then move; the fire goes on at every `agent_speed`-th step, the first
one included. An episode terminates when the fire is out, has nothing left to burn, or at the end of the
simulator's runtime (what counts is what is left of the land by then); it is cut off after `max_steps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rayfish.errors import EnvironmentFault
from rayfish.worlds.wildfire.env import observe, options
from rayfish.worlds.wildfire.env.act import Decoder
from rayfish.worlds.wildfire.env.episodes import Episodes
from rayfish.worlds.wildfire.env.options import Options
from rayfish.worlds.wildfire.pictures.episodes import Pictures

METRICS = "metrics"
"""Key of an episode's last info that holds its figures."""


def action_space_of(given: Options) -> gym.Space[Any]:
    """The actions of one episode with all its agents: `Discrete`, or `MultiDiscrete`.

    `Discrete`: movement = a % movements, interaction = a // movements; `MultiDiscrete`: one after the other.
    Several agents are side by side in one `MultiDiscrete`, in either form.
    """
    moves, interactions = len(given.movements), len(given.interactions)
    if given.action_space_cls == "MultiDiscrete":
        return gym.spaces.MultiDiscrete([moves, interactions] * given.num_agents)
    if given.num_agents == 1:
        return gym.spaces.Discrete(moves * interactions)
    return gym.spaces.MultiDiscrete([moves * interactions] * given.num_agents)


class WildfireVectorEnv(VectorEnv):
    """N wildfires with agents, stepped together; an episode that is over begins again in the same step.

    :param num_envs: N
    :param render_mode: `rgb_array` or None
    :param max_episode_steps: the same as `max_steps`; the smaller one counts
    :param given: see `rayfish.worlds.wildfire.env.options.Options`
    """

    metadata = {  # noqa: RUF012  (Gymnasium's own form)
        "render_modes": ["rgb_array"],
        "render_fps": 12,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **given: Any,
    ) -> None:
        if num_envs < 1:
            raise EnvironmentFault(f"num_envs is {num_envs}", "make at least one environment")
        self.num_envs, self.render_mode = num_envs, render_mode
        limits = [limit for limit in (max_episode_steps, given.get("max_steps")) if limit is not None]
        self.options = options.read({**given, "max_steps": min(limits)} if limits else given)
        self.episodes = Episodes(self.options, num_envs)
        self._pictures = None if render_mode is None else Pictures(num_envs)
        self.decode = Decoder(self.options)
        self.single_observation_space = observe.space_of(self.options, self.episodes.shape)
        self.single_action_space = action_space_of(self.options)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._begun = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin all episodes, or those of `options["reset_mask"]`; environment i takes `seed + i`."""
        mask = (options or {}).get("reset_mask")
        which = np.arange(self.num_envs) if mask is None or not self._begun else np.flatnonzero(mask)
        if seed is None or isinstance(seed, int | np.integer):
            seeds = [None if seed is None else int(seed) + index for index in range(self.num_envs)]
        else:
            seeds = list(seed)
        self.episodes.begin(which, [seeds[index] for index in which])
        self._begun = True
        return self._flat(self.episodes.look()), {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of every environment."""
        if not self._begun:
            raise EnvironmentFault("a step before the first reset", "call reset")
        result, rewards = self.episodes.step(*self.decode(actions))
        if self._pictures is not None:
            self._pictures.note(self.episodes)
        obs = self._flat(self.episodes.look())
        over = result.ended | result.truncated
        infos: dict[str, Any] = {}
        if over.any():
            ended = np.flatnonzero(over)
            infos = self._last_infos(obs, over, ended)
            self.episodes.begin(ended)
            obs[ended] = self._flat(self.episodes.look(ended))
        return obs, rewards, result.ended, result.truncated, infos

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A picture of each environment."""
        if self._pictures is None:
            return None
        return tuple(self._pictures.frame(self.episodes, n) for n in range(self.num_envs))

    def _flat(self, seen: np.ndarray) -> np.ndarray:
        """One agent's local observation after the other, where there are several."""
        return seen if self.options.observation == "grid" else seen.reshape(len(seen), -1)

    def _last_infos(self, obs: np.ndarray, over: np.ndarray, ended: np.ndarray) -> dict[str, Any]:
        """The last observations and infos, laid out as Gymnasium's own vectors do it."""
        final = np.full(self.num_envs, None, dtype=object)
        for index in ended:
            final[index] = obs[index].copy()
        figures: dict[str, Any] = {}
        for name, values in self.episodes.metrics(ended).items():
            figures[name] = np.zeros(self.num_envs)
            figures[name][ended] = values
            figures[f"_{name}"] = over.copy()
        return {
            "final_obs": final,
            "_final_obs": over.copy(),
            "final_info": {METRICS: figures, f"_{METRICS}": over.copy()},
            "_final_info": over.copy(),
        }


class OneWildfire:
    """What the forms of a single wildfire share: its episode, a step of it, its picture."""

    def _open(self, given: Options, render_mode: str | None) -> None:
        self.render_mode, self.options = render_mode, given
        self.episodes = Episodes(given, 1)
        self._pictures = None if render_mode is None else Pictures(1)

    def _advance(self, decode: Decoder, actions: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        """One step: the reward, terminated, truncated, and the info."""
        result, rewards = self.episodes.step(*decode(actions))
        if self._pictures is not None:
            self._pictures.note(self.episodes)
        ended, cut = bool(result.ended[0]), bool(result.truncated[0])
        info: dict[str, Any] = {}
        if ended or cut:
            figures = self.episodes.metrics(np.arange(1))
            info[METRICS] = {name: float(values[0]) for name, values in figures.items()}
        return float(rewards[0]), ended, cut, info

    def render(self) -> np.ndarray | None:
        """A picture of the fire."""
        return None if self._pictures is None else self._pictures.frame(self.episodes, 0)


class WildfireEnv(OneWildfire, gym.Env):
    """One wildfire with agents; it takes the fields of `rayfish.worlds.wildfire.env.options.Options`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012  (Gymnasium's own form)

    def __init__(self, render_mode: str | None = None, **given: Any) -> None:
        self._open(options.read(given), render_mode)
        self.decode = Decoder(self.options)
        self.observation_space = observe.space_of(self.options, self.episodes.shape)
        self.action_space = action_space_of(self.options)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.episodes.begin(np.arange(1), [seed])
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step."""
        reward, ended, cut, info = self._advance(self.decode, np.asarray(action)[None])
        return self._seen(), reward, ended, cut, info

    def _seen(self) -> np.ndarray:
        return self.episodes.look()[0].reshape(self.observation_space.shape)
