"""Callbacks with the hooks of older RLlib (`worker, base_env, policies, episode`), run on today's.

Today RLlib passes an env runner, a vector of environments and an episode of another class. The objects here
have the attributes that old hooks use; numbers in `episode.custom_metrics` become `env/<name>`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial, partialmethod
from typing import Any

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback

from rayfish.algorithm.callback_hooks import OLD_ARGUMENTS
from rayfish.algorithm.worker_names import RolloutWorker
from rayfish.compat.rllib_internals import earlier_pieces
from rayfish.errors import RayfishError

EPISODE_HOOKS = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end")
_REST = (
    "on_algorithm_init",
    "on_train_result",
    "on_evaluate_start",
    "on_evaluate_end",
    "on_sample_end",
    "on_checkpoint_loaded",
    "on_environment_created",
    "on_env_runners_recreated",
)
_MOST_OPEN = 4096


def adapted(cls: Any) -> Any:
    """`cls` itself, or what makes an adapter of it where one of its hooks takes an old argument."""
    for name in (*EPISODE_HOOKS, *_REST):
        hook: Any = getattr(cls, name, None)
        own = callable(hook) and not getattr(hook, "__module__", "").startswith("ray.")
        if own and not inspect.signature(hook).parameters.keys().isdisjoint(OLD_ARGUMENTS):
            return partial(OldCallbacks, cls)
    return cls


class OldCallbacks(RLlibCallback):
    """A callback of older RLlib, with every hook given the arguments that it names."""

    def __init__(self, cls: Callable[[], Any]) -> None:
        super().__init__()
        self._user = cls()
        self._open: dict[Any, OldEpisode] = {}

    def _call(self, hook: str, given: dict[str, Any]) -> None:
        call = getattr(self._user, hook)
        parameters = inspect.signature(call).parameters
        if any(kind.kind is kind.VAR_KEYWORD for kind in parameters.values()):
            call(**given)
        else:
            call(**{name: value for name, value in given.items() if name in parameters})

    def _episode_call(self, hook: str, **given: Any) -> None:
        runner = given.get("env_runner")
        episode = self._seen(given["episode"])
        episode.update(given["episode"], given.get("prev_episode_chunks"), runner)
        envs = OldEnvs(given.get("env"))
        worker = OldWorker(runner, envs)
        old = {"worker": worker, "base_env": envs, "policies": worker.policy_map, "episode": episode}
        self._call(hook, {**given, **old, "env_index": given.get("env_index") or 0})

    def _seen(self, episode: Any) -> OldEpisode:
        known = self._open.get(episode.id_)
        if known is None:
            while len(self._open) >= _MOST_OPEN:  # episodes that were given up have no end
                self._open.pop(next(iter(self._open)))
            known = self._open[episode.id_] = OldEpisode(episode)
        return known

    def on_episode_end(self, **given: Any) -> None:
        """As the user's class does; then its `custom_metrics` are logged."""
        from rayfish.algorithm.callbacks import REPORT

        self._episode_call("on_episode_end", **given)
        episode = self._open.pop(given["episode"].id_)
        for name, value in {**episode.hist_data, **episode.custom_metrics}.items():
            if np.size(value) and np.asarray(value).dtype.kind in "biuf":
                key = (REPORT, "env", str(name))
                given["metrics_logger"].log_value(key, float(np.mean(value)), reduce="item_series")

    def _other_call(self, hook: str, **given: Any) -> None:
        self._call(hook, {"trainer": given.get("algorithm"), "worker": given.get("env_runner"), **given})


for _name in EPISODE_HOOKS[:-1]:
    setattr(OldCallbacks, _name, partialmethod(OldCallbacks._episode_call, _name))
for _name in _REST:
    setattr(OldCallbacks, _name, partialmethod(OldCallbacks._other_call, _name))


class OldEnvs:
    """`base_env`: the environments of a runner one by one."""

    def __init__(self, env: Any) -> None:
        self._env = getattr(env, "unwrapped", env)

    @property
    def envs(self) -> list[Any]:
        """The environments, in the order of `env_index`."""
        found = getattr(self._env, "envs", None)
        if found is None:
            raise RayfishError(
                "a callback asks for single environments, which run in processes of their own",
                "set rollouts.gym_env_vectorize_mode=sync",
            )
        return list(found)

    @property
    def vector_env(self) -> OldEnvs:
        """Itself: it has `envs` and `get_sub_environments`, too."""
        return self

    @property
    def num_envs(self) -> int:
        """How many."""
        return len(self.envs)

    def get_sub_environments(self, as_dict: bool = False) -> Any:
        """The environments, as a list or by their number."""
        return dict(enumerate(self.envs)) if as_dict else self.envs

    get_unwrapped = get_sub_environments


class OldWorker(RolloutWorker):
    """`worker`: the env runner, with its environments as `base_env` has them."""

    def __init__(self, runner: Any, envs: OldEnvs) -> None:
        super().__init__(runner)
        self._envs = envs

    def _environments(self) -> list[Any]:
        return self._envs.envs


class OldEpisode:
    """`episode`: what old hooks write, kept from its first step to its last, and what they read."""

    def __init__(self, episode: Any) -> None:
        self.custom_metrics: dict[str, Any] = {}
        self.user_data: dict[str, Any] = {}
        self.hist_data: dict[str, Any] = {}
        self.media: dict[str, Any] = {}
        self._now, self._before = episode, ()

    def update(self, episode: Any, before: Sequence[Any] | None, runner: Any) -> None:
        """The episode as it is now; `before` are the pieces that rollouts cut from it."""
        self._now = episode
        self._before = earlier_pieces(runner, episode) if before is None else tuple(before)

    @property
    def episode_id(self) -> Any:
        """Its id."""
        return self._now.id_

    @property
    def length(self) -> int:
        """Steps so far."""
        return int(self._now.env_t if hasattr(self._now, "env_t") else self._now.t)

    @property
    def total_reward(self) -> float:
        """The sum of the rewards so far, of all agents."""
        return float(sum(part.get_return() for part in (*self._before, self._now)))

    @property
    def agent_rewards(self) -> dict[tuple[Any, str], float]:
        """The sums of the rewards by agent and policy."""
        found: dict[tuple[Any, str], float] = {}
        for part in (*self._before, self._now):
            for agent, single in self._singles(part).items():
                key = (agent, str(self.policy_for(agent)))
                found[key] = found.get(key, 0.0) + float(single.get_return())
        return found

    def get_agents(self) -> list[Any]:
        """The agents seen so far."""
        return list(self._singles(self._now))

    def policy_for(self, agent_id: Any = "agent0") -> Any:
        """The policy of an agent."""
        return self._now.module_for(agent_id) if hasattr(self._now, "module_for") else "default_policy"

    def last_observation_for(self, agent_id: Any = None) -> Any:
        """An agent's last observation."""
        return self._single(agent_id).get_observations(-1)

    last_raw_obs_for = last_observation_for

    def last_info_for(self, agent_id: Any = None) -> Any:
        """An agent's last info; None before its first step."""
        single = self._single(agent_id)
        return single.get_infos(-1) if len(single) else None

    def last_action_for(self, agent_id: Any = None) -> Any:
        """An agent's last action."""
        return self._single(agent_id).get_actions(-1)

    def last_reward_for(self, agent_id: Any = None) -> float:
        """An agent's last reward."""
        return float(self._single(agent_id).get_rewards(-1))

    def _singles(self, part: Any) -> dict[Any, Any]:
        return dict(getattr(part, "agent_episodes", None) or {"agent0": part})

    def _single(self, agent_id: Any) -> Any:
        singles = self._singles(self._now)
        return singles[agent_id] if agent_id in singles else next(iter(singles.values()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_now"], name)
