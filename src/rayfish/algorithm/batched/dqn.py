"""DQN's update with double Q, dueling, atoms and importance weights (https://arxiv.org/abs/1710.02298).

The loss is written as its gradient at the network's outputs; `towers` takes it from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rayfish.algorithm.batched.replay.buffer import Batch
from rayfish.algorithm.batched.towers import TidyOptimiser, blend, huber, limit, q_function, weights_of
from rayfish.models.masking import MASKED, mask_values
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


@dataclass(frozen=True)
class QParts:
    """A Q network by its parts.

    :param vf: the value stream of a dueling network; None without
    """

    encoder: nn.Module
    af: nn.Module
    vf: nn.Module | None

    def modules(self) -> list[nn.Module]:
        """All of them."""
        return [part for part in (self.encoder, self.af, self.vf) if part is not None]


class DQN:
    """Learns a Q network from batches of transitions.

    :param optimizer: over all parameters of `online`
    :param masked: observations carry an action mask
    :param average: called with the gradient before each step, to average it over several learners
    """

    def __init__(
        self,
        online: QParts,
        target: QParts,
        optimizer: torch.optim.Optimizer,
        *,
        masked: bool = False,
        average: Callable[[Tensor], None] | None = None,
    ) -> None:
        self.optimiser = TidyOptimiser(optimizer, [p for part in online.modules() for p in part.parameters()])
        self._online = q_function(online.encoder, online.af, online.vf)
        self._target = q_function(target.encoder, target.af, target.vf)
        self._mains, self._targets = weights_of(online.modules()), weights_of(target.modules())
        self._masked = masked
        self._average = average
        self.parts: Callable[[], dict[str, Tensor]] | None = None
        """The last batch's loss and its parts; to be called before the next update."""

    def attach(self) -> None:
        """Before a series of updates: take over what was loaded into the optimizer since."""
        self.optimiser.attach()

    def follow(self, tau: float) -> None:
        """Moves the target network towards the current one."""
        blend(self._mains, self._targets, tau)

    @torch.no_grad()
    def update(self, batch: Batch, settings: DQNSettings) -> Tensor:
        """One step of the optimizer; gives the absolute errors, as new priorities of the batch."""
        size = batch["rewards"].shape[0]
        seen = self._online.see(batch["both"])
        then = map_nested(lambda leaf: leaf[size:], seen)
        now = seen if settings.double_q else map_nested(lambda leaf: leaf[:size], seen)
        atoms, bounds = settings.num_atoms, (settings.v_min, settings.v_max)
        # The best of several actions is that with the highest advantage: values are the same for all.
        advantages, values = self._online.pair(now, size, size if atoms == 1 else 2 * size)
        a_next, v_next = self._target(then)
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
        if settings.num_atoms > 1:
            assert logits is not None and p_next is not None
            chosen = _of_action(logits[:size], actions)
            target = _project(_of_action(p_next, best), batch["rewards"], discount, settings)
            errors, d_chosen = _cross_entropy(chosen, target)
            losses = errors
        else:
            target = batch["rewards"] + discount * q_next.gather(-1, best).squeeze(-1)
            delta = selected - target
            errors = delta.abs()
            squared = settings.td_error_loss_fn != "huber"
            d_chosen = (2.0 * delta if squared else delta.clamp(-1.0, 1.0)).unsqueeze(-1)
            losses = delta
        d_chosen *= (batch["weights"] / size).unsqueeze(-1)
        if self._masked and settings.num_atoms == 1:
            d_chosen = torch.where(selected.unsqueeze(-1) <= MASKED, 0.0, d_chosen)
        d_advantages = _spread(d_chosen, actions, advantages.shape[-1])
        if values is not None:  # the mean over the actions was taken off
            d_advantages -= d_advantages.mean(dim=1, keepdim=True)
        self._online.learn(d_advantages.flatten(1), None if values is None else d_chosen, self.optimiser)
        if self._average is not None:
            self._average(self.optimiser.gradient)
        norm = limit(self.optimiser, settings.grad_clip, settings.grad_clip_by)
        self.optimiser.step()
        self.parts = lambda: _parts(
            losses, errors, selected, batch["weights"], norm, settings=settings, probabilities=probabilities
        )
        return errors

    def _allowed(self, q: Tensor, both: Any, start: int) -> Tensor:
        if not self._masked:
            return q
        return mask_values(q, both[MASK_KEY][start : start + q.shape[0]])


def _of_action(table: Tensor, actions: Tensor) -> Tensor:
    """[B, actions, atoms] at one action each: [B, atoms]."""
    index = actions.unsqueeze(-1).expand(-1, 1, table.shape[-1])
    return table.gather(1, index).squeeze(1)


def _spread(d_chosen: Tensor, actions: Tensor, outputs: int) -> Tensor:
    """[B, actions, atoms] the slope at all Q values or logits, from that at the chosen actions'."""
    rows, atoms = d_chosen.shape
    slope = d_chosen.new_zeros(rows, outputs // atoms, atoms)
    index = actions.unsqueeze(-1).expand(-1, 1, atoms)
    return slope.scatter_(1, index, d_chosen.unsqueeze(1))


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


def _cross_entropy(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(cross entropy, its slope at the logits)."""
    log_p = logits.log_softmax(dim=-1)
    return -(target * log_p).sum(dim=-1), log_p.exp() * target.sum(dim=-1, keepdim=True) - target


@torch.no_grad()
def _parts(
    losses: Tensor,
    errors: Tensor,
    selected: Tensor,
    weights: Tensor,
    norm: Tensor | None,
    *,
    settings: DQNSettings,
    probabilities: Tensor | None,
) -> dict[str, Tensor]:
    """The loss and what it is made of, under RLlib's names."""
    if settings.num_atoms == 1:
        losses = huber(losses) if settings.td_error_loss_fn == "huber" else losses * losses
    loss = (weights * losses).mean()
    parts = {
        "qf_loss": loss,
        "total_loss": loss,
        "qf_mean": selected.mean(),
        "qf_max": selected.max(),
        "qf_min": selected.min(),
        "td_error_mean": errors.mean(),
    }
    if norm is not None:
        parts["gradients_default_optimizer_global_norm"] = norm
    if probabilities is not None:
        mean = probabilities.mean(dim=0)
        support = torch.linspace(settings.v_min, settings.v_max, settings.num_atoms, device=mean.device)
        apart = mean.diff(dim=0).abs()
        parts |= {
            "atoms": support.mean(),
            "expectations_abs_diff": (mean * support).sum(dim=1).diff().mean(dim=0).abs().mean(),
            "dist_total_variation_dist": 0.5 * apart.sum(),
            "dist_max_abs_distance": apart.max(),
            "action_dist_mean_entropy": (mean * mean.log()).sum(dim=1).mean(),
        }
    return parts
