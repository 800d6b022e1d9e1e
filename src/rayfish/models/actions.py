"""From a network's outputs to an action for the environment, as RLlib does it; and action masks."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from rayfish.models.spaces import MASK_KEY, onehot_sizes

TEMPERATURE = "softq_temperature"
"""Key of a Q network's model under which the temperature of SoftQ exploration is kept."""

# RLlib's bounds for the log deviation of a squashed Gaussian
# (ray.rllib.utils.numpy: MIN_LOG_NN_OUTPUT, MAX_LOG_NN_OUTPUT).
LOG_STD_BOUNDS = (-5.0, 2.0)


MASKED = -1e9
"""Logit of a forbidden action: its probability is exactly 0 in float32, and sums stay finite."""


def mask_of(observation: Any, masked: bool) -> Tensor | None:
    """The action mask within observations, where they have one."""
    return observation[MASK_KEY] if masked else None


def mask_logits(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Logits with the forbidden actions (mask 0) at `MASKED`."""
    return logits if mask is None else torch.where(mask > 0, logits, MASKED)


def mask_values(values: Tensor, mask: Tensor | None) -> Tensor:
    """Q values with the forbidden actions at `MASKED`.

    A mask that forbids everything (terminal states, padding) forbids nothing here, or the target
    of a truncated step would be `MASKED`.
    """
    if mask is None:
        return values
    allowed = mask > 0
    allowed = allowed | ~allowed.any(dim=-1, keepdim=True)
    return torch.where(allowed, values, MASKED)


def masked_probabilities(logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """(probabilities, log probabilities) of every discrete action; both 0 where it is forbidden.

    The logarithm of a probability of 0 is only ever multiplied by that probability.
    """
    log_p = mask_logits(logits, mask).log_softmax(dim=-1)
    return log_p.exp(), log_p if mask is None else torch.where(mask > 0, log_p, 0.0)


def best_or_random(values: Tensor, mask: Tensor | None, epsilon: float) -> Tensor:
    """The best actions, with probability `epsilon` a random allowed one in their place (while training)."""
    noise = mask_values(torch.rand_like(values), mask)
    best = values.argmax(dim=-1)
    explores = torch.rand(best.shape, device=values.device) < epsilon
    return torch.where(explores, noise.argmax(dim=-1), best)


def choose(
    dist_inputs: Tensor,
    space: gym.Space,
    *,
    squashed: bool,
    explore: bool,
    generator: torch.Generator | None = None,
) -> np.ndarray:
    """The most likely actions, or with `explore` sampled ones, one row per row of `dist_inputs`.

    :param dist_inputs: logits, or means and log deviations, of shape (batch, n)
    :param squashed: Box actions pass a tanh (SAC and its kin)
    """
    if isinstance(space, gym.spaces.Box):
        mean, log_std = dist_inputs.chunk(2, dim=-1)
        if explore:
            if squashed:
                log_std = log_std.clamp(*LOG_STD_BOUNDS)
            noise = torch.randn(mean.shape, generator=generator, device=mean.device)
            mean = mean + noise * log_std.exp()
        return (torch.tanh(mean) if squashed else mean).cpu().numpy()
    sizes, _ = onehot_sizes(space)
    parts = [_category(part, explore, generator) for part in dist_inputs.split(sizes, dim=-1)]
    chosen = parts[0] if isinstance(space, gym.spaces.Discrete) else torch.stack(parts, dim=-1)
    return chosen.cpu().numpy()


def _category(logits: Tensor, explore: bool, generator: torch.Generator | None) -> Tensor:
    if not explore:
        return logits.argmax(dim=-1)
    return torch.multinomial(logits.softmax(dim=-1), 1, generator=generator).squeeze(-1)


def epsilon_greedy(
    values: Tensor, mask: Tensor | None, epsilon: float, generator: torch.Generator | None = None
) -> np.ndarray:
    """The best actions, with probability `epsilon` a random allowed one in their place."""
    greedy = values.argmax(dim=-1)
    if epsilon <= 0:
        return greedy.cpu().numpy()
    weights = torch.ones_like(values) if mask is None else (mask > 0).float()
    random = torch.multinomial(weights, 1, generator=generator).squeeze(-1)
    coin = torch.rand(greedy.shape, generator=generator, device=greedy.device)
    return torch.where(coin < epsilon, random, greedy).cpu().numpy()


def soft_q(values: Tensor, temperature: float, generator: torch.Generator | None = None) -> np.ndarray:
    """Actions drawn by how good they are: evenly at a high temperature, the best one at a low."""
    return _category(values / temperature, True, generator).cpu().numpy()


def for_env(actions: np.ndarray, space: gym.Space, *, normalize: bool, clip: bool) -> Any:
    """Actions as the environment wants them: Box actions scaled from -1..1 to the bounds, or clipped."""
    if not isinstance(space, gym.spaces.Box):
        return actions
    bounded = space.is_bounded()
    actions = actions.reshape(actions.shape[0], *space.shape)
    if normalize and bounded:
        actions = space.low + (actions + 1.0) * (space.high - space.low) / 2.0
        actions = np.clip(actions, space.low, space.high)
    elif clip and not normalize:
        actions = np.clip(actions, space.low, space.high)
    return actions.astype(space.dtype, copy=False)
