"""Action distributions over whole batches: samples, log probabilities, and gradients in closed form.

A distribution is parametrised by the outputs of a policy network (`dist_inputs`, as RLlib calls them):
logits, or means and log standard deviations, [..., size]; actions are [...] or [..., components].

`sample` draws actions with torch's global generator and returns them with their log probabilities; `mode`
returns the most likely ones; `evaluate` returns what a loss needs of given actions, which autograd can
differentiate, too (`old` are the `dist_inputs` of the distribution that acted, for the KL divergence).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium as gym
import torch
from torch import Tensor

from rayfish.models.spaces import onehot_sizes

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


@dataclass
class EvaluatedActions:
    """What a policy-gradient loss needs of a distribution at given actions, one number per row each.

    :param entropy: computes the entropy, which many losses do not use
    :param kl: divergence of the distribution from the one that acted; None without the latter
    :param backward: (d loss / d logp, d entropy, d kl) to d loss / d dist_inputs, without autograd
    """

    logp: Tensor
    entropy: Callable[[], Tensor]
    kl: Tensor | None
    backward: Callable[[Tensor, Tensor | float, Tensor | float], Tensor]


class Categorical:
    """One of n actions."""

    def sample(self, dist_inputs: Tensor) -> tuple[Tensor, Tensor]:
        """By the Gumbel trick: the largest of logits less log-exponential noise."""
        log_p = dist_inputs.log_softmax(-1)
        noise = torch.empty_like(log_p).exponential_()
        actions = (log_p - noise.log_()).argmax(-1)
        return actions, log_p.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def mode(self, dist_inputs: Tensor) -> Tensor:
        """The largest logit."""
        return dist_inputs.argmax(-1)

    def evaluate(self, dist_inputs: Tensor, actions: Tensor, old: Tensor | None = None) -> EvaluatedActions:
        """The gradient of a log probability is (one-hot - p); that of the entropy -p (log p + H)."""
        log_p = _log_softmax(dist_inputs)
        p = log_p.exp()
        index = actions.unsqueeze(-1)

        def entropy() -> Tensor:
            # A forbidden action has p = 0 and a huge negative logarithm: their product is 0.
            return -(p * log_p).sum(-1)

        kl = q = None
        if old is not None:
            log_q = _log_softmax(old)
            q = log_q.exp()
            kl = (q * (log_q - log_p)).sum(-1)

        def backward(d_logp: Tensor, d_entropy: Tensor | float, d_kl: Tensor | float) -> Tensor:
            gradient = torch.mul(p, d_logp.unsqueeze(-1)).neg_()
            gradient.scatter_add_(-1, index, d_logp.unsqueeze(-1))
            if not _zero(d_entropy):
                gradient -= p * (log_p + entropy().unsqueeze(-1)) * _column(d_entropy)
            if q is not None and not _zero(d_kl):
                gradient += (p - q) * _column(d_kl)
            return gradient

        return EvaluatedActions(log_p.gather(-1, index).squeeze(-1), entropy, kl, backward)


class MultiCategorical:
    """Several independent categorical choices at once (MultiDiscrete)."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._component = Categorical()

    def sample(self, dist_inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Component by component."""
        drawn = [self._component.sample(logits) for logits in dist_inputs.split(self._sizes, -1)]
        return torch.stack([a for a, _ in drawn], -1), torch.stack([logp for _, logp in drawn]).sum(0)

    def mode(self, dist_inputs: Tensor) -> Tensor:
        """The largest logit of each component."""
        return torch.stack([logits.argmax(-1) for logits in dist_inputs.split(self._sizes, -1)], -1)

    def evaluate(self, dist_inputs: Tensor, actions: Tensor, old: Tensor | None = None) -> EvaluatedActions:
        """Sums over the components, each with its own gradient."""
        old_logits = old.split(self._sizes, -1) if old is not None else [None] * len(self._sizes)
        found = [
            self._component.evaluate(logits, actions[..., index], old_logits[index])
            for index, logits in enumerate(dist_inputs.split(self._sizes, -1))
        ]
        divergences = [one.kl for one in found if one.kl is not None]
        return EvaluatedActions(
            torch.stack([one.logp for one in found]).sum(0),
            lambda: torch.stack([one.entropy() for one in found]).sum(0),
            torch.stack(divergences).sum(0) if divergences else None,
            lambda *gradients: torch.cat([one.backward(*gradients) for one in found], -1),
        )


class DiagonalGaussian:
    """Independent normal distributions: means, then log standard deviations."""

    def sample(self, dist_inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean plus noise."""
        mean, log_std = dist_inputs.chunk(2, -1)
        noise = torch.randn_like(mean)
        logp = -(0.5 * noise.square() + log_std + _HALF_LOG_TAU).sum(-1)
        return mean + noise * log_std.exp(), logp

    def mode(self, dist_inputs: Tensor) -> Tensor:
        """The means."""
        return dist_inputs.chunk(2, -1)[0]

    def evaluate(self, dist_inputs: Tensor, actions: Tensor, old: Tensor | None = None) -> EvaluatedActions:
        """The closed forms of the normal distribution."""
        mean, log_std = dist_inputs.chunk(2, -1)
        inverse = (-2.0 * log_std).exp()
        offset = actions - mean
        scaled = offset * inverse
        square = offset * scaled
        kl = drift = ratio = None
        if old is not None:
            old_mean, old_log_std = old.chunk(2, -1)
            drift = (mean - old_mean) * inverse
            ratio = (2.0 * old_log_std).exp() * inverse + (mean - old_mean) * drift
            kl = (log_std - old_log_std + 0.5 * ratio - 0.5).sum(-1)

        def backward(d_logp: Tensor, d_entropy: Tensor | float, d_kl: Tensor | float) -> Tensor:
            weight = d_logp.unsqueeze(-1)
            d_mean, d_log_std = scaled * weight, (square - 1.0) * weight
            if not _zero(d_entropy):
                d_log_std = d_log_std + _column(d_entropy)
            if drift is not None and ratio is not None and not _zero(d_kl):
                d_mean = d_mean + drift * _column(d_kl)
                d_log_std = d_log_std + (1.0 - ratio) * _column(d_kl)
            return torch.cat([d_mean, d_log_std], -1)

        logp = -(0.5 * square + log_std + _HALF_LOG_TAU).sum(-1)
        return EvaluatedActions(logp, lambda: (log_std + _HALF_LOG_TAU + 0.5).sum(-1), kl, backward)


Distribution = Categorical | MultiCategorical | DiagonalGaussian


def distribution(space: gym.Space) -> Distribution:
    """The distribution of PPO, APPO and IMPALA over actions of `space`."""
    if isinstance(space, gym.spaces.Box):
        return DiagonalGaussian()
    sizes, _ = onehot_sizes(space)
    return Categorical() if isinstance(space, gym.spaces.Discrete) else MultiCategorical(sizes)


def _log_softmax(logits: Tensor) -> Tensor:
    """Over the last axis; for short rows on a CPU several times faster by way of the first axis."""
    if logits.dim() == 2 and not logits.is_cuda:
        return logits.t().contiguous().log_softmax(0).t()
    return logits.log_softmax(-1)


def _zero(value: Tensor | float) -> bool:
    return isinstance(value, int | float) and value == 0


def _column(value: Tensor | float) -> Tensor | float:
    return value.unsqueeze(-1) if isinstance(value, Tensor) else value
