"""Sampling from environments on the policy's device: tensors in, tensors out, nothing leaves the device.

Such an environment is a Gymnasium `VectorEnv` in the autoreset mode SAME_STEP whose arrays are torch
tensors and whose infos always hold `final_obs`, what every copy saw before it may have been reset. When
its metadata says `"in_place": True` (it keeps its state in the same tensors, and decides nothing in
Python by their values), a whole rollout is recorded as one CUDA graph.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from gymnasium.vector import VectorWrapper
from torch import Tensor

from rayfish.algorithm.batched.graphs import Replayed
from rayfish.algorithm.batched.rollout import Rollout, Tree
from rayfish.algorithm.batched.sampler import Actor, Clock
from rayfish.envs.rewards import Clip
from rayfish.envs.vector import (
    Vector,
    as_array,
    holds_tensors,
    last_observations,
    no_last_observation,
)
from rayfish.nested import first_leaf, map_nested


class ResidentVector(Vector):
    """An environment of tensors, with the sums of its running episodes.

    :param clip: how rewards are clipped for the learner; returns are sums of the true ones
    """

    counted = ("returns", "lengths", "finished")

    def __init__(self, env: Any, clip: Clip | None = None) -> None:
        super().__init__()
        self.env = env
        self.clip = clip
        self.device = first_leaf(env.reset()[0]).device
        self.num_slots = env.num_envs
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.in_place = bool((env.metadata or {}).get("in_place"))
        self.returns = torch.zeros(self.num_slots, device=self.device)
        self.lengths = torch.zeros(self.num_slots, dtype=torch.int32, device=self.device)

    def reset(self, seed: int | None) -> Tree:
        """Begin all episodes."""
        self.returns.zero_()
        self.lengths.zero_()
        obs, _ = self.env.reset(seed=seed)
        return obs

    def clipped(self, rewards: Tensor) -> Tensor:
        """Rewards as the learner gets them."""
        if self.clip is None:
            return rewards
        return rewards.sign() if self.clip.sign else rewards.clamp(self.clip.low, self.clip.high)

    def count(self, done: Tensor, returns: Tensor, lengths: Tensor) -> None:
        """Records the episodes that ended within a rollout, in the order of time."""
        at = done.nonzero()
        place = at[:, 0] * self.num_slots + at[:, 1]
        found = returns.view(-1)[place].tolist()
        self.finished.returns += found
        self.finished.earned += found
        self.finished.lengths += lengths.view(-1)[place].tolist()
        self.finished.slots += at[:, 1].tolist()


class TensorEnv(VectorWrapper):
    """An environment of tensors for a policy elsewhere: tensors go to it, arrays come from it."""

    def __init__(self, env: Any, device: torch.device) -> None:
        super().__init__(env)
        self._device = device

    def step(self, actions: Any) -> Any:
        """One step."""
        *given, infos = self.env.step(torch.as_tensor(actions, device=self._device))
        return (*(map_nested(as_array, part) for part in given), infos)


class ResidentSampler:
    """The sampler for a `ResidentVector`; rollouts of one length, each in the memory of the one before."""

    def __init__(
        self, vector: ResidentVector, actor: Actor, *, scale: bool = True, clip: bool = False
    ) -> None:
        self.vector = vector
        self.actor = actor
        space, is_box = vector.action_space, isinstance(vector.action_space, gym.spaces.Box)
        self._scale = scale and is_box and space.is_bounded()
        self._bounds: list[Tensor] | None = None
        if self._scale or (is_box and clip and not scale):
            self._bounds = [torch.as_tensor(bound, device=vector.device) for bound in (space.low, space.high)]
        self.device = vector.device
        self.clock = Clock()
        self.pace = vector.num_slots
        self.normalise = None
        self._explores = True
        self.obs: Tree = None
        self.state: Tree | None = None
        self._memory: dict[str, Any] = {}
        self._replayed: Replayed | None = None

    def reset(self, seed: int | None) -> None:
        """Start new episodes everywhere; the memory for observations stays the same."""
        first = self.vector.reset(seed)
        if self.obs is None:
            self.obs = map_nested(torch.clone, first)
        else:
            map_nested(lambda mine, new: mine.copy_(new), self.obs, first)

    def restore(self, obs: Tree, state: Tree | None) -> None:
        """Continue from the observations of a snapshot; the memory may be another one."""
        self.obs = map_nested(lambda leaf: leaf.to(self.device), obs)
        self._replayed = None

    def collect(self, steps: int, t: int = 0, least: int = 0) -> Rollout:
        """So many steps of every copy, all of them real ones."""
        if self._memory.get("steps") != steps:
            self._memory = {"steps": steps}
            self._replayed = None
        with torch.no_grad():
            if not (self.vector.in_place and self.actor.timeless):
                self._run(steps, t)
            else:
                if self._replayed is None or self._explores != self.actor.explore:
                    self._replayed = Replayed(lambda: self._run(steps, 0), self.device)
                    self._explores = self.actor.explore
                self._replayed()
        memory = self._memory
        self.vector.count(memory["done"], memory["returns"], memory["lengths"])
        return Rollout(
            obs=memory["obs"],
            actions=memory["actions"],
            rewards=memory["rewards"],
            terminated=memory["terminated"],
            done=memory["done"],
            valid=None,
            last_obs=self.obs,
            final_index=None,
            final_obs=memory["final_obs"],
            extras={name: memory[name] for name in memory["extras"]},
        )

    def _run(self, steps: int, t: int) -> None:
        returns, lengths = self.vector.returns, self.vector.lengths
        for step in range(steps):
            obs = self._put("obs", step, self.obs)
            decision = self.actor.act(obs, None, t + step * self.pace)
            self._put("actions", step, decision.actions)
            for name, value in decision.extras.items():
                self._put(name, step, value)
            self._memory["extras"] = sorted(decision.extras)
            after, rewards, terminated, truncated, infos = self.vector.env.step(
                self._for_env(decision.actions)
            )
            done = terminated | truncated
            returns += rewards
            lengths += 1
            for name, value in (
                ("rewards", self.vector.clipped(rewards)),
                ("terminated", terminated),
                ("done", done),
                ("returns", returns),
                ("lengths", lengths),
                ("final_obs", self._last_observations(infos)),
            ):
                self._put(name, step, value)
            returns.masked_fill_(done, 0.0)
            lengths.masked_fill_(done, 0)
            map_nested(lambda mine, new: mine.copy_(new), self.obs, after)

    def _for_env(self, actions: Tensor) -> Tensor:
        """Actions as the environment wants them, without leaving the device; see `models.actions.for_env`."""
        if self._bounds is None:
            return actions
        low, high = self._bounds
        actions = actions.view(-1, *low.shape)
        if self._scale:
            actions = low + (actions + 1.0) * (high - low) / 2.0
        return torch.clamp(actions, low, high)

    def _last_observations(self, infos: dict[str, Any]) -> Tree:
        """Of every copy in every step: looking up which of them ended would leave the device."""
        found = last_observations(infos)
        if found is None or not holds_tensors(found):
            raise no_last_observation(self.vector.env, 0)
        return found

    def _put(self, name: str, step: int, tree: Tree) -> Tree:
        if name not in self._memory:
            steps = self._memory["steps"]
            self._memory[name] = map_nested(lambda leaf: leaf.new_empty((steps, *leaf.shape)), tree)
        return map_nested(lambda leaf, value: leaf[step].copy_(value), self._memory[name], tree)
