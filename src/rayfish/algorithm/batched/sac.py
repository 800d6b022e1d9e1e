"""SAC's update (https://arxiv.org/abs/1812.05905), for Box and Discrete actions.

All losses are taken at the same weights, as RLlib does: critics, policy and temperature step together.
They are written as their gradients at the networks' outputs; `sac_networks` takes them from there, so
that the policy's loss passes through the critics without touching their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rayfish.algorithm.batched.replay.buffer import Batch
from rayfish.algorithm.batched.sac_networks import Seen, WrittenPolicy, networks
from rayfish.algorithm.batched.towers import TidyOptimiser, blend, huber, limit, weights_of
from rayfish.models.actions import _LOG_STD_BOUNDS
from rayfish.models.masking import mask_logits
from rayfish.models.networks import GaussianHead
from rayfish.models.spaces import MASK_KEY

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2.0)
NAMES = ("qf", "qf_twin")
"""Of the critics' optimizers and losses."""


@dataclass(frozen=True)
class SACSettings:
    """SAC's settings, under RLlib's names."""

    gamma: float = 0.99
    grad_clip: float | None = None
    grad_clip_by: str = "global_norm"


@dataclass(frozen=True)
class Pair:
    """A network: an encoder from `models/` and its head."""

    encoder: nn.Module
    head: nn.Module

    def parameters(self) -> list[nn.Parameter]:
        """Of both."""
        return [*self.encoder.parameters(), *self.head.parameters()]


class SAC:
    """Learns a policy, one or two critics and a temperature from batches of transitions.

    :param critics: each with its target copy
    :param log_alpha: logarithm of the temperature, a trainable tensor with one number
    :param target_entropy: what the temperature keeps the policy's entropy at
    :param optimizers: by name: "policy", "alpha", "qf" and with two critics "qf_twin"
    :param discrete: actions are categories; Box otherwise
    :param masked: observations carry an action mask
    :param average: called with each gradient before a step, to average it over several learners
    """

    def __init__(
        self,
        policy: Pair,
        critics: Sequence[tuple[Pair, Pair]],
        *,
        log_alpha: Tensor,
        target_entropy: Tensor,
        optimizers: dict[str, torch.optim.Optimizer],
        discrete: bool,
        masked: bool = False,
        average: Callable[[Tensor], None] | None = None,
    ) -> None:
        self.names = NAMES[: len(critics)]
        parameters: dict[str, list[Any]] = {"policy": policy.parameters(), "alpha": [log_alpha]}
        parameters |= {name: main.parameters() for name, (main, _) in zip(self.names, critics, strict=True)}
        self.optimisers = {
            name: TidyOptimiser(optimizers[name], parameters[name])
            for name in (*self.names, "policy", "alpha")
        }
        self._policy, self._critics, self._target_critics = networks(
            (policy.encoder, policy.head),
            [(main.encoder, main.head) for main, _ in critics],
            [(target.encoder, target.head) for _, target in critics],
        )
        self._mains = weights_of(part for main, _ in critics for part in (main.encoder, main.head))
        self._targets = weights_of(part for _, target in critics for part in (target.encoder, target.head))
        self._log_alpha, self._target_entropy = log_alpha, target_entropy
        self._head = policy.head if isinstance(policy.head, GaussianHead) else None
        self._discrete, self._masked, self._average = discrete, masked, average
        self.parts: Callable[[], dict[str, Tensor]] | None = None
        """The last batch's losses and their parts; to be called before the next update."""

    def attach(self) -> None:
        """Before a series of updates: take over what was loaded into the optimizers since."""
        for optimiser in self.optimisers.values():
            optimiser.attach()

    def follow(self, tau: float) -> None:
        """Moves the target critics towards the current ones."""
        blend(self._mains, self._targets, tau)

    @torch.no_grad()
    def update(self, batch: Batch, settings: SACSettings) -> Tensor:
        """One step of all optimizers; gives the absolute errors, as new priorities of the batch."""
        size = batch["rewards"].shape[0]
        written = isinstance(self._policy, WrittenPolicy)
        features = self._policy.encoder.features(batch["both"]) if written else None
        seen = Seen(batch["both"], features, size)
        alpha = self._log_alpha.detach().exp()
        discount = torch.pow(settings.gamma, batch["n_step"]) * ~batch["terminateds"]
        losses = self._choices if self._discrete else self._movements
        errors = losses(batch, seen, alpha, discount)
        norms = {}
        for name, optimiser in self.optimisers.items():
            if self._average is not None:
                self._average(optimiser.gradient)
            norms[name] = limit(optimiser, settings.grad_clip, settings.grad_clip_by)
            optimiser.step()
        self._norms = norms
        return errors

    def _movements(self, batch: Batch, seen: Seen, alpha: Tensor, discount: Tensor) -> Tensor:
        """Slopes of all losses for Box actions."""
        size, actions = seen.size, batch["actions"].float().flatten(1)
        numbers = self._policy.numbers(seen)
        drawn = _Squashed(numbers, self._head)
        own, logp = drawn.actions[:size], drawn.logp[:size]
        next_q = _lowest([c.next_values(seen, drawn.actions[size:]) for c in self._target_critics])
        target = batch["rewards"] + discount * (next_q - alpha * drawn.logp[size:])
        values = [critic.values(seen, actions, own) for critic in self._critics]
        deltas = [value[:size] - target for value in values]
        own_values = [value[size:] for value in values]
        d_own = torch.zeros_like(own)
        for name, critic, delta, value in zip(self.names, self._critics, deltas, own_values, strict=True):
            d_q = delta.clamp(-1.0, 1.0) * (batch["weights"] / size)
            slope = torch.cat([d_q, _share_of_lowest(value, own_values) / -size])
            d_own += critic.learn_and_pull(slope, own.shape[-1], self.optimisers[name])
        self._policy.learn(drawn.pull(d_own, alpha / size), self.optimisers["policy"])
        self._slope_of_alpha(logp)
        errors = sum(delta.abs() for delta in deltas) / len(deltas)
        lowest = _lowest(own_values)
        self.parts = lambda: self._parts(
            batch, deltas, alpha, errors, (alpha * logp - lowest).mean(), logps=logp, entropies=logp, q=lowest
        )
        return errors

    def _choices(self, batch: Batch, seen: Seen, alpha: Tensor, discount: Tensor) -> Tensor:
        """Slopes of all losses for Discrete actions."""
        size, actions = seen.size, batch["actions"].long().unsqueeze(-1)
        p, log_p = self._probabilities(self._policy.numbers(seen), batch["both"])
        next_q = _lowest([critic.next_table(seen) for critic in self._target_critics])
        tables = [critic.table(seen) for critic in self._critics]
        next_value = (p[size:] * (next_q - alpha * log_p[size:])).sum(dim=-1)
        target = batch["rewards"] + discount * next_value
        p, log_p = p[:size], log_p[:size]
        deltas = [table.gather(-1, actions).squeeze(-1) - target for table in tables]
        for name, critic, delta, table in zip(self.names, self._critics, deltas, tables, strict=True):
            d_q = delta.clamp(-1.0, 1.0) * (batch["weights"] / size)
            slope = torch.zeros_like(table).scatter_(-1, actions, d_q.unsqueeze(-1))
            critic.learn(slope, self.optimisers[name])
        cost = alpha * log_p - _lowest(tables)
        mean_cost = (p * cost).sum(dim=-1, keepdim=True)
        self._policy.learn(p * (cost - mean_cost) / size, self.optimisers["policy"])
        entropies = (p * log_p).sum(dim=-1)
        self._slope_of_alpha(entropies)
        errors = sum(delta.abs() for delta in deltas) / len(deltas)
        self.parts = lambda: self._parts(
            batch, deltas, alpha, errors, mean_cost.mean(), logps=log_p, entropies=entropies, q=tables[0]
        )
        return errors

    def _probabilities(self, logits: Tensor, both: Any) -> tuple[Tensor, Tensor]:
        """(probabilities, their logarithms) of every action; both 0 where it is forbidden."""
        if not self._masked:
            log_p = logits.log_softmax(dim=-1)
            return log_p.exp(), log_p
        mask = both[MASK_KEY]
        log_p = mask_logits(logits, mask).log_softmax(dim=-1)
        return log_p.exp(), torch.where(mask > 0, log_p, 0.0)

    def _slope_of_alpha(self, logps: Tensor) -> None:
        """Of the temperature's loss, -mean(log alpha * (log p + target entropy))."""
        torch.neg((logps.mean() + self._target_entropy).view(1), out=self.optimisers["alpha"].gradient)

    @torch.no_grad()
    def _parts(
        self,
        batch: Batch,
        deltas: list[Tensor],
        alpha: Tensor,
        errors: Tensor,
        policy_loss: Tensor,
        *,
        logps: Tensor,
        entropies: Tensor,
        q: Tensor,
    ) -> dict[str, Tensor]:
        """The losses and what they are made of, under RLlib's names."""
        log_alpha = alpha.log()
        alpha_loss = -(log_alpha * (entropies + self._target_entropy)).mean()
        critic_losses = {
            f"{name}_loss": (batch["weights"] * huber(delta)).mean()
            for name, delta in zip(self.names, deltas, strict=True)
        }
        return {
            "policy_loss": policy_loss,
            **critic_losses,
            "alpha_loss": alpha_loss,
            "total_loss": policy_loss + alpha_loss + sum(critic_losses.values()),
            "alpha_value": alpha[0],
            "log_alpha_value": log_alpha[0],
            "target_entropy": self._target_entropy,
            "logps": logps.mean(),
            "qf_mean": q.mean(),
            "qf_max": q.max(),
            "qf_min": q.min(),
            "td_error_mean": errors.mean(),
            **{
                f"gradients_{name}_global_norm": norm
                for name, norm in self._norms.items()
                if norm is not None
            },
        }


class _Squashed:
    """Actions drawn from tanh-squashed Gaussians, and how they depend on the distributions' inputs."""

    def __init__(self, numbers: Tensor, head: GaussianHead | None) -> None:
        mean, raw = numbers.chunk(2, dim=-1)
        low, high = _LOG_STD_BOUNDS
        if head is not None:
            low, high = max(low, -head.clip), min(high, head.clip)
        self._size = numbers.shape[0] // 2
        self._free = ((raw >= low) & (raw <= high))[: self._size]
        log_std = raw.clamp(low, high)
        noise = torch.randn_like(mean)
        moved = log_std.exp() * noise
        before = mean + moved
        self._moved = moved[: self._size]
        self.actions = before.tanh()
        # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)), which no large x can spoil.
        squeeze = 2.0 * (_LOG_2 - before - torch.nn.functional.softplus(-2.0 * before))
        self.logp = (-0.5 * noise * noise - log_std - _HALF_LOG_TAU - squeeze).sum(dim=-1)

    def pull(self, d_actions: Tensor, d_logp: Tensor) -> Tensor:
        """The slope at the inputs of the first half of the rows."""
        actions = self.actions[: self._size]
        d_mean = d_actions * (1.0 - actions * actions) + d_logp * 2.0 * actions
        d_log_std = torch.where(self._free, d_mean * self._moved - d_logp, 0.0)
        return torch.cat([d_mean, d_log_std], dim=-1)


def _lowest(values: list[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.minimum(values[0], values[1])


def _share_of_lowest(value: Tensor, values: list[Tensor]) -> Tensor:
    """The slope of the lowest value at one of them: 1 where it is that one, shared among equals."""
    if len(values) == 1:
        return torch.ones_like(value)
    other = values[1] if value is values[0] else values[0]
    return (value < other).to(value.dtype) + 0.5 * (value == other)
