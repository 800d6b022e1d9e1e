"""SAC's policy and critics as its update uses them: outputs, and gradients from given slopes.

As in `towers`: written out where the layers are plain, differentiated by autograd otherwise. All calls are
made without gradients; what needs them keeps them itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rayfish.algorithm.batched.optimise import FlatOptimiser
from rayfish.algorithm.batched.towers import Tower, _layers, is_plain
from rayfish.models.networks import GaussianHead
from rayfish.nested import map_nested


class Seen(NamedTuple):
    """A batch's observations for all networks.

    :param both: the 2 B rows of observations and next observations
    :param features: of `both`, where every network is plain; they have no parameters
    :param size: B
    """

    both: Any
    features: Tensor | None
    size: int

    @property
    def now(self) -> Any:
        """The B observations."""
        return map_nested(lambda leaf: leaf[: self.size], self.both)

    @property
    def then(self) -> Any:
        """The B next observations."""
        return map_nested(lambda leaf: leaf[self.size :], self.both)


class WrittenPolicy:
    """A policy of plain layers."""

    def __init__(self, encoder: Any, pi: nn.Module) -> None:
        self.encoder = encoder
        self._head = pi if isinstance(pi, GaussianHead) else None
        self._tower = Tower([*encoder.mlp, *_layers(pi)])  # type: ignore[misc]

    def numbers(self, seen: Seen) -> Tensor:
        """The 2 B rows of distribution inputs, deviations not yet clipped."""
        assert seen.features is not None
        self._size = seen.size
        return _with_deviation(self._tower.forward(seen.features), self._head)

    def learn(self, slope: Tensor, optimiser: FlatOptimiser) -> None:
        """Writes the gradients of all parameters, from the slope at the first B rows."""
        if self._head is not None and self._head.free:
            slope, d_log_std = slope.chunk(2, dim=-1)
            torch.sum(d_log_std, 0, out=optimiser.gradients[id(self._head.log_std)])
            slope = slope.contiguous()
        self._tower.descend(slope, optimiser.gradients, slope.shape[0])


class DifferentiatedPolicy:
    """Any policy."""

    def __init__(self, encoder: Any, pi: nn.Module) -> None:
        self.encoder, self._pi = encoder, pi
        self._head = pi if isinstance(pi, GaussianHead) else None

    def numbers(self, seen: Seen) -> Tensor:
        """The 2 B rows of distribution inputs, deviations not yet clipped."""
        with torch.enable_grad():
            self._out = self._of(seen.now)
        return torch.cat([self._out.detach(), self._of(seen.then)])

    def learn(self, slope: Tensor, optimiser: FlatOptimiser) -> None:
        """Adds up the gradients of all parameters."""
        optimiser.gradient.zero_()
        torch.autograd.backward(self._out, slope)

    def _of(self, obs: Any) -> Tensor:
        features, _ = self.encoder.encode(obs)
        if self._head is None:
            return self._pi(features)
        return _with_deviation(self._head.net(features), self._head)


class WrittenCritic:
    """A critic of plain layers, of observation and Box action or of the observation alone."""

    def __init__(self, encoder: Any, head: Any) -> None:
        self.encoder = encoder
        self._tower = Tower([*encoder.mlp, *head])
        self._inputs: Tensor | None = None

    def table(self, seen: Seen) -> Tensor:
        """[B, actions] values of all discrete actions."""
        assert seen.features is not None
        return self._tower.forward(seen.features[: seen.size])

    def next_table(self, seen: Seen) -> Tensor:
        """The same at the next observations."""
        assert seen.features is not None
        return self._tower.forward(seen.features[seen.size :])

    def values(self, seen: Seen, actions: Tensor, own: Tensor) -> Tensor:
        """[2 B] values of the batch's actions, then of the policy's own."""
        assert seen.features is not None
        features = seen.features[: seen.size]
        inputs = torch.cat([torch.cat([features, features]), torch.cat([actions, own])], dim=-1)
        return self._tower.forward(inputs).squeeze(-1)

    def next_values(self, seen: Seen, actions: Tensor) -> Tensor:
        """[B] values of actions at the next observations."""
        assert seen.features is not None
        return self._tower.forward(torch.cat([seen.features[seen.size :], actions], dim=-1)).squeeze(-1)

    def learn(self, slope: Tensor, optimiser: FlatOptimiser) -> None:
        """Writes the gradients of all parameters from the slope at `table`."""
        self._tower.descend(slope, optimiser.gradients, slope.shape[0])

    def learn_and_pull(self, slope: Tensor, width: int, optimiser: FlatOptimiser) -> Tensor:
        """Writes the gradients from the first B slopes at `values`; gives the slope at the own actions.

        :param width: numbers in an action
        """
        size = slope.shape[0] // 2
        first = self._tower.descend(slope.unsqueeze(-1), optimiser.gradients, size)
        return torch.mm(first[size:], self._tower.linear[0].weight[:, -width:])


class DifferentiatedCritic:
    """Any critic."""

    def __init__(self, encoder: Any, head: Any) -> None:
        self.encoder, self._head = encoder, head

    def table(self, seen: Seen) -> Tensor:
        """[B, actions] values of all discrete actions."""
        with torch.enable_grad():
            self._out = self._head(self.encoder.encode(seen.now)[0])
        return self._out.detach()

    def next_table(self, seen: Seen) -> Tensor:
        """The same at the next observations."""
        return self._head(self.encoder.encode(seen.then)[0])

    def values(self, seen: Seen, actions: Tensor, own: Tensor) -> Tensor:
        """[2 B] values of the batch's actions, then of the policy's own."""
        self._own = own.detach().requires_grad_()
        with torch.enable_grad():
            self._out = self._of(seen.now, actions)
            self._own_out = self._of(seen.now, self._own)
        return torch.cat([self._out.detach(), self._own_out.detach()])

    def next_values(self, seen: Seen, actions: Tensor) -> Tensor:
        """[B] values of actions at the next observations."""
        return self._of(seen.then, actions)

    def learn(self, slope: Tensor, optimiser: FlatOptimiser) -> None:
        """Adds up the gradients of all parameters from the slope at `table`."""
        optimiser.gradient.zero_()
        torch.autograd.backward(self._out, slope)

    def learn_and_pull(self, slope: Tensor, width: int, optimiser: FlatOptimiser) -> Tensor:
        """Adds up the gradients from the first B slopes at `values`; gives that at the own actions."""
        now, own = slope.chunk(2)
        self.learn(now, optimiser)
        return torch.autograd.grad(self._own_out, self._own, own)[0]

    def _of(self, obs: Any, actions: Tensor) -> Tensor:
        return self._head(self.encoder.encode(obs, actions)).squeeze(-1)


Policy = WrittenPolicy | DifferentiatedPolicy
Critic = WrittenCritic | DifferentiatedCritic


def networks(
    policy: tuple[Any, Any], critics: list[tuple[Any, Any]], targets: list[tuple[Any, Any]]
) -> tuple[Policy, list[Critic], list[Critic]]:
    """The passes of SAC's networks, each an encoder and a head: all written out, or none."""
    if all(is_plain(encoder, head) for encoder, head in [policy, *critics, *targets]):
        return (
            WrittenPolicy(*policy),
            [WrittenCritic(*critic) for critic in critics],
            [WrittenCritic(*target) for target in targets],
        )
    return (
        DifferentiatedPolicy(*policy),
        [DifferentiatedCritic(*critic) for critic in critics],
        [DifferentiatedCritic(*target) for target in targets],
    )


def _with_deviation(out: Tensor, head: GaussianHead | None) -> Tensor:
    """A free deviation beside the means."""
    if head is None or not head.free:
        return out
    return torch.cat([out, head.log_std.expand_as(out)], dim=-1)
