"""SAC's update (https://arxiv.org/abs/1812.05905), for Box and Discrete actions.

All losses are taken at the same weights, as RLlib does: critics, policy and temperature step together.
`critic_loss`, `actor_loss` and `alpha_loss` are the losses of the paper, each followed by its gradient in
closed form. `off_policy_networks` takes the gradients to the parameters, so that the policy's loss passes
through the critics without touching their weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rayfish.algorithm.batched.off_policy_networks import Critic, OffPolicyUpdate, Policy, huber
from rayfish.algorithm.batched.optimise import DenormalFreeOptimiser
from rayfish.algorithm.batched.replay.buffer import Batch
from rayfish.models.actions import mask_of, masked_probabilities
from rayfish.nested import map_nested

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2.0)
NAMES = ("qf", "qf_twin")
"""Of the critics' optimizers and losses."""

Gradients = tuple[list[Tensor], Tensor, tuple[Tensor, Tensor, Tensor | None], Tensor]
"""Each critic's values, their target, `actor_loss`'s arguments after alpha, and the values to log."""


@dataclass(frozen=True)
class SACSettings:
    """SAC's settings, under RLlib's names."""

    gamma: float = 0.99
    grad_clip: float | None = None
    grad_clip_by: str = "global_norm"


def critic_loss(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Mean of the importance-weighted Huber losses of a critic (eq. 5), each [B]."""
    return (weights * huber(q - target)).mean()


def critic_loss_gradient(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """The gradient of `critic_loss` at `q`."""
    return (q - target).clamp(-1.0, 1.0) * (weights / weights.shape[0])


def actor_loss(alpha: Tensor, logp: Tensor, q: Tensor, p: Tensor | None = None) -> Tensor:
    """Mean of alpha * log pi - Q under the policy (eq. 7).

    :param logp: [B] of the drawn actions; with discrete ones [B, actions] of all
    :param q: the lower one of the critics' values at those
    :param p: [B, actions] probabilities of discrete actions
    """
    cost = alpha * logp - q
    return cost.mean() if p is None else (p * cost).sum(dim=-1, keepdim=True).mean()


def actor_loss_gradient(alpha: Tensor, logp: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """The gradient of `actor_loss` at the logits of discrete actions; `SquashedSample` has that of others."""
    cost = alpha * logp - q
    return p * (cost - (p * cost).sum(dim=-1, keepdim=True)) / p.shape[0]


def alpha_loss(log_alpha: Tensor, logp: Tensor, target_entropy: Tensor) -> Tensor:
    """Mean of -log alpha * (log pi + target entropy) (eq. 18, as RLlib has it)."""
    return -(log_alpha * (logp + target_entropy)).mean()


def alpha_loss_gradient(logp: Tensor, target_entropy: Tensor) -> Tensor:
    """The gradient of `alpha_loss` at `log_alpha`."""
    return -(logp.mean() + target_entropy)


class SAC(OffPolicyUpdate):
    """Learns a policy, one or two critics and a temperature from batches of transitions.

    :param networks: the policy, the critics and their target copies
    :param log_alpha: logarithm of the temperature, a trainable tensor with one number
    :param target_entropy: what the temperature keeps the policy's entropy at
    :param optimizers: by name: "policy", "alpha", "qf" and with two critics "qf_twin"
    :param discrete: actions are categories; Box otherwise
    :param masked: observations carry an action mask
    """

    def __init__(
        self,
        networks: tuple[Policy, list[Critic], list[Critic]],
        *,
        log_alpha: Tensor,
        target_entropy: Tensor,
        optimizers: dict[str, torch.optim.Optimizer],
        discrete: bool,
        masked: bool = False,
    ) -> None:
        self._policy, self._critics, self._target_critics = networks
        self.names = NAMES[: len(self._critics)]
        parameters: dict[str, list[Any]] = {
            name: list(critic.modules.parameters())
            for name, critic in zip(self.names, self._critics, strict=True)
        }
        parameters |= {"policy": list(self._policy.modules.parameters()), "alpha": [log_alpha]}
        super().__init__(
            {name: DenormalFreeOptimiser(optimizers[name], own) for name, own in parameters.items()},
            zip(self._critics, self._target_critics, strict=True),
        )
        self._log_alpha, self._target_entropy = log_alpha, target_entropy
        self._discrete, self._masked = discrete, masked

    @torch.no_grad()
    def update(self, batch: Batch, settings: SACSettings) -> Tensor:
        """One step of all optimizers; returns the absolute TD errors, as new priorities of the batch."""
        alpha = self._log_alpha.detach().exp()
        discount = torch.pow(settings.gamma, batch["n_step"]) * ~batch["terminateds"]
        compute_gradients = self._discrete_gradients if self._discrete else self._box_gradients
        q_values, target, actor, shown_q = compute_gradients(batch, alpha, discount)
        logp, _, p = actor
        if p is not None:
            logp = (p * logp).sum(dim=-1)
        self.optimisers["alpha"].gradient.copy_(alpha_loss_gradient(logp, self._target_entropy))
        norms = self._step(settings.grad_clip, settings.grad_clip_by)
        td_errors = sum((q - target).abs() for q in q_values) / len(q_values)

        @torch.no_grad()
        def metrics() -> dict[str, Tensor]:
            log_alpha = alpha.log()
            losses = {"policy_loss": actor_loss(alpha, *actor)}
            for name, q in zip(self.names, q_values, strict=True):
                losses[f"{name}_loss"] = critic_loss(q, target, batch["weights"])
            losses["alpha_loss"] = alpha_loss(log_alpha, logp, self._target_entropy)
            critics = sum(losses[f"{name}_loss"] for name in self.names)
            return {
                **losses,
                "total_loss": losses["policy_loss"] + losses["alpha_loss"] + critics,
                "alpha_value": alpha[0],
                "log_alpha_value": log_alpha[0],
                "target_entropy": self._target_entropy,
                "logps": actor[0].mean(),
                "qf_mean": shown_q.mean(),
                "qf_max": shown_q.max(),
                "qf_min": shown_q.min(),
                "td_error_mean": td_errors.mean(),
                **norms,
            }

        self.metrics = metrics
        return td_errors

    def _box_gradients(self, batch: Batch, alpha: Tensor, discount: Tensor) -> Gradients:
        """Computes the gradients of all losses but the temperature's, for Box actions."""
        size, actions = discount.shape[0], batch["actions"].float().flatten(1)
        inputs, now, after = self._inputs(batch, size)
        sample = SquashedSample(self._policy.forward(inputs, size), self._policy.log_std_bounds)
        own, logp = sample.actions[:size], sample.logp[:size]
        next_q = _minimum([critic(after, sample.actions[size:]) for critic in self._target_critics])
        target = batch["rewards"] + discount * (next_q - alpha * sample.logp[size:])
        values = [critic.forward_twice(now, actions, own) for critic in self._critics]
        q_values, own_values = [value[:size] for value in values], [value[size:] for value in values]
        d_own = torch.zeros_like(own)
        for name, critic, q, own_q in zip(self.names, self._critics, q_values, own_values, strict=True):
            d_q = critic_loss_gradient(q, target, batch["weights"])
            gradient = torch.cat([d_q, _minimum_gradient(own_q, own_values) / -size])
            d_own += critic.backward_to_actions(gradient, own.shape[-1], self.optimisers[name])
        self._policy.backward(sample.backward(d_own, alpha / size), self.optimisers["policy"])
        q = _minimum(own_values)
        return q_values, target, (logp, q, None), q

    def _discrete_gradients(self, batch: Batch, alpha: Tensor, discount: Tensor) -> Gradients:
        """Computes the gradients of all losses but the temperature's, for Discrete actions."""
        size, actions = discount.shape[0], batch["actions"].long().unsqueeze(-1)
        inputs, now, after = self._inputs(batch, size)
        mask = mask_of(batch["both"], self._masked)
        p, log_p = masked_probabilities(self._policy.forward(inputs, size), mask)
        next_q = _minimum([critic(after) for critic in self._target_critics])
        tables = [critic.forward(now) for critic in self._critics]
        next_value = (p[size:] * (next_q - alpha * log_p[size:])).sum(dim=-1)
        target = batch["rewards"] + discount * next_value
        p, log_p = p[:size], log_p[:size]
        q_values = [table.gather(-1, actions).squeeze(-1) for table in tables]
        for name, critic, q, table in zip(self.names, self._critics, q_values, tables, strict=True):
            d_q = critic_loss_gradient(q, target, batch["weights"])
            gradient = torch.zeros_like(table).scatter_(-1, actions, d_q.unsqueeze(-1))
            critic.backward(gradient, self.optimisers[name])
        q = _minimum(tables)
        self._policy.backward(actor_loss_gradient(alpha, log_p, q, p), self.optimisers["policy"])
        return q_values, target, (log_p, q, p), tables[0]

    def _inputs(self, batch: Batch, size: int) -> tuple[Any, Any, Any]:
        """What the networks take of all 2 B observations, of the B first and of the B next ones."""
        inputs = self._policy.inputs(batch["both"])
        return (
            inputs,
            map_nested(lambda leaf: leaf[:size], inputs),
            map_nested(lambda leaf: leaf[size:], inputs),
        )


class SquashedSample:
    """Actions drawn from tanh-squashed Gaussians, and how they depend on the distributions' inputs."""

    def __init__(self, dist_inputs: Tensor, log_std_bounds: tuple[float, float]) -> None:
        mean, raw = dist_inputs.chunk(2, dim=-1)
        low, high = log_std_bounds
        self._size = dist_inputs.shape[0] // 2
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

    def backward(self, d_actions: Tensor, d_logp: Tensor) -> Tensor:
        """The gradient at the inputs of the first half of the rows."""
        actions = self.actions[: self._size]
        d_mean = d_actions * (1.0 - actions * actions) + d_logp * 2.0 * actions
        d_log_std = torch.where(self._free, d_mean * self._moved - d_logp, 0.0)
        return torch.cat([d_mean, d_log_std], dim=-1)


def _minimum(values: list[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.minimum(values[0], values[1])


def _minimum_gradient(value: Tensor, values: list[Tensor]) -> Tensor:
    """The gradient of the minimum at one of the values: 1 where it is that one, shared among equals."""
    if len(values) == 1:
        return torch.ones_like(value)
    other = values[1] if value is values[0] else values[0]
    return (value < other).to(value.dtype) + 0.5 * (value == other)
