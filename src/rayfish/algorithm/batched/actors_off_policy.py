"""The policies of DQN and SAC as the sampler asks them.

Where a network is of plain layers it is evaluated without RLlib's module around it, which costs more
than a small network's pass; any other acts by its module's own methods. Random numbers come from torch's
global generator, as everywhere else on a runner.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from ray.rllib.core.columns import Columns
from torch import Tensor

from rayfish.algorithm.batched.fused import Chain, is_plain, layers_of
from rayfish.algorithm.batched.off_policy_networks import FusedQ
from rayfish.algorithm.batched.rollout import Tree
from rayfish.algorithm.batched.sampler import Decision
from rayfish.algorithm.module import DQNModule, SACModule
from rayfish.models.actions import _LOG_STD_BOUNDS, TEMPERATURE
from rayfish.models.masking import mask_logits, mask_values
from rayfish.models.networks import GaussianHead, q_values
from rayfish.models.spaces import MASK_KEY


class DQNActor:
    """Epsilon-greedy or SoftQ over the allowed actions, or the best one.

    :param module: a runner's module; its epsilon follows the `t` of `act`
    :param explore: whether to explore at all
    """

    def __init__(self, module: DQNModule, *, explore: bool = True) -> None:
        self.explore = explore
        self._module = module
        self._temperature: float | None = module.model_config.get(TEMPERATURE)
        vf = module.vf if module.uses_dueling else None
        plain = is_plain(module.encoder, module.af, *([] if vf is None else [vf]))
        self._q = FusedQ(module.encoder, module.af, vf) if plain else None
        atoms = module.num_atoms
        self._atoms, self._bounds = atoms, (module.v_min, module.v_max) if atoms > 1 else (0.0, 0.0)

    def initial_state(self) -> Tree | None:
        """It has no memory."""
        return None

    @torch.no_grad()
    def act(self, obs: Tree, state: Tree | None, t: int = 0) -> Decision:
        """One action per row; `t` counts environment steps."""
        if self._q is None:
            batch = {Columns.OBS: obs}
            module = self._module
            output = (
                module.forward_exploration(batch, t=t) if self.explore else module.forward_inference(batch)
            )
            return Decision(output[Columns.ACTIONS])
        advantages, values = self._q(self._q.inputs(obs))
        q, _, _ = q_values(advantages, values, self._atoms, self._bounds)
        mask = obs[MASK_KEY] if self._module.masked else None
        if mask is not None:
            q = mask_values(q, mask)
        if not self.explore:
            return Decision(q.argmax(dim=-1))
        if self._temperature:
            return Decision(torch.multinomial((q / self._temperature).softmax(dim=-1), 1).squeeze(-1))
        return Decision(self._mixed(q, mask, t))

    def _mixed(self, q: Tensor, mask: Tensor | None, t: int) -> Tensor:
        """The best actions, with probability epsilon a random allowed one in their place."""
        epsilon = float(self._module.epsilon_schedule.update(t))
        greedy = q.argmax(dim=-1)
        if epsilon <= 0.0:
            return greedy
        noise = torch.rand_like(q)
        if mask is not None:
            noise = mask_values(noise, mask)
        explores = torch.rand(greedy.shape, device=q.device) < epsilon
        return torch.where(explores, noise.argmax(dim=-1), greedy)


class SACActor:
    """Draws from the policy, or takes its likeliest action.

    :param module: a runner's module
    :param explore: draw
    """

    def __init__(self, module: SACModule, *, explore: bool = True) -> None:
        self.explore = explore
        self._module = module
        self._discrete = isinstance(module.action_space, gym.spaces.Discrete)
        self._head = module.pi if isinstance(module.pi, GaussianHead) else None
        self._chain: Chain | None = None
        if is_plain(module.pi_encoder, module.pi) and not (self._head is not None and self._head.free):
            self._chain = Chain([*module.pi_encoder.mlp, *layers_of(module.pi)])

    def initial_state(self) -> Tree | None:
        """It has no memory."""
        return None

    @torch.no_grad()
    def act(self, obs: Tree, state: Tree | None, t: int = 0) -> Decision:
        """One action per row."""
        dist_inputs = self._dist_inputs(obs)
        if self._discrete:
            if not self.explore:
                return Decision(dist_inputs.argmax(dim=-1))
            return Decision(torch.multinomial(dist_inputs.softmax(dim=-1), 1).squeeze(-1))
        mean, log_std = dist_inputs.chunk(2, dim=-1)
        if not self.explore:
            return Decision(mean.tanh())
        low, high = _LOG_STD_BOUNDS
        if self._head is not None:
            low, high = max(low, -self._head.clip), min(high, self._head.clip)
        return Decision((mean + torch.randn_like(mean) * log_std.clamp(low, high).exp()).tanh())

    def _dist_inputs(self, obs: Tree) -> Tensor:
        """Logits with the forbidden actions out, or means and log deviations."""
        if self._chain is None:
            # Exploring and not are the same pass; what differs is what is made of it.
            return self._module.forward_inference({Columns.OBS: obs})[Columns.ACTION_DIST_INPUTS]
        dist_inputs = self._chain.forward(self._module.pi_encoder.features(obs))
        return mask_logits(dist_inputs, obs[MASK_KEY]) if self._module.masked else dist_inputs


def off_policy_actor(module: Any, action_space: gym.Space, *, explore: bool = True) -> DQNActor | SACActor:
    """The way to act of DQN's or SAC's module."""
    if isinstance(module, DQNModule):
        return DQNActor(module, explore=explore)
    if isinstance(module, SACModule):
        return SACActor(module, explore=explore)
    raise TypeError(f"no batched way to act for {type(module).__name__}")
