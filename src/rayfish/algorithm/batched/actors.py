"""The policy of PPO and its kin as the sampler asks it: by sampling, or its likeliest action."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from torch import Tensor

from rayfish.algorithm.batched.distributions import distribution
from rayfish.algorithm.batched.fused import fused, mask_of
from rayfish.algorithm.batched.ppo import LOGP, NUMBERS
from rayfish.algorithm.batched.rollout import Tree
from rayfish.algorithm.batched.sampler import Decision
from rayfish.nested import map_nested


class ActorCriticActor:
    """Acts with an actor-critic from `models/`.

    :param explore: sample; otherwise the likeliest action
    """

    timeless = True
    """What it does depends on nothing but the weights and what it sees."""

    def __init__(self, net: Any, action_space: gym.Space, *, explore: bool = True) -> None:
        self.net = net
        self.explore = explore
        self._dist = distribution(action_space)
        self._plain = fused(net)

    def initial_state(self) -> Tree | None:
        """None without memory."""
        return self.net.initial_state() or None

    def act(self, obs: Tree, state: Tree | None, t: int = 0) -> Decision:
        """One action per row."""
        numbers, after = self._numbers(obs, state)
        if self.explore:
            actions, logp = self._dist.sample(numbers)
        else:
            actions = self._dist.mode(numbers)
            logp = self._dist.terms(numbers, actions).logp
        return Decision(actions, {LOGP: logp, NUMBERS: numbers}, after)

    def _numbers(self, obs: Tree, state: Tree | None) -> tuple[Tensor, Tree | None]:
        if self._plain is not None:
            return self._plain.policy(self._plain.features(obs), mask_of(obs, self._plain.masked)), None
        if state is None:
            return self.net(obs, None)[0], None
        # Networks with memory take an axis of time after that of the batch.
        numbers, after = self.net(map_nested(lambda leaf: leaf.unsqueeze(1), obs), state)
        return numbers.squeeze(1), after
