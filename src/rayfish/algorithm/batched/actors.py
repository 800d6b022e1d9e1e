"""Policies as the sampler calls them: observations in, actions out, drawn or the likeliest.

Random numbers come from torch's global generator, as everywhere else on a runner.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from rayfish.algorithm.batched.distributions import distribution
from rayfish.algorithm.batched.fused import fused
from rayfish.algorithm.batched.off_policy_networks import policy_network, q_function
from rayfish.algorithm.batched.ppo import DIST_INPUTS, LOGP
from rayfish.algorithm.batched.rollout import Tree
from rayfish.algorithm.batched.sampler import Actor, Decision
from rayfish.models.actions import TEMPERATURE, best_or_random, mask_logits, mask_of, mask_values
from rayfish.models.networks import q_values
from rayfish.nested import map_nested


class ActorCriticActor(Actor):
    """Acts with an actor-critic from `models/`."""

    timeless = True

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


class DQNActor(Actor):
    """Epsilon-greedy or SoftQ over the allowed actions, or the best one.

    :param module: a `DQNModule`; its epsilon follows the `t` of `act`
    """

    def __init__(self, module: Any, *, explore: bool = True) -> None:
        self.explore = explore
        self._masked, self._atoms = module.masked, module.num_atoms
        self._bounds = (module.v_min, module.v_max) if self._atoms > 1 else (0.0, 0.0)
        self._temperature: float | None = module.model_config.get(TEMPERATURE)
        self._module = module
        self._q = q_function(module.encoder, module.af, module.vf if module.uses_dueling else None)

    @torch.no_grad()
    def act(self, obs: Tree, state: Tree | None, t: int = 0) -> Decision:
        """One action per row; `t` counts environment steps."""
        advantages, values = self._q(self._q.inputs(obs))
        q, _, _ = q_values(advantages, values, self._atoms, self._bounds)
        mask = mask_of(obs, self._masked)
        q = mask_values(q, mask)
        if not self.explore:
            return Decision(q.argmax(dim=-1))
        if self._temperature:
            return Decision(torch.multinomial((q / self._temperature).softmax(dim=-1), 1).squeeze(-1))
        epsilon = float(self._module.epsilon_schedule.update(t))
        return Decision(best_or_random(q, mask, epsilon) if epsilon > 0.0 else q.argmax(dim=-1))


class SACActor(Actor):
    """Draws from the policy, or takes its likeliest action."""

    def __init__(self, module: Any, *, explore: bool = True) -> None:
        self.explore = explore
        self._masked = module.masked
        self._discrete = isinstance(module.action_space, gym.spaces.Discrete)
        self._policy = policy_network(module.pi_encoder, module.pi)

    @torch.no_grad()
    def act(self, obs: Tree, state: Tree | None, t: int = 0) -> Decision:
        """One action per row."""
        dist_inputs = mask_logits(self._policy(self._policy.inputs(obs)), mask_of(obs, self._masked))
        if self._discrete:
            if not self.explore:
                return Decision(dist_inputs.argmax(dim=-1))
            return Decision(torch.multinomial(dist_inputs.softmax(dim=-1), 1).squeeze(-1))
        mean, log_std = dist_inputs.chunk(2, dim=-1)
        if not self.explore:
            return Decision(mean.tanh())
        return Decision(
            (mean + torch.randn_like(mean) * log_std.clamp(*self._policy.log_std_bounds).exp()).tanh()
        )
