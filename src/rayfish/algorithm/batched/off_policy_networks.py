"""Networks as the updates of DQN and SAC use them: outputs, and parameter gradients from output gradients.

Networks of plain layers go through hand-written passes (`Fused...`), any other through autograd
(`Autograd...`). Both offer the same calls, so that `dqn` and `sac` are written once; all calls are made
without gradients, and what needs them keeps them itself. The networks are those of `models/`: an encoder
with `features` and `mlp`, or only `encode`, and a head.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rayfish.algorithm.batched.fused import Chain, is_plain, layers_of
from rayfish.algorithm.batched.optimise import FlatOptimiser
from rayfish.compat import torch_internals
from rayfish.models.networks import GaussianHead
from rayfish.nested import first_leaf, map_nested


def update_target(mains: list[Tensor], targets: list[Tensor], tau: float) -> None:
    """Polyak averaging: targets = tau * mains + (1 - tau) * targets."""
    if tau == 1.0:
        torch_internals.copy_all(targets, mains)
    else:
        torch_internals.lerp_all(targets, mains, tau)


def weights_of(networks: Iterable[nn.Module]) -> list[Tensor]:
    """Parameters and buffers of networks, in an order that is the same for a copy of them."""
    found = (tensor for network in networks for tensor in network.state_dict().values())
    return [tensor for tensor in found if tensor.is_floating_point()]


def huber(error: Tensor) -> Tensor:
    """Half the square up to 1, linear beyond."""
    size = error.abs()
    return torch.where(size <= 1.0, 0.5 * error * error, size - 0.5)


class FusedQ:
    """Advantages and values of discrete actions from plain layers; called without gradients."""

    def __init__(self, encoder: Any, af: Any, vf: Any | None) -> None:
        self._encoder = encoder
        self._trunk, self._af = Chain(list(encoder.mlp)), Chain(list(af))
        self._vf = Chain(list(vf)) if vf is not None else None

    def inputs(self, obs: Any) -> Tensor:
        """What the layers take of observations; the same for a copy of the network."""
        return self._encoder.features(obs)

    def __call__(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """(advantages, values or None); overwritten by the next call."""
        below = self._trunk.forward(inputs)
        return self._af.forward(below), None if self._vf is None else self._vf.forward(below)

    def forward(self, inputs: Tensor, size: int, valued: int) -> tuple[Tensor, Tensor | None]:
        """The same; only the first `size` rows will be learnt from, and the first `valued` need values."""
        below = self._trunk.forward(inputs)
        return self._af.forward(below), None if self._vf is None else self._vf.forward(below[:valued])

    def backward(self, d_advantages: Tensor, d_values: Tensor | None, optimiser: FlatOptimiser) -> None:
        """Writes the gradients of all parameters, from gradients of the first rows."""
        gradients, rows = optimiser.gradients, d_advantages.shape[0]
        gradient = self._af.backward(d_advantages, gradients, rows)
        gradient = torch.mm(gradient, self._af.linear[0].weight) if self._trunk.linear else gradient
        if self._vf is not None:
            assert d_values is not None
            other = self._vf.backward(d_values, gradients, rows)
            if self._trunk.linear:
                gradient.addmm_(other, self._vf.linear[0].weight)
        self._trunk.backward(gradient, gradients, rows)


class AutogradQ:
    """The same of any network; called without gradients, it keeps what it needs of them itself."""

    def __init__(self, encoder: Any, af: Any, vf: Any | None) -> None:
        self._encoder, self._af, self._vf = encoder, af, vf

    def inputs(self, obs: Any) -> Any:
        """Observations as they are."""
        return obs

    def __call__(self, inputs: Any) -> tuple[Tensor, Tensor | None]:
        """(advantages, values or None)."""
        return self._heads(inputs)

    def forward(self, inputs: Any, size: int, valued: int) -> tuple[Tensor, Tensor | None]:
        """The same; only the first `size` rows will be learnt from, and the first `valued` need values."""
        with torch.enable_grad():
            self._out = self._heads(map_nested(lambda leaf: leaf[:size], inputs))
        now = [None if part is None else part.detach() for part in self._out]
        rest = map_nested(lambda leaf: leaf[size:], inputs)
        if not first_leaf(rest).shape[0]:
            return now[0], now[1]  # type: ignore[return-value]
        then = self(rest)
        joined = [None if b is None else torch.cat([a, b]) for a, b in zip(now, then, strict=True)]  # type: ignore[list-item]
        return joined[0], joined[1]  # type: ignore[return-value]

    def backward(self, d_advantages: Tensor, d_values: Tensor | None, optimiser: FlatOptimiser) -> None:
        """Adds up the gradients of all parameters."""
        optimiser.gradient.zero_()
        outs = [part for part in self._out if part is not None]
        torch.autograd.backward(
            outs, [gradient for gradient in (d_advantages, d_values) if gradient is not None]
        )

    def _heads(self, obs: Any) -> tuple[Tensor, Tensor | None]:
        features, _ = self._encoder.encode(obs)
        return self._af(features), None if self._vf is None else self._vf(features)


def q_function(encoder: Any, af: Any, vf: Any | None) -> FusedQ | AutogradQ:
    """The passes of a Q network: hand-written where it is plain."""
    plain = is_plain(encoder, af, *([] if vf is None else [vf]))
    return FusedQ(encoder, af, vf) if plain else AutogradQ(encoder, af, vf)


class Observations(NamedTuple):
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
    def next(self) -> Any:
        """The B next observations."""
        return map_nested(lambda leaf: leaf[self.size :], self.both)


class FusedPolicy:
    """A policy of plain layers."""

    def __init__(self, encoder: Any, pi: nn.Module) -> None:
        self.encoder = encoder
        self._head = pi if isinstance(pi, GaussianHead) else None
        self._chain = Chain([*encoder.mlp, *layers_of(pi)])

    def dist_inputs(self, obs: Observations) -> Tensor:
        """The 2 B rows of distribution inputs, deviations not yet clipped."""
        assert obs.features is not None
        self._size = obs.size
        return _with_log_std(self._chain.forward(obs.features), self._head)

    def backward(self, gradient: Tensor, optimiser: FlatOptimiser) -> None:
        """Writes the gradients of all parameters, from the gradient at the first B rows."""
        if self._head is not None and self._head.free:
            gradient, d_log_std = gradient.chunk(2, dim=-1)
            torch.sum(d_log_std, 0, out=optimiser.gradients[id(self._head.log_std)])
            gradient = gradient.contiguous()
        self._chain.backward(gradient, optimiser.gradients, gradient.shape[0])


class AutogradPolicy:
    """Any policy."""

    def __init__(self, encoder: Any, pi: nn.Module) -> None:
        self.encoder, self._pi = encoder, pi
        self._head = pi if isinstance(pi, GaussianHead) else None

    def dist_inputs(self, obs: Observations) -> Tensor:
        """The 2 B rows of distribution inputs, deviations not yet clipped."""
        with torch.enable_grad():
            self._out = self._of(obs.now)
        return torch.cat([self._out.detach(), self._of(obs.next)])

    def backward(self, gradient: Tensor, optimiser: FlatOptimiser) -> None:
        """Adds up the gradients of all parameters."""
        optimiser.gradient.zero_()
        torch.autograd.backward(self._out, gradient)

    def _of(self, obs: Any) -> Tensor:
        features, _ = self.encoder.encode(obs)
        if self._head is None:
            return self._pi(features)
        return _with_log_std(self._head.net(features), self._head)


class FusedCritic:
    """A critic of plain layers, of observation and Box action or of the observation alone."""

    def __init__(self, encoder: Any, head: Any) -> None:
        self.encoder = encoder
        self._chain = Chain([*encoder.mlp, *head])
        self._inputs: Tensor | None = None

    def table(self, obs: Observations) -> Tensor:
        """[B, actions] values of all discrete actions."""
        assert obs.features is not None
        return self._chain.forward(obs.features[: obs.size])

    def next_table(self, obs: Observations) -> Tensor:
        """The same at the next observations."""
        assert obs.features is not None
        return self._chain.forward(obs.features[obs.size :])

    def values(self, obs: Observations, actions: Tensor, own: Tensor) -> Tensor:
        """[2 B] values of the batch's actions, then of the policy's own."""
        assert obs.features is not None
        features = obs.features[: obs.size]
        inputs = torch.cat([torch.cat([features, features]), torch.cat([actions, own])], dim=-1)
        return self._chain.forward(inputs).squeeze(-1)

    def next_values(self, obs: Observations, actions: Tensor) -> Tensor:
        """[B] values of actions at the next observations."""
        assert obs.features is not None
        return self._chain.forward(torch.cat([obs.features[obs.size :], actions], dim=-1)).squeeze(-1)

    def backward(self, gradient: Tensor, optimiser: FlatOptimiser) -> None:
        """Writes the gradients of all parameters from the gradient at `table`."""
        self._chain.backward(gradient, optimiser.gradients, gradient.shape[0])

    def backward_to_actions(self, gradient: Tensor, width: int, optimiser: FlatOptimiser) -> Tensor:
        """Writes the gradients from the first B gradients at `values`; gives the gradient at the own actions.

        :param width: numbers in an action
        """
        size = gradient.shape[0] // 2
        first = self._chain.backward(gradient.unsqueeze(-1), optimiser.gradients, size)
        return torch.mm(first[size:], self._chain.linear[0].weight[:, -width:])


class AutogradCritic:
    """Any critic."""

    def __init__(self, encoder: Any, head: Any) -> None:
        self.encoder, self._head = encoder, head

    def table(self, obs: Observations) -> Tensor:
        """[B, actions] values of all discrete actions."""
        with torch.enable_grad():
            self._out = self._head(self.encoder.encode(obs.now)[0])
        return self._out.detach()

    def next_table(self, obs: Observations) -> Tensor:
        """The same at the next observations."""
        return self._head(self.encoder.encode(obs.next)[0])

    def values(self, obs: Observations, actions: Tensor, own: Tensor) -> Tensor:
        """[2 B] values of the batch's actions, then of the policy's own."""
        self._own = own.detach().requires_grad_()
        with torch.enable_grad():
            self._out = self._of(obs.now, actions)
            self._own_out = self._of(obs.now, self._own)
        return torch.cat([self._out.detach(), self._own_out.detach()])

    def next_values(self, obs: Observations, actions: Tensor) -> Tensor:
        """[B] values of actions at the next observations."""
        return self._of(obs.next, actions)

    def backward(self, gradient: Tensor, optimiser: FlatOptimiser) -> None:
        """Adds up the gradients of all parameters from the gradient at `table`."""
        optimiser.gradient.zero_()
        torch.autograd.backward(self._out, gradient)

    def backward_to_actions(self, gradient: Tensor, width: int, optimiser: FlatOptimiser) -> Tensor:
        """Adds up the gradients from the first B gradients at `values`; gives that at the own actions."""
        now, own = gradient.chunk(2)
        self.backward(now, optimiser)
        return torch.autograd.grad(self._own_out, self._own, own)[0]

    def _of(self, obs: Any, actions: Tensor) -> Tensor:
        return self._head(self.encoder.encode(obs, actions)).squeeze(-1)


Policy = FusedPolicy | AutogradPolicy
Critic = FusedCritic | AutogradCritic


def sac_networks(
    policy: tuple[Any, Any], critics: list[tuple[Any, Any]], targets: list[tuple[Any, Any]]
) -> tuple[Policy, list[Critic], list[Critic]]:
    """The passes of SAC's networks, each an encoder and a head: all hand-written, or none."""
    if all(is_plain(encoder, head) for encoder, head in [policy, *critics, *targets]):
        return (
            FusedPolicy(*policy),
            [FusedCritic(*critic) for critic in critics],
            [FusedCritic(*target) for target in targets],
        )
    return (
        AutogradPolicy(*policy),
        [AutogradCritic(*critic) for critic in critics],
        [AutogradCritic(*target) for target in targets],
    )


def _with_log_std(out: Tensor, head: GaussianHead | None) -> Tensor:
    """A free deviation beside the means."""
    if head is None or not head.free:
        return out
    return torch.cat([out, head.log_std.expand_as(out)], dim=-1)
