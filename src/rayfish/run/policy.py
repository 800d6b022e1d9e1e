"""A trained policy by itself: `agent = rayfish.load(run)`, then `agent.act(observation)`.

Rebuilds the networks from the checkpoint's `policy/` folder (no Ray, no GPU), applies the
observation normaliser the run had, keeps recurrent state between calls, and turns the networks'
numbers into actions the way training did. It answers to the names of RLlib (`compute_single_action`)
and Stable-Baselines3 (`predict`) as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rayfish.errors import CheckpointError, RayfishError, did_you_mean
from rayfish.experiment.mapping import PolicyMapping
from rayfish.models.summary import Model
from rayfish.nested import first_leaf, map_nested
from rayfish.run import trust as permission
from rayfish.run.acting import ModulePolicy, NetworkPolicy, Policy
from rayfish.run.policy_files import SavedPolicies, read_policies

State = Sequence[np.ndarray]
"""Recurrent state as RLlib and Stable-Baselines3 pass it: a list of arrays."""


def load(run_or_checkpoint: str | Path, *, device: str = "cpu", trust: bool = False) -> Agent:
    """The trained agent of a run (its best checkpoint, else its last) or of one checkpoint.

    :param run_or_checkpoint: a run (path, name, id, `last`) or a checkpoint folder
    :param device: where the networks run, such as "cpu" or "cuda"
    :param trust: run the code that another user's checkpoint names; Rayfish's own networks need none
    :raises RayfishError: no such run, or a checkpoint this installation cannot read
    :raises NotTrusted: it would run code, and is not signed with this user's key
    """
    folder = Path(run_or_checkpoint)
    if not (folder / "policy" / "policy.json").is_file():
        from rayfish.run.directory import find_checkpoint

        folder = find_checkpoint(str(run_or_checkpoint))
    saved = read_policies(folder / "policy")
    if not permission.is_trusted(folder):
        code = permission.code_in_policies(saved)
        if code or trust:
            permission.require(folder, code, trust=trust)
        else:
            saved = replace(saved, paths=[])
    return Agent(saved, device=device)


class Agent:
    """Acts with one policy, or with several by agent id. Recurrent state lives here."""

    def __init__(self, saved: SavedPolicies, *, device: str = "cpu") -> None:
        self.algo = saved.algo
        self.policies: dict[str, Policy] = {
            name: (NetworkPolicy if policy.kind == "native" else ModulePolicy)(policy, saved, device)
            for name, policy in saved.policies.items()
        }
        if not self.policies:
            raise CheckpointError(f"{saved.folder} holds no policy", "use another checkpoint of the run")
        self._policy_of = PolicyMapping(
            list(self.policies), saved.mapping, saved.mapping_function, saved.paths
        )
        self._states: dict[Hashable, Any] = {}

    def act(
        self,
        observation: Any,
        *,
        explore: bool = False,
        agent_id: Hashable = None,
        policy: str | None = None,
        deterministic: bool | None = None,
    ) -> Any:
        """The action for one observation.

        :param explore: sample as in training, in place of the most likely action
        :param agent_id: which agent this is: chooses the policy and keeps its recurrent state apart
        :param policy: a policy by name, in place of the one the agent id is mapped to
        :param deterministic: the opposite of `explore`, as Stable-Baselines3 has it
        """
        chosen = self._policy(policy, agent_id)
        explore = explore if deterministic is None else not deterministic
        return chosen.one(self._remembering(chosen, chosen.batch([observation]), agent_id, explore), 0)

    def act_batch(self, observations: Any, *, explore: bool = False, policy: str | None = None) -> Any:
        """Actions for many observations in one forward pass.

        :param observations: arrays with a batch axis in front (for Dict and Tuple spaces: nested),
            or a dict of observations by agent id, which gives a dict of actions
        :param explore: sample as in training
        """
        if isinstance(observations, Mapping) and not self._is_batch(observations, policy):
            return self._act_named(observations, explore, policy)
        chosen = self._policy(policy, None)
        batch = chosen.arrays(observations, lead=1)
        return self._remembering(chosen, batch, ("batch", chosen.name), explore)

    def reset(self, agent_id: Hashable = None, *, rows: Sequence[int] | np.ndarray | None = None) -> None:
        """Forgets recurrent state; call it at the start of an episode.

        :param agent_id: forget this agent only
        :param rows: forget these rows of `act_batch` only (indices or a mask), where episodes ended
        """
        if rows is not None:
            for key, state in self._states.items():
                if isinstance(key, tuple) and key[0] == "batch":
                    self.policies[key[1]].reset_rows(state, rows)
        elif agent_id is not None:
            self._states.pop(agent_id, None)
        else:
            self._states.clear()

    def seed(self, seed: int) -> None:
        """Makes `explore=True` repeatable."""
        for index, policy in enumerate(self.policies.values()):
            policy.seed(seed + index)

    def policy_of(self, agent_id: Hashable) -> str:
        """The name of the policy that an agent uses."""
        return self._policy_of(agent_id)

    @property
    def module(self) -> nn.Module:
        """The torch module; of several policies, a `ModuleDict` by policy name."""
        if len(self.policies) == 1:
            return next(iter(self.policies.values())).module
        return nn.ModuleDict(
            {name.replace(".", "_"): policy.module for name, policy in self.policies.items()}
        )

    @property
    def observation_space(self) -> gym.Space:
        """What the first policy sees."""
        return next(iter(self.policies.values())).observation_space

    @property
    def action_space(self) -> gym.Space:
        """What the first policy does."""
        return next(iter(self.policies.values())).action_space

    def weights(self, policy: str | None = None) -> dict[str, np.ndarray]:
        """Weights by name, as arrays of their own.

        :param policy: of this policy only; without it, several policies' names get the policy in front
        """
        chosen = {policy: self._policy(policy, None)} if policy else self.policies
        single = len(chosen) == 1
        return {
            key if single else f"{name}/{key}": tensor.detach().cpu().numpy().copy()
            for name, member in chosen.items()
            for key, tensor in member.module.state_dict().items()
        }

    def summary(self) -> str:
        """The networks as a text table: layers, shapes, parameter counts."""
        return "\n\n".join(policy.summary() for policy in self.policies.values())

    def compute_single_action(
        self,
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
        :param explore: sample as in training, which is RLlib's default; False for the most likely action
        """
        explored = explore is None or explore
        chosen = self._policy(policy_id, None)
        if state is None or len(state) == 0:
            action = self.act(observation, explore=explored, policy=policy_id)
            if not full_fetch:
                return action
            after = self._states.get(None)
        else:
            batch = chosen.batch([observation])
            actions, after = chosen.act(batch, _nested(chosen, state, rows=1), explore=explored)
            action = chosen.one(actions, 0)
        return action, [array[0] for array in _flat(after)] if chosen.recurrent else [], {}

    def compute_actions(
        self,
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
        self,
        observation: Any,
        state: State | None = None,
        episode_start: Sequence[bool] | np.ndarray | None = None,
        deterministic: bool = True,
        *,
        policy: str | None = None,
    ) -> tuple[Any, tuple[np.ndarray, ...] | None]:
        """Stable-Baselines3's name: (action, state) for one observation or for a batch of them.

        :param state: recurrent state, as the last call returned it; None at the start
        :param episode_start: which rows begin an episode: their state is reset
        :param deterministic: the most likely action (the default here, not in Stable-Baselines3)
        """
        chosen = self._policy(policy, None)
        several = _is_batch(chosen.observation_space, observation)
        batch = chosen.arrays(observation, lead=1) if several else chosen.batch([observation])
        rows = len(first_leaf(batch))
        before = _nested(chosen, state, rows) if chosen.recurrent and state is not None else None
        if before is not None and episode_start is not None:
            chosen.reset_rows(before, np.atleast_1d(np.asarray(episode_start, dtype=bool)))
        actions, after = chosen.act(batch, before, explore=not deterministic)
        return actions if several else actions[0], tuple(_flat(after)) if chosen.recurrent else None

    def get_policy(self, policy_id: str | None = None) -> PolicyNames:
        """RLlib's name: one policy, with `get_weights()`, `model` and `compute_single_action`."""
        return PolicyNames(self, self._policy(policy_id, None).name)

    def __repr__(self) -> str:
        """Algorithm and policies."""
        return f"Agent({self.algo}, policies={list(self.policies)})"

    def _remembering(self, policy: Policy, batch: Any, key: Hashable, explore: bool) -> Any:
        """The actions for a batch, whose recurrent state is kept under `key`."""
        actions, after = policy.act(batch, self._states.get(key), explore=explore)
        if policy.recurrent:
            self._states[key] = after
        return actions

    def _policy(self, name: str | None, agent_id: Hashable) -> Policy:
        if name is None:
            name = self.policy_of(agent_id) if agent_id is not None else next(iter(self.policies))
        if name not in self.policies:
            meant = did_you_mean(name, self.policies)
            raise RayfishError(
                f"there is no policy {name!r}; this agent has {', '.join(self.policies)}",
                f"did you mean {meant[0]!r}?" if meant else "name one of these",
            )
        return self.policies[name]

    def _is_batch(self, observations: Mapping[Any, Any], policy: str | None) -> bool:
        """Whether a dict is a batch of Dict observations rather than observations by agent id."""
        space = self._policy(policy, None).observation_space
        return isinstance(space, gym.spaces.Dict) and set(space.spaces) <= set(observations)

    def _act_named(
        self, observations: Mapping[Any, Any], explore: bool, policy: str | None
    ) -> dict[Hashable, Any]:
        groups: dict[str, list[Hashable]] = {}
        for agent_id in observations:
            groups.setdefault(policy or self.policy_of(agent_id), []).append(agent_id)
        actions: dict[Hashable, Any] = {}
        for name, members in groups.items():
            chosen = self._policy(name, None)
            batch = chosen.batch([observations[member] for member in members])
            states = [self._states.get(member) for member in members]
            state = chosen.join(states) if chosen.recurrent else None
            taken, after = chosen.act(batch, state, explore=explore)
            for row, member in enumerate(members):
                actions[member] = chosen.one(taken, row)
                if chosen.recurrent:
                    self._states[member] = chosen.row(after, row)
        return {agent_id: actions[agent_id] for agent_id in observations}


class PolicyNames:
    """One policy by RLlib's names."""

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
        """Takes over weights, as `get_weights` returns them."""
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
