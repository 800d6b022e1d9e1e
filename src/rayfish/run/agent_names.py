"""The loaded agent by the names of RLlib (`compute_single_action`) and Stable-Baselines3 (`predict`)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch

from rayfish.errors import RayfishError
from rayfish.models.summary import Model
from rayfish.nested import first_leaf, map_nested

if TYPE_CHECKING:
    from rayfish.run.acting import Policy

State = Sequence[np.ndarray]
"""Recurrent state as RLlib and Stable-Baselines3 hand it around: a list of arrays."""


class AgentNames:
    """Further names for what `Agent` does."""

    def compute_single_action(
        self: Any,
        observation: Any,
        state: State | None = None,
        *,
        prev_action: Any = None,
        prev_reward: Any = None,
        info: Any = None,
        policy_id: str | None = None,
        full_fetch: bool = False,
        explore: bool | None = None,
        timestep: int | None = None,
        episode: Any = None,
    ) -> Any:
        """RLlib's name: the action for one observation, or (action, state, {}) with a state or `full_fetch`.

        :param state: recurrent state, first from `get_policy().get_initial_state()`; without it the agent
            keeps the state itself, until `reset()`
        :param policy_id: a policy by name
        :param explore: sample as in training, which is RLlib's default; False for the most likely action
        """
        explored = explore is None or explore
        chosen: Policy = self._policy(policy_id, None)
        given = state is not None and len(state) > 0
        if not given:
            action = self.act(observation, explore=explored, policy=policy_id)
            after = self._states.get(None) if chosen.recurrent else None
        else:
            batch = chosen.batch([observation])
            actions, after = chosen.act(batch, _nested(chosen, state or (), rows=1), explore=explored)
            action = chosen.one(actions, 0)
        if not (given or full_fetch):
            return action
        return action, [array[0] for array in _flat(after)] if chosen.recurrent else [], {}

    def compute_actions(
        self: Any,
        observations: Any,
        state: Mapping[Hashable, State] | None = None,
        *,
        policy_id: str | None = None,
        full_fetch: bool = False,
        explore: bool | None = None,
    ) -> Any:
        """RLlib's name: a dictionary of observations gives a dictionary of actions.

        With states by the same keys, or `full_fetch`, (actions, states, infos). Without `policy_id` a key
        is taken as an agent's id, which chooses its policy.
        """
        explored = explore is None or explore
        if not isinstance(observations, Mapping):
            return self.act_batch(observations, explore=explored, policy=policy_id)
        if not (state or full_fetch):
            return self._act_named(observations, explored, policy_id)
        found = {
            key: self.compute_single_action(
                observation,
                (state or {}).get(key),
                policy_id=policy_id or self.policy_of(key),
                full_fetch=True,
                explore=explored,
            )
            for key, observation in observations.items()
        }
        actions, states, infos = ({key: one[part] for key, one in found.items()} for part in range(3))
        return actions, states, infos

    def predict(
        self: Any,
        observation: Any,
        state: State | None = None,
        episode_start: Sequence[bool] | np.ndarray | None = None,
        deterministic: bool = True,
        *,
        policy: str | None = None,
    ) -> tuple[Any, tuple[np.ndarray, ...] | None]:
        """Stable-Baselines3's name: (action, state) for one observation or for a batch of them.

        :param state: recurrent state, as the last call gave it; None at the start
        :param episode_start: which rows begin an episode: their state is reset
        :param deterministic: the most likely action (the default here, not in Stable-Baselines3)
        """
        chosen: Policy = self._policy(policy, None)
        several = _is_batch(chosen.observation_space, observation)
        batch = chosen.arrays(observation, lead=1) if several else chosen.batch([observation])
        rows = len(first_leaf(batch))
        before = _nested(chosen, state, rows) if chosen.recurrent and state is not None else None
        if before is not None and episode_start is not None:
            chosen.reset_rows(before, np.atleast_1d(np.asarray(episode_start, dtype=bool)))
        actions, after = chosen.act(batch, before, explore=not deterministic)
        return actions if several else actions[0], tuple(_flat(after)) if chosen.recurrent else None

    def get_policy(self: Any, policy_id: str | None = None) -> PolicyNames:
        """RLlib's name: one policy, with `get_weights()`, `model` and `compute_single_action`."""
        return PolicyNames(self, self._policy(policy_id, None).name)


class PolicyNames:
    """One policy by RLlib's names.

    :param agent: the `Agent` it belongs to
    :param name: the policy's name
    """

    def __init__(self, agent: Any, name: str) -> None:
        self.agent = agent
        self.name = name

    @property
    def model(self) -> Model:
        """The network: the torch module, with `model.base_model.summary()`."""
        policy = self._policy
        return Model(policy.module, f"{self.name}: {policy.observation_space} -> {policy.action_space}")

    @property
    def observation_space(self) -> gym.Space:
        """What it sees."""
        return self._policy.observation_space

    @property
    def action_space(self) -> gym.Space:
        """What it does."""
        return self._policy.action_space

    def get_weights(self) -> dict[str, np.ndarray]:
        """Weights by name, as arrays of their own."""
        return self.agent.weights(self.name)

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Takes over weights, as `get_weights` gave them."""
        tensors = {key: torch.as_tensor(np.asarray(value)) for key, value in weights.items()}
        try:
            self._policy.module.load_state_dict(tensors)
        except RuntimeError as error:
            raise RayfishError(
                f"these weights do not fit policy {self.name!r}: {error}", "take those of get_weights()"
            ) from error

    def get_initial_state(self) -> list[np.ndarray]:
        """Recurrent state at the start of an episode; [] without memory."""
        policy = self._policy
        return [array[0] for array in _flat(policy.join([None]))] if policy.recurrent else []

    def is_recurrent(self) -> bool:
        """Whether it remembers within an episode."""
        return self._policy.recurrent

    def compute_single_action(self, observation: Any, state: State | None = None, **options: Any) -> Any:
        """(action, state, {}) for one observation."""
        return self.agent.compute_single_action(
            observation, state, policy_id=self.name, full_fetch=True, **options
        )

    def compute_actions(self, observations: Any, *, explore: bool | None = None) -> Any:
        """(actions, [], {}) for a batch of observations."""
        explored = explore is None or explore
        return self.agent.act_batch(observations, explore=explored, policy=self.name), [], {}

    @property
    def _policy(self) -> Policy:
        return self.agent.policies[self.name]


def _is_batch(space: gym.Space, observation: Any) -> bool:
    """Whether an observation has one axis more than the space, in front."""
    while isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        part = next(iter(space.spaces)) if isinstance(space, gym.spaces.Dict) else 0
        space, observation = space[part], observation[part]
    return np.ndim(observation) == len(space.shape or ()) + 1


def _flat(state: Any) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    map_nested(lambda leaf: found.append(leaf.cpu().numpy()), state)
    return found


def _nested(policy: Policy, state: State, rows: int) -> Any:
    """Arrays as the state of `rows` episodes; all zeros, however many, are the start of an episode."""
    start = policy.join([None] * rows)
    if all(not np.any(array) for array in state):
        return start
    wanted = _flat(start)
    if len(state) != len(wanted):
        raise RayfishError(
            f"the state has {len(state)} arrays, the network keeps {len(wanted)}",
            "start from get_policy().get_initial_state() and hand back what each call gives",
        )
    given = iter(zip(state, wanted, strict=True))

    def leaf(like: torch.Tensor) -> torch.Tensor:
        array, shape = next(given)
        return torch.as_tensor(np.array(array).reshape(shape.shape)).to(like)

    return map_nested(leaf, start)
