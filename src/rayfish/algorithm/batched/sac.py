"""SAC's update (https://arxiv.org/abs/1812.05905), for Box and Discrete actions.

All losses are taken at the same weights, as RLlib does: critics, policy and temperature step together.
`critic_loss`, `actor_loss` and `alpha_loss` are the losses of the paper; beside each stands its gradient in
closed form. `off_policy_networks` takes the gradients to the parameters, so that the policy's loss passes
through the critics without touching their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rayfish.algorithm.batched.off_policy_networks import (
    FusedPolicy,
    Observations,
    huber,
    sac_networks,
    update_target,
    weights_of,
)
from rayfish.algorithm.batched.optimise import DenormalFreeOptimiser
from rayfish.algorithm.batched.replay.buffer import Batch
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
class Network:
    """A network: an encoder from `models/` and its head."""

    encoder: nn.Module
    head: nn.Module

    def parameters(self) -> list[nn.Parameter]:
        """Of both."""
        return [*self.encoder.parameters(), *self.head.parameters()]


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
    """The temperature's: -log alpha * (log pi + target entropy) (eq. 18, as RLlib has it), its mean."""
    return -(log_alpha * (logp + target_entropy)).mean()


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
        policy: Network,
        critics: Sequence[tuple[Network, Network]],
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
            name: DenormalFreeOptimiser(optimizers[name], parameters[name])
            for name in (*self.names, "policy", "alpha")
        }
        self._policy, self._critics, self._target_critics = sac_networks(
            (policy.encoder, policy.head),
            [(main.encoder, main.head) for main, _ in critics],
            [(target.encoder, target.head) for _, target in critics],
        )
        self._mains = weights_of(module for main, _ in critics for module in (main.encoder, main.head))
        self._targets = weights_of(
            module for _, target in critics for module in (target.encoder, target.head)
        )
        self._log_alpha, self._target_entropy = log_alpha, target_entropy
        self._head = policy.head if isinstance(policy.head, GaussianHead) else None
        self._discrete, self._masked, self._average = discrete, masked, average
        self.metrics: Callable[[], dict[str, Tensor]] | None = None
        """The last batch's losses and figures about them; to be called before the next update."""

    def attach(self) -> None:
        """Before a series of updates: take over what was loaded into the optimizers since."""
        for optimiser in self.optimisers.values():
            optimiser.attach()

    def update_target(self, tau: float) -> None:
        """Moves the target critics towards the current ones."""
        update_target(self._mains, self._targets, tau)

    @torch.no_grad()
    def update(self, batch: Batch, settings: SACSettings) -> Tensor:
        """One step of all optimizers; gives the absolute TD errors, as new priorities of the batch."""
        size = batch["rewards"].shape[0]
        is_fused = isinstance(self._policy, FusedPolicy)
        features = self._policy.encoder.features(batch["both"]) if is_fused else None
        obs = Observations(batch["both"], features, size)
        alpha = self._log_alpha.detach().exp()
        discount = torch.pow(settings.gamma, batch["n_step"]) * ~batch["terminateds"]
        compute_gradients = self._discrete_gradients if self._discrete else self._box_gradients
        td_errors = compute_gradients(batch, obs, alpha, discount)
        self._norms = {}
        for name, optimiser in self.optimisers.items():
            if self._average is not None:
                self._average(optimiser.gradient)
            self._norms[name] = optimiser.clip(settings.grad_clip or None, settings.grad_clip_by)
            optimiser.step()
        return td_errors

    def _box_gradients(self, batch: Batch, obs: Observations, alpha: Tensor, discount: Tensor) -> Tensor:
        """Gradients of all losses for Box actions."""
        size, actions = obs.size, batch["actions"].float().flatten(1)
        sample = SquashedSample(self._policy.dist_inputs(obs), self._head)
        own, logp = sample.actions[:size], sample.logp[:size]
        next_q = _minimum([c.next_values(obs, sample.actions[size:]) for c in self._target_critics])
        target = batch["rewards"] + discount * (next_q - alpha * sample.logp[size:])
        values = [critic.values(obs, actions, own) for critic in self._critics]
        q_values, own_values = [value[:size] for value in values], [value[size:] for value in values]
        d_own = torch.zeros_like(own)
        for name, critic, q, own_q in zip(self.names, self._critics, q_values, own_values, strict=True):
            d_q = critic_loss_gradient(q, target, batch["weights"])
            gradient = torch.cat([d_q, _minimum_gradient(own_q, own_values) / -size])
            d_own += critic.backward_to_actions(gradient, own.shape[-1], self.optimisers[name])
        self._policy.backward(sample.backward(d_own, alpha / size), self.optimisers["policy"])
        self._alpha_gradient(logp)
        q = _minimum(own_values)
        return self._finish(batch, q_values, target, alpha, policy=(logp, q, None), logp=logp, q=q)

    def _discrete_gradients(self, batch: Batch, obs: Observations, alpha: Tensor, discount: Tensor) -> Tensor:
        """Gradients of all losses for Discrete actions."""
        size, actions = obs.size, batch["actions"].long().unsqueeze(-1)
        p, log_p = self._probabilities(self._policy.dist_inputs(obs), batch["both"])
        next_q = _minimum([critic.next_table(obs) for critic in self._target_critics])
        tables = [critic.table(obs) for critic in self._critics]
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
        entropies = (p * log_p).sum(dim=-1)
        self._alpha_gradient(entropies)
        return self._finish(batch, q_values, target, alpha, policy=(log_p, q, p), logp=entropies, q=tables[0])

    def _probabilities(self, logits: Tensor, both: Any) -> tuple[Tensor, Tensor]:
        """(probabilities, their logarithms) of every action; both 0 where it is forbidden."""
        if not self._masked:
            log_p = logits.log_softmax(dim=-1)
            return log_p.exp(), log_p
        mask = both[MASK_KEY]
        log_p = mask_logits(logits, mask).log_softmax(dim=-1)
        return log_p.exp(), torch.where(mask > 0, log_p, 0.0)

    def _alpha_gradient(self, logp: Tensor) -> None:
        """Writes the gradient of `alpha_loss` at the logarithm of the temperature."""
        torch.neg((logp.mean() + self._target_entropy).view(1), out=self.optimisers["alpha"].gradient)

    def _finish(
        self,
        batch: Batch,
        q_values: list[Tensor],
        target: Tensor,
        alpha: Tensor,
        *,
        policy: tuple[Tensor, Tensor, Tensor | None],
        logp: Tensor,
        q: Tensor,
    ) -> Tensor:
        """Sets `metrics`, and gives the absolute TD errors.

        :param policy: arguments of `actor_loss` besides alpha
        :param logp: argument of `alpha_loss`
        :param q: what is logged of the critics
        """
        td_errors = sum((value - target).abs() for value in q_values) / len(q_values)
        assert isinstance(td_errors, Tensor)

        @torch.no_grad()
        def metrics() -> dict[str, Tensor]:
            log_alpha = alpha.log()
            losses = {"policy_loss": actor_loss(alpha, *policy)}
            for name, value in zip(self.names, q_values, strict=True):
                losses[f"{name}_loss"] = critic_loss(value, target, batch["weights"])
            losses["alpha_loss"] = alpha_loss(log_alpha, logp, self._target_entropy)
            critics = sum(losses[f"{name}_loss"] for name in self.names)
            norms = {f"gradients_{name}_global_norm": norm for name, norm in self._norms.items()}
            return {
                **losses,
                "total_loss": losses["policy_loss"] + losses["alpha_loss"] + critics,
                "alpha_value": alpha[0],
                "log_alpha_value": log_alpha[0],
                "target_entropy": self._target_entropy,
                "logps": policy[0].mean(),
                "qf_mean": q.mean(),
                "qf_max": q.max(),
                "qf_min": q.min(),
                "td_error_mean": td_errors.mean(),
                **{name: norm for name, norm in norms.items() if norm is not None},
            }

        self.metrics = metrics
        return td_errors


class SquashedSample:
    """Actions drawn from tanh-squashed Gaussians, and how they depend on the distributions' inputs."""

    def __init__(self, dist_inputs: Tensor, head: GaussianHead | None) -> None:
        mean, raw = dist_inputs.chunk(2, dim=-1)
        low, high = _LOG_STD_BOUNDS
        if head is not None:
            low, high = max(low, -head.clip), min(high, head.clip)
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
