"""Action distributions over whole batches: samples, log probabilities, and gradients in closed form.

A distribution is parametrised by the numbers a policy network gives: logits, or means and log
deviations. `terms` returns everything a policy-gradient loss is made of together with `pull`, which
turns the gradients of those terms into the gradient of the numbers, without autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import gymnasium as gym
import torch
from torch import Tensor

from rayfish.models.spaces import onehot_sizes

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)

Pull = Callable[[Tensor, "Tensor | float", "Tensor | float"], Tensor]
"""(d loss / d logp, d entropy, d kl), one each per row, to d loss / d numbers."""


@dataclass
class Terms:
    """What a loss needs of a distribution at given actions.

    :param logp: log probability of each action
    :param disorder: gives the entropy of each row; many losses never ask for it
    :param kl: divergence from the distribution that acted, of each row; None when not asked for
    :param pull: gradients of the three to the gradient of the numbers
    """

    logp: Tensor
    disorder: Callable[[], Tensor]
    kl: Tensor | None
    pull: Pull

    @cached_property
    def entropy(self) -> Tensor:
        """Of each row."""
        return self.disorder()


class Distribution:
    """What all distributions offer; `numbers` is [..., size], actions are [...] or [..., parts]."""

    def sample(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """(actions drawn with torch's own generator, their log probabilities)."""
        raise NotImplementedError

    def mode(self, numbers: Tensor) -> Tensor:
        """The likeliest actions."""
        raise NotImplementedError

    def terms(self, numbers: Tensor, actions: Tensor, before: Tensor | None = None) -> Terms:
        """See `Terms`; `before` is the numbers of the distribution that acted, for the divergence."""
        raise NotImplementedError


class Categorical(Distribution):
    """One of n actions."""

    def sample(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """By the Gumbel trick: the largest of logits less log-exponential noise."""
        log_p = numbers.log_softmax(-1)
        noise = torch.empty_like(log_p).exponential_()
        actions = (log_p - noise.log_()).argmax(-1)
        return actions, log_p.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def mode(self, numbers: Tensor) -> Tensor:
        """The largest logit."""
        return numbers.argmax(-1)

    def terms(self, numbers: Tensor, actions: Tensor, before: Tensor | None = None) -> Terms:
        """The gradient of a log probability is (one-hot - p); that of the entropy -p (log p + H)."""
        log_p = _log_softmax(numbers)
        p = log_p.exp()
        index = actions.unsqueeze(-1)

        def entropy() -> Tensor:
            # A forbidden action has p = 0 and a huge negative logarithm: their product is 0.
            return -(p * log_p).sum(-1)

        kl = q = None
        if before is not None:
            log_q = _log_softmax(before)
            q = log_q.exp()
            kl = (q * (log_q - log_p)).sum(-1)

        def pull(d_logp: Tensor, d_entropy: Tensor | float, d_kl: Tensor | float) -> Tensor:
            slope = torch.mul(p, d_logp.unsqueeze(-1)).neg_()
            slope.scatter_add_(-1, index, d_logp.unsqueeze(-1))
            if not _zero(d_entropy):
                slope -= p * (log_p + entropy().unsqueeze(-1)) * _column(d_entropy)
            if q is not None and not _zero(d_kl):
                slope += (p - q) * _column(d_kl)
            return slope

        return Terms(log_p.gather(-1, index).squeeze(-1), entropy, kl, pull)


class MultiCategorical(Distribution):
    """Several independent choices at once (MultiDiscrete)."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._part = Categorical()

    def sample(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Part by part."""
        drawn = [self._part.sample(part) for part in numbers.split(self._sizes, -1)]
        return torch.stack([a for a, _ in drawn], -1), torch.stack([lp for _, lp in drawn]).sum(0)

    def mode(self, numbers: Tensor) -> Tensor:
        """The largest logit of each part."""
        return torch.stack([part.argmax(-1) for part in numbers.split(self._sizes, -1)], -1)

    def terms(self, numbers: Tensor, actions: Tensor, before: Tensor | None = None) -> Terms:
        """Sums over the parts, each with its own gradient."""
        earlier = before.split(self._sizes, -1) if before is not None else [None] * len(self._sizes)
        parts = [
            self._part.terms(part, actions[..., index], earlier[index])
            for index, part in enumerate(numbers.split(self._sizes, -1))
        ]

        def pull(d_logp: Tensor, d_entropy: Tensor | float, d_kl: Tensor | float) -> Tensor:
            return torch.cat([part.pull(d_logp, d_entropy, d_kl) for part in parts], -1)

        kl = (
            torch.stack([part.kl for part in parts if part.kl is not None]).sum(0)
            if before is not None
            else None
        )
        return Terms(
            torch.stack([part.logp for part in parts]).sum(0),
            lambda: torch.stack([part.entropy for part in parts]).sum(0),
            kl,
            pull,
        )


class DiagonalGaussian(Distribution):
    """Independent normal deviates: means, then log deviations."""

    def sample(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Mean plus noise."""
        mean, log_std = numbers.chunk(2, -1)
        noise = torch.randn_like(mean)
        logp = -(0.5 * noise.square() + log_std + _HALF_LOG_TAU).sum(-1)
        return mean + noise * log_std.exp(), logp

    def mode(self, numbers: Tensor) -> Tensor:
        """The means."""
        return numbers.chunk(2, -1)[0]

    def terms(self, numbers: Tensor, actions: Tensor, before: Tensor | None = None) -> Terms:
        """The closed forms of the normal distribution."""
        mean, log_std = numbers.chunk(2, -1)
        inverse = (-2.0 * log_std).exp()
        away = actions - mean
        scaled = away * inverse
        square = away * scaled
        kl = drift = ratio = None
        if before is not None:
            mean_0, log_std_0 = before.chunk(2, -1)
            drift = (mean - mean_0) * inverse
            ratio = (2.0 * log_std_0).exp() * inverse + (mean - mean_0) * drift
            kl = (log_std - log_std_0 + 0.5 * ratio - 0.5).sum(-1)

        def pull(d_logp: Tensor, d_entropy: Tensor | float, d_kl: Tensor | float) -> Tensor:
            weight = d_logp.unsqueeze(-1)
            d_mean, d_log_std = scaled * weight, (square - 1.0) * weight
            if not _zero(d_entropy):
                d_log_std = d_log_std + _column(d_entropy)
            if drift is not None and ratio is not None and not _zero(d_kl):
                d_mean = d_mean + drift * _column(d_kl)
                d_log_std = d_log_std + (1.0 - ratio) * _column(d_kl)
            return torch.cat([d_mean, d_log_std], -1)

        logp = -(0.5 * square + log_std + _HALF_LOG_TAU).sum(-1)
        return Terms(logp, lambda: (log_std + _HALF_LOG_TAU + 0.5).sum(-1), kl, pull)


def distribution(space: gym.Space) -> Distribution:
    """The distribution of PPO and its kin over actions of `space`."""
    if isinstance(space, gym.spaces.Box):
        return DiagonalGaussian()
    sizes, _ = onehot_sizes(space)
    return Categorical() if isinstance(space, gym.spaces.Discrete) else MultiCategorical(sizes)


def _log_softmax(numbers: Tensor) -> Tensor:
    """Over the last axis; of few numbers per row on a CPU several times faster by way of the first axis."""
    if numbers.dim() == 2 and not numbers.is_cuda:
        return numbers.t().contiguous().log_softmax(0).t()
    return numbers.log_softmax(-1)


def _zero(value: Tensor | float) -> bool:
    return isinstance(value, int | float) and value == 0


def _column(value: Tensor | float) -> Tensor | float:
    return value.unsqueeze(-1) if isinstance(value, Tensor) else value
