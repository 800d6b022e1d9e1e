"""A trained policy by itself: `agent = rayfish.load(run)`, then `agent.act(observation)`.

Rebuilds the networks from the checkpoint's `policy/` folder (no Ray, no GPU), applies the
observation normaliser the run had, keeps recurrent state between calls, and turns the networks'
numbers into actions the way training did.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from torch import nn

from rayfish.errors import CheckpointError, RayfishError, did_you_mean
from rayfish.experiment.mapping import PolicyMapping
from rayfish.run import trust as permission
from rayfish.run.acting import Policy, open_policy
from rayfish.run.agent_names import AgentNames
from rayfish.run.policy_files import SavedPolicies, read_policies, save_policy

__all__ = ["Agent", "Policy", "load", "save_policy"]


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


class Agent(AgentNames):
    """Acts with one policy, or with several by agent id. Recurrent state lives here.

    :param policies: policy name -> `Policy`
    """

    def __init__(self, saved: SavedPolicies, *, device: str = "cpu") -> None:
        self.algo = saved.algo
        self.policies: dict[str, Policy] = {
            name: open_policy(policy, saved, device) for name, policy in saved.policies.items()
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
        batch = chosen.batch([observation])
        state = self._states.get(agent_id) if chosen.recurrent else None
        explore = explore if deterministic is None else not deterministic
        actions, after = chosen.act(batch, state, explore=explore)
        if chosen.recurrent:
            self._states[agent_id] = after
        return chosen.one(actions, 0)

    def act_batch(self, observations: Any, *, explore: bool = False, policy: str | None = None) -> Any:
        """Actions for many observations in one forward pass.

        :param observations: arrays with a batch axis in front (for Dict and Tuple spaces: nested),
            or a dict of observations by agent id, which gives a dict of actions
        :param explore: sample as in training
        :param policy: a policy by name
        """
        if isinstance(observations, Mapping) and not self._is_batch(observations, policy):
            return self._act_named(observations, explore, policy)
        chosen = self._policy(policy, None)
        batch = chosen.arrays(observations, lead=1)
        key = ("batch", chosen.name)
        state = self._states.get(key) if chosen.recurrent else None
        actions, after = chosen.act(batch, state, explore=explore)
        if chosen.recurrent:
            self._states[key] = after
        return actions

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

    def __repr__(self) -> str:
        """Algorithm and policies."""
        return f"Agent({self.algo}, policies={list(self.policies)})"

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
