"""Callbacks with the hooks of older RLlib (`worker, base_env, policies, episode`), run on today's.

Today RLlib passes an env runner, a vector of environments and an episode of another class. The objects here
have the attributes that old hooks use; numbers in `episode.custom_metrics` become `env/<name>`. Old code that
calls `foreach_worker` gets the same workers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, partialmethod
from typing import Any

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback

from rayfish.algorithm.callback_hooks import EPISODE_HOOKS, HOOKS, OLD_ARGUMENTS
from rayfish.compat.rllib_internals import earlier_pieces
from rayfish.envs.env_kind import layers
from rayfish.errors import RayfishError
from rayfish.models.summary import Model

_MOST_OPEN = 4096


def adapted(cls: Any) -> Any:
    """`cls` itself, or what makes an adapter of it where one of its hooks takes an old argument."""
    for name in HOOKS:
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
        worker, envs = RolloutWorker(runner), OldEnvs(given.get("env"))
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


for _name in HOOKS:
    if _name != "on_episode_end":
        _method = OldCallbacks._episode_call if _name in EPISODE_HOOKS else OldCallbacks._other_call
        setattr(OldCallbacks, _name, partialmethod(_method, _name))


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
                f"{type(self._env).__name__} has no single environments in this process to call",
                "add rollouts.runner=rllib rollouts.gym_env_vectorize_mode=sync",
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


class RolloutWorker:
    """An env runner under the names of old RLlib's workers; every other attribute is the runner's own."""

    def __init__(self, runner: Any) -> None:
        self.runner = runner

    @property
    def policy_map(self) -> dict[str, WorkerPolicy]:
        """The runner's policies by name."""
        module = self.runner.module
        members = module.items() if hasattr(module, "items") else [("default_policy", module)]
        return {str(name): WorkerPolicy(str(name), member) for name, member in members}

    def get_policy(self, policy_id: str | None = None) -> WorkerPolicy:
        """One policy; without a name the only one, or the first."""
        known = self.policy_map
        name = policy_id or next(iter(known))
        if name not in known:
            raise RayfishError(f"there is no policy {name!r}; there are {', '.join(known)}", "name one")
        return known[name]

    def foreach_policy(self, function: Callable[[Any, str], Any]) -> list[Any]:
        """`function(policy, name)` of every policy."""
        return [function(policy, name) for name, policy in self.policy_map.items()]

    def get_weights(self) -> dict[str, dict[str, Any]]:
        """Policy -> name -> array."""
        return {name: policy.get_weights() for name, policy in self.policy_map.items()}

    def set_weights(self, weights: Mapping[str, Mapping[str, Any]]) -> None:
        """Until the next iteration: the learner's weights replace them then."""
        for name, values in weights.items():
            self.get_policy(name).set_weights(values)

    def foreach_env(self, function: Callable[[Any], Any]) -> list[Any]:
        """`function(env)` of every environment here, as the user's class made it."""
        return [function(env) for env in self._environments()]

    @property
    def env(self) -> Any:
        """The first environment here; None where there is none."""
        return next(iter(self._environments()), None)

    def __getattr__(self, name: str) -> Any:
        if name == "runner":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.runner, name)

    def _environments(self) -> list[Any]:
        vector = getattr(self.runner, "env", None)
        return [] if vector is None else [layers(env)[-1] for env in OldEnvs(vector).envs]


class WorkerPolicy:
    """A runner's copy of one policy; every other attribute is the module's own."""

    def __init__(self, name: str, module: Any) -> None:
        self.name = name
        self._module = module

    @property
    def model(self) -> Model:
        """The network, with `model.base_model.summary()`."""
        title = f"{self.name}: {self._module.observation_space} -> {self._module.action_space}"
        return Model(self._module, title)

    def get_weights(self) -> dict[str, Any]:
        """Weights by name, as arrays."""
        return {name: value.copy() for name, value in self._module.get_state(inference_only=True).items()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Takes over weights, until the next iteration brings the learner's."""
        self._module.set_state(dict(weights))

    def __getattr__(self, name: str) -> Any:
        if name == "_module":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._module, name)


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
