"""The policy of PPO and its kin as the sampler asks it: by sampling, or its likeliest action."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from torch import Tensor

from rayfish.algorithm.batched.distributions import distribution
from rayfish.algorithm.batched.fused import fused, mask_of
from rayfish.algorithm.batched.ppo import DIST_INPUTS, LOGP
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
        self._fused = fused(net)

    def initial_state(self) -> Tree | None:
        """None without memory."""
        return self.net.initial_state() or None

    def act(self, obs: Tree, state: Tree | None, t: int = 0) -> Decision:
        """One action per row."""
        dist_inputs, after = self._dist_inputs(obs, state)
        if self.explore:
            actions, logp = self._dist.sample(dist_inputs)
        else:
            actions = self._dist.mode(dist_inputs)
            logp = self._dist.evaluate(dist_inputs, actions).logp
        return Decision(actions, {LOGP: logp, DIST_INPUTS: dist_inputs}, after)

    def _dist_inputs(self, obs: Tree, state: Tree | None) -> tuple[Tensor, Tree | None]:
        if self._fused is not None:
            return self._fused.policy(self._fused.features(obs), mask_of(obs, self._fused.masked)), None
        if state is None:
            return self.net(obs, None)[0], None
        # Networks with memory take an axis of time after that of the batch.
        dist_inputs, after = self.net(map_nested(lambda leaf: leaf.unsqueeze(1), obs), state)
        return dist_inputs.squeeze(1), after
