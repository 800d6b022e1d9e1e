"""PPO's update (https://arxiv.org/abs/1707.06347) over rollouts: advantages, loss, minibatches.

`ppo_loss` is the loss of the paper, `ppo_loss_gradients` its gradient at the network's outputs in closed
form. From there the gradient goes through `fused.FusedActorCritic` where the network allows it, and through
autograd otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from rayfish.algorithm.batched import gae
from rayfish.algorithm.batched.distributions import Distribution, distribution
from rayfish.algorithm.batched.fused import fused
from rayfish.algorithm.batched.graphs import Replayed
from rayfish.algorithm.batched.optimise import FlatOptimiser
from rayfish.algorithm.batched.rollout import Rollout, Tree
from rayfish.algorithm.batched.sequences import Sequences, split
from rayfish.models.actions import mask_of
from rayfish.nested import first_leaf, map_nested

LOGP, DIST_INPUTS = "action_logp", "action_dist_inputs"
"""A rollout's extras, under RLlib's names: log probability of the action, and inputs of its distribution."""

_AT_ONCE = 16384  # rows of images or sequences that go through a network together, for memory's sake


@dataclass(frozen=True)
class PPOSettings:
    """PPO's settings, under RLlib's names.

    :param kl_coeff: weight of the divergence from the policy that acted; None leaves it out
    :param minibatch_size: environment steps of each minibatch; None for the whole batch. With memory, padding
        does not count, and a minibatch is full to within one sequence (at least `max_seq_len` steps)
    :param largest_share: environment steps of the learner that has most of them; None for a single learner.
        Several learners must take the same number of optimizer steps, whatever each has to learn from
    :param max_seq_len: steps of the longest sequence, with memory
    """

    gamma: float = 0.99
    lambda_: float = 1.0
    clip_param: float = 0.3
    vf_clip_param: float = 10.0
    vf_loss_coeff: float = 1.0
    entropy_coeff: float | Tensor = 0.0
    kl_coeff: float | Tensor | None = None
    grad_clip: float | None = None
    grad_clip_by: str = "global_norm"
    num_epochs: int = 1
    minibatch_size: int | None = None
    largest_share: int | None = None
    max_seq_len: int = 20
    shuffle: bool = True


@dataclass
class Batch:
    """Rows to learn from: [n, ...], or [sequences, length, ...] with memory.

    :param inputs: observations, or the features of a fused network
    :param weight: of each row in the loss, 0 for padding; None when all count alike
    :param state: of a recurrent network before the first row of each sequence
    """

    inputs: Tree
    mask: Tensor | None
    actions: Tensor
    logp: Tensor
    dist_inputs: Tensor
    advantages: Tensor
    value_targets: Tensor
    weight: Tensor | None = None
    state: Tree | None = None

    def __len__(self) -> int:
        return int(self.advantages.shape[0])

    def pieces(self, size: int) -> Iterator[Batch]:
        """All rows in turn, so many at a time."""
        columns = {name: value for name, value in vars(self).items() if value is not None}
        if all(isinstance(value, Tensor) for value in columns.values()):
            nothing = dict.fromkeys(vars(self).keys() - columns.keys())
            for pieces in zip(*(value.split(size) for value in columns.values()), strict=True):
                yield Batch(**dict(zip(columns, pieces, strict=True)), **nothing)
            return
        for start in range(0, len(self), size):
            yield self.rows(slice(start, start + size))

    def rows(self, index: Tensor | slice) -> Batch:
        """Some of the rows (or sequences), in the order of `index`."""
        return Batch(
            **{name: map_nested(lambda leaf: leaf[index], value) for name, value in vars(self).items()}
        )


def ppo_loss(
    dist: Distribution, dist_inputs: Tensor, values: Tensor, batch: Batch, settings: PPOSettings
) -> tuple[Tensor, dict[str, Tensor]]:
    """Clipped surrogate, clipped value error, entropy bonus (arXiv:1707.06347, eq. 9) and KL penalty (eq. 8).

    Returns the loss, and the metrics RLlib logs of it, under its names.
    """
    weight = batch.weight

    def mean(rows: Tensor) -> Tensor:
        return rows.mean() if weight is None else (rows * weight).sum() / weight.sum()

    old = batch.dist_inputs if settings.kl_coeff is not None else None
    evaluation = dist.evaluate(dist_inputs, batch.actions, old)
    ratio = (evaluation.logp - batch.logp).exp()
    clipped_ratio = ratio.clamp(1.0 - settings.clip_param, 1.0 + settings.clip_param)
    surrogate = torch.minimum(batch.advantages * ratio, batch.advantages * clipped_ratio)
    squared_error = (values - batch.value_targets).square()
    value_error = squared_error.clamp(0, settings.vf_clip_param)
    entropy = evaluation.entropy()
    loss = mean(-surrogate + settings.vf_loss_coeff * value_error - settings.entropy_coeff * entropy)
    kl = torch.zeros_like(loss)
    if settings.kl_coeff is not None and evaluation.kl is not None:
        kl = mean(evaluation.kl)
        loss = loss + settings.kl_coeff * kl
    return loss, {
        "total_loss": loss,
        "policy_loss": -mean(surrogate),
        "vf_loss": mean(value_error),
        "vf_loss_unclipped": mean(squared_error),
        "vf_explained_var": _explained_variance(values, batch),
        "entropy": mean(entropy),
        "mean_kl_loss": kl,
    }


def ppo_loss_gradients(
    dist: Distribution, dist_inputs: Tensor, values: Tensor, batch: Batch, settings: PPOSettings
) -> tuple[Tensor, Tensor]:
    """The gradients of `ppo_loss` at `dist_inputs` and `values` in closed form, faster than by autograd.

    `benchmarks/gradients.py` measures by how much.
    """
    old = batch.dist_inputs if settings.kl_coeff is not None else None
    evaluation = dist.evaluate(dist_inputs, batch.actions, old)
    weight: Tensor | float = 1.0 / batch.advantages.numel()
    if batch.weight is not None:
        weight = batch.weight / batch.weight.sum()
    ratio = (evaluation.logp - batch.logp).exp()
    unclipped = batch.advantages * ratio
    clipped = batch.advantages * ratio.clamp(1.0 - settings.clip_param, 1.0 + settings.clip_param)
    # Beyond the clip the smaller of the two is constant, and passes no gradient.
    d_logp = torch.where(unclipped <= clipped, unclipped, 0.0).mul_(-weight)
    has_entropy = isinstance(settings.entropy_coeff, Tensor) or settings.entropy_coeff != 0
    d_entropy = -settings.entropy_coeff * weight if has_entropy else 0.0
    d_kl = settings.kl_coeff * weight if settings.kl_coeff is not None else 0.0
    error = values - batch.value_targets
    scale = weight * (2.0 * settings.vf_loss_coeff)
    d_values = torch.where(error * error <= settings.vf_clip_param, error, 0.0).mul_(scale)
    return evaluation.backward(d_logp, d_entropy, d_kl), d_values


def _explained_variance(values: Tensor, batch: Batch) -> Tensor:
    """The share of the value targets' variance that the values explain; at least -1."""
    targets = batch.value_targets
    if batch.weight is not None:
        real = batch.weight > 0
        values, targets = values[real], targets[real]
    return (1.0 - (targets - values).var() / targets.var()).clamp(min=-1.0)


class PPO:
    """Learns from rollouts.

    :param net: an actor-critic from `models/`
    :param optimizer: a torch optimizer over all of its parameters
    :param average: called with the gradient before each step, to average it over several learners
    :param compiler: `torch.compile`, for networks that autograd differentiates; None leaves them as they are
    """

    def __init__(
        self,
        net: nn.Module,
        action_space: gym.Space,
        optimizer: torch.optim.Optimizer,
        *,
        average: Callable[[Tensor], None] | None = None,
        compiler: Callable[[Any], Any] | None = None,
    ) -> None:
        self.net: Any = net
        self.dist = distribution(action_space)
        self.fused = fused(net)
        """The network's hand-written passes; None where autograd differentiates it."""
        self._outputs = self._policy_and_values if compiler is None else compiler(self._policy_and_values)
        self.optimiser = FlatOptimiser(optimizer, list(net.parameters()))
        self._average = average
        self._epoch: Epoch | None = None

    def update(
        self, rollouts: Sequence[Rollout], settings: PPOSettings, on_step: Callable[[], None] = lambda: None
    ) -> dict[str, Tensor]:
        """All epochs over the rollouts, calling `on_step` after each step; returns the last metrics."""
        batch = self.batch(rollouts, settings)
        self.optimiser.attach()
        if batch.advantages.is_cuda and self.records(rollouts):
            return self._recorded(batch, settings)
        metrics: Callable[[], dict[str, Tensor]] | None = None
        for minibatch in minibatches(batch, settings):
            metrics = self.step(minibatch, settings)
            on_step()
        assert metrics is not None
        return metrics()

    def records(self, rollouts: Sequence[Rollout]) -> bool:
        """Whether the epochs over rollouts may be recorded as a CUDA graph.

        Shapes must stay the same (every entry is a step) and so must all that Python decides: one learner, a
        fused network, and Adam, whose learning rate is a tensor in the graph. Other optimizers read theirs as
        a plain number, which a graph would keep for ever.
        """
        constant = all(rollout.valid is None for rollout in rollouts)
        return constant and self.fused is not None and self._average is None and self.optimiser.is_adam

    def _recorded(self, batch: Batch, settings: PPOSettings) -> dict[str, Tensor]:
        """The epochs on a GPU, each one recorded graph over the same memory.

        What changes from update to update (coefficients, learning rate) is a tensor in it.
        """
        count, size = epoch_shape(batch, settings)
        key = (len(batch), size, replace(settings, entropy_coeff=0.0, kl_coeff=None))
        moments = self.optimiser.moments
        if self._epoch is None or self._epoch.key != key or self._epoch.moments is not moments:
            self._epoch = Epoch(self, key, batch, settings, (count, size))
        metrics: dict[str, Tensor] = {}
        self._epoch.set(settings, self.optimiser.rate)
        for _ in range(settings.num_epochs):
            shuffled = settings if count > 1 else replace(settings, shuffle=False)  # as `minibatches` does
            self._epoch.fill(batch, _order(len(batch), count * size, shuffled, batch.advantages.device))
            metrics = self._epoch.run()
        return metrics

    def step(
        self, minibatch: Batch, settings: PPOSettings, rate: Tensor | None = None
    ) -> Callable[[], dict[str, Tensor]]:
        """One step of the optimizer; returns a function that computes the metrics.

        :param rate: the learning rate as a tensor, while a graph is recorded; None for the optimizer's own
        """
        with torch.no_grad():
            if self.fused is not None:
                dist_inputs, values = self.fused.forward(minibatch.inputs, minibatch.mask)
                gradients = ppo_loss_gradients(self.dist, dist_inputs, values, minibatch, settings)
                self.fused.backward(*gradients, self.optimiser.gradients)
            else:
                with torch.enable_grad():
                    outputs = self._outputs(minibatch.inputs, minibatch.state)
                dist_inputs, values = (output.detach() for output in outputs)
                gradients = ppo_loss_gradients(self.dist, dist_inputs, values, minibatch, settings)
                self.optimiser.gradient.zero_()
                learnt = [pair for pair in zip(outputs, gradients, strict=True) if pair[0].requires_grad]
                torch.autograd.backward(*zip(*learnt, strict=True))
        if self._average is not None:
            self._average(self.optimiser.gradient)
        self.optimiser.clip(settings.grad_clip, settings.grad_clip_by)
        self.optimiser.step(rate)

        @torch.no_grad()
        def metrics() -> dict[str, Tensor]:
            return ppo_loss(self.dist, dist_inputs, values, minibatch, settings)[1]

        return metrics

    def _policy_and_values(self, inputs: Tree, state: Tree | None) -> tuple[Tensor, Tensor]:
        dist_inputs, _, reuse = self.net.policy(inputs, state)
        return dist_inputs, self.net.value(inputs, state, reuse)

    @torch.no_grad()
    def batch(self, rollouts: Sequence[Rollout], settings: PPOSettings) -> Batch:
        """Rollouts with their advantages, as rows; advantages centred and scaled over all of them."""
        longest = min(settings.max_seq_len, max(rollout.shape[0] for rollout in rollouts))
        batches = [self._rows(rollout, settings, longest) for rollout in rollouts]
        whole = batches[0] if len(batches) == 1 else _concatenated(batches)
        kept = whole.advantages if whole.weight is None else whole.advantages[whole.weight > 0]
        whole.advantages = (whole.advantages - kept.mean()) / kept.std(unbiased=False).clamp(min=1e-4)
        return whole

    def _rows(self, rollout: Rollout, settings: PPOSettings, longest: int) -> Batch:
        sequences = split(rollout, longest) if rollout.states is not None else None
        inputs, mask = rollout.obs, None
        if self.fused is not None:
            mask = mask_of(rollout.obs, self.fused.masked)
            inputs = self.fused.features(_flat(rollout.obs))
            values, last, final = self._fused_values(rollout, inputs)
        else:
            values, last, final = self._values(rollout, sequences)
        next_values = gae.following(values, last, final, done=rollout.done, final_index=rollout.final_index)
        advantages = gae.advantages(
            rollout.rewards,
            values,
            next_values,
            terminated=rollout.terminated,
            done=rollout.done,
            valid=rollout.valid,
            gamma=settings.gamma,
            lambda_=settings.lambda_,
        )
        columns = {
            "actions": rollout.actions,
            "logp": rollout.extras[LOGP],
            "dist_inputs": rollout.extras[DIST_INPUTS],
            "advantages": advantages,
            "value_targets": advantages + values,
        }
        if sequences is not None:
            padded: dict[str, Any] = {name: sequences.gather(column) for name, column in columns.items()}
            first = sequences.first(rollout.states)
            return Batch(sequences.gather(inputs), None, **padded, weight=sequences.weight, state=first)
        flat: dict[str, Any] = {name: _flat(column) for name, column in columns.items()}
        flat_inputs = inputs if self.fused is not None else _flat(inputs)
        rows = Batch(flat_inputs, None if mask is None else _flat(mask), **flat)
        if rollout.valid is None:
            return rows
        return rows.rows(rollout.valid.reshape(-1).nonzero().squeeze(-1))

    def _fused_values(self, rollout: Rollout, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        assert self.fused is not None
        steps, slots = rollout.shape
        final_obs = rollout.final_obs if rollout.final_index is not None else _flat(rollout.final_obs)
        more = [self.fused.features(rollout.last_obs), self.fused.features(final_obs)]
        values = self.fused.value(torch.cat([features, *more]))
        now, last, final = values.split([steps * slots, slots, len(more[1])])
        return (
            now.view(steps, slots),
            last,
            final if rollout.final_index is not None else final.view(steps, slots),
        )

    def _values(self, rollout: Rollout, sequences: Sequences | None) -> tuple[Tensor, Tensor, Tensor]:
        """Values of every observation, of the last ones and of the final ones."""
        if sequences is None:
            steps, slots = rollout.shape
            now = self._value_of(_flat(rollout.obs), None).view(steps, slots)
            last = self._value_of(rollout.last_obs, None)
            if rollout.final_index is None:
                return now, last, self._value_of(_flat(rollout.final_obs), None).view(steps, slots)
            return now, last, self._value_of(rollout.final_obs, None)
        padded = self._value_of(sequences.gather(rollout.obs), sequences.first(rollout.states))
        now = sequences.scatter(padded)
        last = self._value_of(_timed(rollout.last_obs), rollout.last_state)
        final = self._value_of(_timed(rollout.final_obs), rollout.final_state)
        return now, last.view(-1), final.view(-1)

    def _value_of(self, obs: Tree, state: Tree | None) -> Tensor:
        """In pieces, so that a large rollout of images needs no huge memory."""
        rows = int(first_leaf(obs).shape[0])
        if rows == 0:
            return torch.zeros(0, device=self.optimiser.weights.device)
        found = []
        for start in range(0, rows, _AT_ONCE):
            piece = slice(start, start + _AT_ONCE)
            here = [map_nested(lambda leaf, at=piece: leaf[at], tree) for tree in (obs, state)]
            found.append(self.net.value(*here))
        return torch.cat(found) if len(found) > 1 else found[0]


class Epoch:
    """One epoch over fixed memory, recorded as a CUDA graph."""

    def __init__(
        self, loop: PPO, key: Any, batch: Batch, settings: PPOSettings, shape: tuple[int, int]
    ) -> None:
        self.key, self.moments = key, loop.optimiser.moments
        self._count, self._size = shape
        rows = torch.zeros(self._count * self._size, dtype=torch.int64, device=batch.advantages.device)
        self._batch = batch.rows(rows)
        zero = torch.zeros((), device=batch.advantages.device)
        self._settings = replace(
            settings, entropy_coeff=zero, kl_coeff=None if settings.kl_coeff is None else zero.clone()
        )
        self._rate = zero.clone()
        self._loop = loop
        # The first update runs as it is: only a batch of the same shape again is worth a recording.
        self.run = Replayed(self._run, batch.advantages.device, after=settings.num_epochs)

    def set(self, settings: PPOSettings, rate: float) -> None:
        """The coefficients and the learning rate of this update."""
        self._rate.fill_(rate)
        for name in ("entropy_coeff", "kl_coeff"):
            value = getattr(settings, name)
            if value is not None:
                getattr(self._settings, name).fill_(float(value))

    def fill(self, batch: Batch, order: Tensor) -> None:
        """Copy the rows of a batch, in this order."""
        for name, mine in vars(self._batch).items():
            if mine is not None:
                map_nested(
                    lambda to, leaf: torch.index_select(leaf, 0, order, out=to), mine, getattr(batch, name)
                )

    def _run(self) -> dict[str, Tensor]:
        metrics = None
        for index in range(self._count):
            rows = slice(index * self._size, (index + 1) * self._size)
            metrics = self._loop.step(self._batch.rows(rows), self._settings, self._rate)
        assert metrics is not None
        return metrics()


def epoch_shape(batch: Batch, settings: PPOSettings) -> tuple[int, int]:
    """(minibatches of an epoch, environment steps in each); several learners get the same count.

    A rollout may have a few steps more than the batch asked for: up to a quarter of a minibatch is spread
    over the others instead of filling one more with rows of the same epoch.
    """
    steps = len(batch) if batch.weight is None else int(batch.weight.sum())
    size = settings.minibatch_size
    if size is None:
        return 1, steps
    if batch.weight is not None:  # each minibatch needs a sequence of its own
        size = max(size, settings.max_seq_len)
    most = settings.largest_share or steps
    count = max(1, math.ceil(most / size - 0.25))
    return count, min(max(size, -(-most // count)), steps)


def minibatches(batch: Batch, settings: PPOSettings) -> Iterator[Batch]:
    """All epochs' minibatches, each full: the last of an epoch is filled up with its first rows."""
    count, size = epoch_shape(batch, settings)
    for _ in range(settings.num_epochs):
        if count == 1:
            yield batch
        elif batch.weight is None:
            order = _order(len(batch), count * size, settings, batch.advantages.device)
            yield from batch.rows(order).pieces(size)
        else:
            yield from _sequence_minibatches(batch, batch.weight, settings, (count, size))


def _sequence_minibatches(
    batch: Batch, weight: Tensor, settings: PPOSettings, shape: tuple[int, int]
) -> Iterator[Batch]:
    """One epoch with memory: each sequence goes to the minibatch that its first step falls into."""
    count, size = shape
    lengths = weight.sum(dim=1).long()
    rounds = -(-count * size // int(lengths.sum()))
    order = _order(len(batch), rounds * len(batch), settings, weight.device)
    ends = lengths[order].cumsum(0)
    limits = torch.arange(1, count + 1, device=weight.device) * size
    bounds = [0, *torch.searchsorted(ends - lengths[order], limits).tolist()]
    shuffled = batch.rows(order[: bounds[-1]])
    for first, last in pairwise(bounds):
        yield shuffled.rows(slice(first, last))


def _order(rows: int, wanted: int, settings: PPOSettings, device: torch.device) -> Tensor:
    order = torch.randperm(rows, device=device) if settings.shuffle else torch.arange(rows, device=device)
    if wanted > rows:
        order = order.repeat(-(-wanted // rows))
    return order[:wanted]


def _concatenated(batches: Sequence[Batch]) -> Batch:
    columns = zip(*(vars(batch).values() for batch in batches), strict=True)
    return Batch(*(map_nested(lambda *leaves: torch.cat(leaves), *trees) for trees in columns))


def _flat(tree: Tree) -> Tree:
    return map_nested(lambda leaf: leaf.flatten(0, 1), tree)


def _timed(tree: Tree) -> Tree:
    return map_nested(lambda leaf: leaf.unsqueeze(1), tree)
