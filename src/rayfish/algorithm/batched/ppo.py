"""PPO's update (https://arxiv.org/abs/1707.06347) over rollouts: advantages, loss, minibatches.

The loss is written once, as its gradient at the network's outputs in closed form (`slopes`). Below
that point the gradient goes through `fused.FusedActorCritic` where the network allows it, and through
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
from rayfish.algorithm.batched.distributions import Distribution, Terms, distribution
from rayfish.algorithm.batched.fused import FusedActorCritic, fused, mask_of
from rayfish.algorithm.batched.graphs import Replayed
from rayfish.algorithm.batched.optimise import FlatOptimiser
from rayfish.algorithm.batched.rollout import Rollout, Tree
from rayfish.algorithm.batched.sequences import Sequences, split
from rayfish.nested import first_leaf, map_nested

LOGP, NUMBERS = "logp", "numbers"
"""Names of a rollout's extras: log probability of the action, and the numbers of its distribution."""

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
    numbers: Tensor
    advantages: Tensor
    targets: Tensor
    weight: Tensor | None = None
    state: Tree | None = None

    def __len__(self) -> int:
        return int(self.advantages.shape[0])

    def pieces(self, size: int) -> Iterator[Batch]:
        """All rows in turn, so many at a time."""
        columns = {name: value for name, value in vars(self).items() if value is not None}
        if all(isinstance(value, Tensor) for value in columns.values()):
            nothing = dict.fromkeys(vars(self).keys() - columns.keys())
            for parts in zip(*(value.split(size) for value in columns.values()), strict=True):
                yield Batch(**dict(zip(columns, parts, strict=True)), **nothing)
            return
        for start in range(0, len(self), size):
            yield self.rows(slice(start, start + size))

    def rows(self, index: Tensor | slice) -> Batch:
        """Some of the rows (or sequences), in the order of `index`."""
        return Batch(
            **{
                name: None if value is None else map_nested(lambda leaf: leaf[index], value)
                for name, value in vars(self).items()
            }
        )


def slopes(
    dist: Distribution, numbers: Tensor, values: Tensor, batch: Batch, settings: PPOSettings
) -> tuple[Tensor, Tensor, Callable[[], dict[str, Tensor]]]:
    """The gradients of PPO's loss at a network's outputs, and a function for the loss and its parts."""
    terms = dist.terms(numbers, batch.actions, batch.numbers if settings.kl_coeff is not None else None)
    weight: Tensor | float = 1.0 / batch.advantages.numel()
    if batch.weight is not None:
        weight = batch.weight / batch.weight.sum()
    ratio = (terms.logp - batch.logp).exp()
    gain = batch.advantages * ratio
    bounded = batch.advantages * ratio.clamp(1.0 - settings.clip_param, 1.0 + settings.clip_param)
    # Beyond the clip the smaller of the two is constant, and passes no gradient.
    d_logp = torch.where(gain <= bounded, gain, 0.0).mul_(-weight)
    has_entropy = isinstance(settings.entropy_coeff, Tensor) or settings.entropy_coeff != 0
    d_entropy = -settings.entropy_coeff * weight if has_entropy else 0.0
    d_kl = settings.kl_coeff * weight if settings.kl_coeff is not None else 0.0
    off = values - batch.targets
    square = off * off
    scale = weight * (2.0 * settings.vf_loss_coeff)
    d_values = torch.where(square <= settings.vf_clip_param, off, 0.0).mul_(scale)

    def parts() -> dict[str, Tensor]:
        return _parts(torch.minimum(gain, bounded), square, terms, values, batch, settings=settings)

    return terms.pull(d_logp, d_entropy, d_kl), d_values, parts


def _parts(
    surrogate: Tensor, square: Tensor, terms: Terms, values: Tensor, batch: Batch, *, settings: PPOSettings
) -> dict[str, Tensor]:
    """The loss and what it is made of, under RLlib's names."""
    weight = batch.weight

    def mean(rows: Tensor) -> Tensor:
        return rows.mean() if weight is None else (rows * weight).sum() / weight.sum()

    clipped = square.clamp(0, settings.vf_clip_param)
    total = mean(-surrogate + settings.vf_loss_coeff * clipped - settings.entropy_coeff * terms.entropy)
    divergence = mean(terms.kl) if terms.kl is not None else torch.zeros_like(total)
    if settings.kl_coeff is not None:
        total = total + settings.kl_coeff * divergence
    targets = batch.targets if weight is None else batch.targets[weight > 0]
    left = targets - (values if weight is None else values[weight > 0])
    explained = 1.0 - left.var() / targets.var()
    return {
        "total_loss": total,
        "policy_loss": -mean(surrogate),
        "vf_loss": mean(clipped),
        "vf_loss_unclipped": mean(square),
        "vf_explained_var": explained.clamp(min=-1.0),
        "entropy": mean(terms.entropy),
        "mean_kl_loss": divergence,
    }


class Differentiated:
    """The passes of a network that autograd differentiates, under the interface of the fused one."""

    by_autograd = True

    def __init__(self, net: Any, compiler: Callable[[Any], Any] | None = None) -> None:
        self.net = net
        self._pass = self._outputs if compiler is None else compiler(self._outputs)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(numbers, values)."""
        self._out = numbers, values = self._pass(batch.inputs, batch.state)
        return numbers.detach(), values.detach()

    def _outputs(self, inputs: Tree, state: Tree | None) -> tuple[Tensor, Tensor]:
        numbers, _, reuse = self.net.policy(inputs, state)
        return numbers, self.net.value(inputs, state, reuse)

    def backward(self, d_numbers: Tensor, d_values: Tensor, optimiser: FlatOptimiser) -> None:
        """Adds up the gradients of all parameters."""
        optimiser.gradient.zero_()
        pairs = [
            (out, slope)
            for out, slope in zip(self._out, (d_numbers, d_values), strict=True)
            if out.requires_grad
        ]
        torch.autograd.backward([out for out, _ in pairs], [slope for _, slope in pairs])


class WrittenOut:
    """The passes of a fused network."""

    by_autograd = False

    def __init__(self, plain: FusedActorCritic) -> None:
        self.plain = plain

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(numbers, values)."""
        return self.plain.forward(batch.inputs, batch.mask)

    def backward(self, d_numbers: Tensor, d_values: Tensor, optimiser: FlatOptimiser) -> None:
        """Writes the gradients of all parameters."""
        self.plain.backward(d_numbers, d_values, optimiser.gradients)


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
        self.plain = fused(net)
        self.passes: Differentiated | WrittenOut = (
            WrittenOut(self.plain) if self.plain is not None else Differentiated(net, compiler)
        )
        self.optimiser = FlatOptimiser(optimizer, list(net.parameters()))
        self._average = average
        self._epoch: Epoch | None = None

    def update(
        self, rollouts: Sequence[Rollout], settings: PPOSettings, tick: Callable[[], None] = lambda: None
    ) -> dict[str, Tensor]:
        """All epochs over the rollouts; gives the last minibatch's loss and its parts.

        :param tick: called after each step
        """
        batch = self.batch(rollouts, settings)
        self.optimiser.attach()
        if batch.advantages.is_cuda and self.records(rollouts):
            return self._recorded(batch, settings)
        parts: Callable[[], dict[str, Tensor]] | None = None
        for minibatch in minibatches(batch, settings):
            parts = self.step(minibatch, settings)
            tick()
        assert parts is not None
        return parts()

    def records(self, rollouts: Sequence[Rollout]) -> bool:
        """Whether the epochs over rollouts may be recorded as a CUDA graph.

        Shapes must stay the same (every entry is a step) and so must all that Python decides: one learner, a
        fused network, and Adam, whose learning rate is a tensor in the graph. Other optimizers read theirs as
        a plain number, which a graph would keep for ever.
        """
        constant = all(rollout.valid is None for rollout in rollouts)
        return constant and self.plain is not None and self._average is None and self.optimiser.is_adam

    def _recorded(self, batch: Batch, settings: PPOSettings) -> dict[str, Tensor]:
        """The epochs on a GPU, each one recorded graph over the same memory.

        Numbers that change from update to update (coefficients, learning rate) are tensors in it.
        """
        count, size = epoch_shape(batch, settings)
        key = (len(batch), size, replace(settings, entropy_coeff=0.0, kl_coeff=None))
        moments = self.optimiser.moments
        if self._epoch is None or self._epoch.key != key or self._epoch.moments is not moments:
            self._epoch = Epoch(self, key, batch, settings, (count, size))
        parts: dict[str, Tensor] = {}
        self._epoch.set(settings, self.optimiser.rate)
        for _ in range(settings.num_epochs):
            shuffled = settings if count > 1 else replace(settings, shuffle=False)  # as `minibatches` does
            self._epoch.fill(batch, _order(len(batch), count * size, shuffled, batch.advantages.device))
            parts = self._epoch.run()
        return parts

    def step(
        self, minibatch: Batch, settings: PPOSettings, rate: Tensor | None = None
    ) -> Callable[[], dict[str, Tensor]]:
        """One step of the optimizer; gives a function for the loss and its parts.

        :param rate: the learning rate as a tensor, while a graph is recorded; None for the optimizer's own
        """
        with torch.set_grad_enabled(self.passes.by_autograd):
            numbers, values = self.passes.forward(minibatch)
        with torch.no_grad():
            d_numbers, d_values, parts = slopes(self.dist, numbers, values, minibatch, settings)
            self.passes.backward(d_numbers, d_values, self.optimiser)
        if self._average is not None:
            self._average(self.optimiser.gradient)
        self.optimiser.clip(settings.grad_clip, settings.grad_clip_by)
        self.optimiser.step(rate)
        return parts

    @torch.no_grad()
    def batch(self, rollouts: Sequence[Rollout], settings: PPOSettings) -> Batch:
        """Rollouts with their advantages, as rows; advantages centred and scaled over all of them."""
        longest = min(settings.max_seq_len, max(rollout.shape[0] for rollout in rollouts))
        parts = [self._rows(rollout, settings, longest) for rollout in rollouts]
        whole = parts[0] if len(parts) == 1 else _joined(parts)
        kept = whole.advantages if whole.weight is None else whole.advantages[whole.weight > 0]
        whole.advantages = (whole.advantages - kept.mean()) / kept.std(unbiased=False).clamp(min=1e-4)
        return whole

    def _rows(self, rollout: Rollout, settings: PPOSettings, longest: int) -> Batch:
        sequences = split(rollout, longest) if rollout.states is not None else None
        inputs, mask = rollout.obs, None
        if self.plain is not None:
            mask = mask_of(rollout.obs, self.plain.masked)
            inputs = self.plain.features(_flat(rollout.obs))
            values, last, final = self._plain_values(rollout, inputs)
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
        targets = advantages + values
        columns = {
            "actions": rollout.actions,
            "logp": rollout.extras[LOGP],
            "numbers": rollout.extras[NUMBERS],
            "advantages": advantages,
            "targets": targets,
        }
        if sequences is not None:
            padded: dict[str, Any] = {name: sequences.gather(column) for name, column in columns.items()}
            first = sequences.first(rollout.states)
            return Batch(sequences.gather(inputs), None, **padded, weight=sequences.weight, state=first)
        flat: dict[str, Any] = {name: _flat(column) for name, column in columns.items()}
        flat_inputs = inputs if self.plain is not None else _flat(inputs)
        rows = Batch(flat_inputs, None if mask is None else _flat(mask), **flat)
        if rollout.valid is None:
            return rows
        return rows.rows(rollout.valid.reshape(-1).nonzero().squeeze(-1))

    def _plain_values(self, rollout: Rollout, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        assert self.plain is not None
        steps, slots = rollout.shape
        final_obs = rollout.final_obs if rollout.final_index is not None else _flat(rollout.final_obs)
        more = [self.plain.features(rollout.last_obs), self.plain.features(final_obs)]
        values = self.plain.value(torch.cat([features, *more]))
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
        rows = _length(obs)
        if rows == 0:
            return torch.zeros(0, device=self.optimiser.weights.device)
        found = []
        for start in range(0, rows, _AT_ONCE):
            piece = slice(start, start + _AT_ONCE)
            here = None if state is None else map_nested(lambda leaf, at=piece: leaf[at], state)
            found.append(self.net.value(map_nested(lambda leaf, at=piece: leaf[at], obs), here))
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
        """Take up the rows of a batch, in this order."""
        for name, mine in vars(self._batch).items():
            if mine is not None:
                map_nested(
                    lambda to, leaf: torch.index_select(leaf, 0, order, out=to), mine, getattr(batch, name)
                )

    def _run(self) -> dict[str, Tensor]:
        parts = None
        for index in range(self._count):
            rows = slice(index * self._size, (index + 1) * self._size)
            parts = self._loop.step(self._batch.rows(rows), self._settings, self._rate)
        assert parts is not None
        with torch.no_grad():
            return parts()


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


def _joined(parts: Sequence[Batch]) -> Batch:
    def joined(*trees: Tree) -> Tree:
        return None if trees[0] is None else map_nested(lambda *leaves: torch.cat(leaves), *trees)

    return Batch(**{name: joined(*(getattr(part, name) for part in parts)) for name in vars(parts[0])})


def _flat(tree: Tree) -> Tree:
    return map_nested(lambda leaf: leaf.flatten(0, 1), tree)


def _timed(tree: Tree) -> Tree:
    return map_nested(lambda leaf: leaf.unsqueeze(1), tree)


def _length(tree: Tree) -> int:
    return int(first_leaf(tree).shape[0])
