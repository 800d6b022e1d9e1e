"""DQN's update with double Q, dueling, atoms and importance weights (https://arxiv.org/abs/1710.02298).

`dqn_loss` is the loss, `dqn_loss_gradient` its gradient at the Q values (or logits of atoms) of the chosen
actions in closed form; `off_policy_networks` takes the gradient from there to the parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rayfish.algorithm.batched.off_policy_networks import OffPolicyUpdate, QFunction, huber
from rayfish.algorithm.batched.optimise import DenormalFreeOptimiser
from rayfish.algorithm.batched.replay.buffer import Batch
from rayfish.models.actions import MASKED, mask_values
from rayfish.models.networks import q_values
from rayfish.models.spaces import MASK_KEY
from rayfish.nested import map_nested


@dataclass(frozen=True)
class DQNSettings:
    """DQN's settings, under RLlib's names.

    :param td_error_loss_fn: "huber" or "mse"; atoms have a loss of their own
    """

    gamma: float = 0.99
    double_q: bool = True
    num_atoms: int = 1
    v_min: float = -10.0
    v_max: float = 10.0
    td_error_loss_fn: str = "huber"
    grad_clip: float | None = None
    grad_clip_by: str = "global_norm"


def dqn_loss(chosen: Tensor, target: Tensor, weights: Tensor, settings: DQNSettings) -> Tensor:
    """Mean of the importance-weighted TD losses: Huber or squared; with atoms the cross entropy.

    :param chosen: [B] Q values of the actions taken; with atoms [B, atoms] their logits
    :param target: [B] TD targets; with atoms [B, atoms] the projected distribution of the next state
    :param weights: [B] importance weights
    """
    if settings.num_atoms > 1:
        losses = -(target * chosen.log_softmax(dim=-1)).sum(dim=-1)
    elif settings.td_error_loss_fn == "huber":
        losses = huber(chosen - target)
    else:
        losses = (chosen - target).square()
    return (weights * losses).mean()


def dqn_loss_gradient(
    chosen: Tensor, target: Tensor, weights: Tensor, settings: DQNSettings
) -> tuple[Tensor, Tensor]:
    """([B] absolute TD errors, the gradient of `dqn_loss` at `chosen`: [B, 1], or [B, atoms])."""
    if settings.num_atoms > 1:
        log_p = chosen.log_softmax(dim=-1)
        td_errors = -(target * log_p).sum(dim=-1)
        gradient = log_p.exp() * target.sum(dim=-1, keepdim=True) - target
    else:
        error = chosen - target
        td_errors = error.abs()
        squared = settings.td_error_loss_fn != "huber"
        gradient = (2.0 * error if squared else error.clamp(-1.0, 1.0)).unsqueeze(-1)
    return td_errors, gradient * (weights / weights.shape[0]).unsqueeze(-1)


class DQN(OffPolicyUpdate):
    """Learns a Q network from batches of transitions.

    :param optimizer: over all parameters of `online`
    :param masked: observations carry an action mask
    """

    def __init__(
        self, online: QFunction, target: QFunction, optimizer: torch.optim.Optimizer, *, masked: bool = False
    ) -> None:
        self.optimiser = DenormalFreeOptimiser(optimizer, list(online.modules.parameters()))
        super().__init__({"default_optimizer": self.optimiser}, [(online, target)])
        self._online, self._target = online, target
        self._masked = masked

    @torch.no_grad()
    def update(self, batch: Batch, settings: DQNSettings) -> Tensor:
        """One step of the optimizer; returns the absolute TD errors, as new priorities of the batch."""
        size = batch["rewards"].shape[0]
        inputs = self._online.inputs(batch["both"])
        next_inputs = map_nested(lambda leaf: leaf[size:], inputs)
        inputs = inputs if settings.double_q else map_nested(lambda leaf: leaf[:size], inputs)
        atoms, bounds = settings.num_atoms, (settings.v_min, settings.v_max)
        # The best of several actions is that with the highest advantage: values are the same for all.
        advantages, values = self._online.forward(inputs, size, size if atoms == 1 else 2 * size)
        a_next, v_next = self._target(next_inputs)
        q_next, _, p_next = q_values(a_next, v_next, atoms, bounds)
        q_next = self._allowed(q_next, batch["both"], size)
        if atoms == 1:
            first = None if values is None else values[:size]
            q, logits, probabilities = q_values(advantages[:size], first, atoms, bounds)
            rank = advantages[size:]
        else:
            q, logits, probabilities = q_values(advantages, values, atoms, bounds)
            q, rank = q[:size], q[size:]
        q, rank = self._allowed(q, batch["both"], 0), self._allowed(rank, batch["both"], size)
        actions = batch["actions"].long().unsqueeze(-1)
        selected = q.gather(-1, actions).squeeze(-1)
        best = (rank if settings.double_q else q_next).argmax(dim=-1, keepdim=True)
        discount = torch.pow(settings.gamma, batch["n_step"]) * ~batch["terminateds"]
        if atoms > 1:
            assert logits is not None and p_next is not None
            chosen = _of_action(logits[:size], actions)
            target = _project(_of_action(p_next, best), batch["rewards"], discount, settings)
        else:
            chosen = selected
            target = batch["rewards"] + discount * q_next.gather(-1, best).squeeze(-1)
        td_errors, d_chosen = dqn_loss_gradient(chosen, target, batch["weights"], settings)
        if self._masked and atoms == 1:
            d_chosen = torch.where(selected.unsqueeze(-1) <= MASKED, 0.0, d_chosen)
        d_advantages = _spread(d_chosen, actions, advantages.shape[-1])
        if values is not None:  # the mean over the actions was taken off
            d_advantages -= d_advantages.mean(dim=1, keepdim=True)
        self._online.backward(d_advantages.flatten(1), None if values is None else d_chosen, self.optimiser)
        norms = self._step(settings.grad_clip, settings.grad_clip_by)

        @torch.no_grad()
        def metrics() -> dict[str, Tensor]:
            loss = dqn_loss(chosen, target, batch["weights"], settings)
            return {**_metrics(loss, td_errors, selected, probabilities, settings), **norms}

        self.metrics = metrics
        return td_errors

    def _allowed(self, q: Tensor, both: Any, start: int) -> Tensor:
        if not self._masked:
            return q
        return mask_values(q, both[MASK_KEY][start : start + q.shape[0]])


def _of_action(table: Tensor, actions: Tensor) -> Tensor:
    """[B, actions, atoms] at one action each: [B, atoms]."""
    index = actions.unsqueeze(-1).expand(-1, 1, table.shape[-1])
    return table.gather(1, index).squeeze(1)


def _spread(d_chosen: Tensor, actions: Tensor, outputs: int) -> Tensor:
    """[B, actions, atoms] the gradient at all Q values or logits, from that at the chosen actions'."""
    rows, atoms = d_chosen.shape
    gradient = d_chosen.new_zeros(rows, outputs // atoms, atoms)
    index = actions.unsqueeze(-1).expand(-1, 1, atoms)
    return gradient.scatter_(1, index, d_chosen.unsqueeze(1))


def _project(p_next: Tensor, rewards: Tensor, discount: Tensor, settings: DQNSettings) -> Tensor:
    """The next distribution, shifted and shrunk by the transition, on the atoms of this one."""
    atoms, low, high = settings.num_atoms, settings.v_min, settings.v_max
    support = torch.linspace(low, high, atoms, device=p_next.device)
    moved = (rewards.unsqueeze(-1) + discount.unsqueeze(-1) * support).clamp(low, high)
    place = (moved - low) / ((high - low) / (atoms - 1.0))
    # Rounding may put the last value beyond the last atom.
    below, above = place.floor().clamp(0, atoms - 1), place.ceil().clamp(0, atoms - 1)
    onto_one = ((above - below) < 0.5).to(p_next.dtype)
    target = torch.zeros_like(p_next)
    target.scatter_add_(1, below.long(), p_next * (above - place + onto_one))
    target.scatter_add_(1, above.long(), p_next * (place - below))
    return target


def _metrics(
    loss: Tensor,
    td_errors: Tensor,
    selected: Tensor,
    probabilities: Tensor | None,
    settings: DQNSettings,
) -> dict[str, Tensor]:
    """The loss and figures about it, under RLlib's names."""
    metrics = {
        "qf_loss": loss,
        "total_loss": loss,
        "qf_mean": selected.mean(),
        "qf_max": selected.max(),
        "qf_min": selected.min(),
        "td_error_mean": td_errors.mean(),
    }
    if probabilities is not None:
        mean = probabilities.mean(dim=0)
        support = torch.linspace(settings.v_min, settings.v_max, settings.num_atoms, device=mean.device)
        apart = mean.diff(dim=0).abs()
        metrics |= {
            "atoms": support.mean(),
            "expectations_abs_diff": (mean * support).sum(dim=1).diff().mean(dim=0).abs().mean(),
            "dist_total_variation_dist": 0.5 * apart.sum(),
            "dist_max_abs_distance": apart.max(),
            "action_dist_mean_entropy": (mean * mean.log()).sum(dim=1).mean(),
        }
    return metrics
