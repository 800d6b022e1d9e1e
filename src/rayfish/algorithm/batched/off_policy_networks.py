"""The networks of DQN and SAC: outputs, and parameter gradients from output gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rayfish.algorithm.batched.fused import Chain, is_plain, layers_of
from rayfish.algorithm.batched.optimise import FlatOptimiser
from rayfish.compat import torch_internals
from rayfish.models.actions import LOG_STD_BOUNDS
from rayfish.models.networks import GaussianHead
from rayfish.nested import first_leaf, map_nested


def weights_of(networks: Iterable[nn.Module]) -> list[Tensor]:
    """Parameters and buffers of networks, in an order that is the same for a copy of them."""
    found = (tensor for network in networks for tensor in network.state_dict().values())
    return [tensor for tensor in found if tensor.is_floating_point()]


def huber(error: Tensor) -> Tensor:
    """Half the square up to 1, linear beyond."""
    size = error.abs()
    return torch.where(size <= 1.0, 0.5 * error * error, size - 0.5)


class OffPolicyUpdate:
    """What the updates of DQN and SAC share: optimizers by name, and target networks that follow."""

    metrics: Callable[[], dict[str, Tensor]]
    """The last batch's loss and figures about it; to be called before the next update."""

    def __init__(
        self, optimisers: dict[str, FlatOptimiser], networks: Iterable[tuple[Network, Network]]
    ) -> None:
        self.optimisers = optimisers
        mains, targets = zip(*networks, strict=True)
        self._mains = weights_of(network.modules for network in mains)
        self._targets = weights_of(network.modules for network in targets)

    def attach(self) -> None:
        """Before a series of updates: take over what was loaded into the optimizers since."""
        for optimiser in self.optimisers.values():
            optimiser.attach()

    def update_target(self, tau: float) -> None:
        """Polyak averaging: targets = tau * mains + (1 - tau) * targets."""
        if tau == 1.0:
            torch_internals.copy_all(self._targets, self._mains)
        else:
            torch_internals.lerp_all(self._targets, self._mains, tau)

    def _step(self, grad_clip: float | None, grad_clip_by: str) -> dict[str, Tensor]:
        """One step of all optimizers; returns the norms of their gradients, under RLlib's names."""
        norms = {}
        for name, optimiser in self.optimisers.items():
            norm = optimiser.clip(grad_clip or None, grad_clip_by)
            if norm is not None:
                norms[f"gradients_{name}_global_norm"] = norm
            optimiser.step()
        return norms


class Network:
    """An encoder from `models/` and its heads, None for a head that is not there.

    Networks of plain layers go through hand-written passes (`Fused`), any other through autograd
    (`Autograd`). Both offer the same calls, so that `dqn` and `sac` are written once. All calls are made
    without gradients; what is called to be learned from keeps what `backward` needs itself.
    """

    def __init__(self, encoder: Any, *heads: Any) -> None:
        self.encoder = encoder
        self.modules = nn.ModuleList([encoder, *(head for head in heads if head is not None)])


class Fused(Network):
    """A network of plain layers; its outputs are overwritten by the next call."""

    def inputs(self, obs: Any) -> Tensor:
        """What the layers take of observations; it has no parameters, so one serves every network."""
        return self.encoder.features(obs)


class Autograd(Network):
    """Any network."""

    _out: Any

    def inputs(self, obs: Any) -> Any:
        """Observations as they are."""
        return obs

    def backward(self, gradient: Any, optimiser: FlatOptimiser) -> None:
        """Computes the gradients of all parameters from the gradient at the last output."""
        optimiser.gradient.zero_()
        torch.autograd.backward(self._out, gradient)


class FusedQ(Fused):
    """Advantages and values of discrete actions from plain layers."""

    def __init__(self, encoder: Any, af: Any, vf: Any | None) -> None:
        super().__init__(encoder, af, vf)
        self._trunk, self._af = Chain(list(encoder.mlp)), Chain(list(af))
        self._vf = Chain(list(vf)) if vf is not None else None

    def __call__(self, inputs: Tensor, valued: int | None = None) -> tuple[Tensor, Tensor | None]:
        """(advantages, values of the first `valued` rows, or None without a value stream)."""
        below = self._trunk.forward(inputs)
        return self._af.forward(below), None if self._vf is None else self._vf.forward(below[:valued])

    def forward(self, inputs: Tensor, size: int, valued: int) -> tuple[Tensor, Tensor | None]:
        """The same, of which the first `size` rows are learned from."""
        return self(inputs, valued)

    def backward(self, d_advantages: Tensor, d_values: Tensor | None, optimiser: FlatOptimiser) -> None:
        """Computes the gradients of all parameters from those at the first rows."""
        gradients, rows = optimiser.gradients, d_advantages.shape[0]
        gradient = self._af.backward(d_advantages, gradients, rows)
        gradient = torch.mm(gradient, self._af.linear[0].weight) if self._trunk.linear else gradient
        if self._vf is not None:
            assert d_values is not None
            other = self._vf.backward(d_values, gradients, rows)
            if self._trunk.linear:
                gradient.addmm_(other, self._vf.linear[0].weight)
        self._trunk.backward(gradient, gradients, rows)


class AutogradQ(Autograd):
    """Advantages and values from any network."""

    def __init__(self, encoder: Any, af: Any, vf: Any | None) -> None:
        super().__init__(encoder, af, vf)
        self._af, self._vf = af, vf

    def __call__(self, inputs: Any) -> tuple[Tensor, Tensor | None]:
        """(advantages, values or None without a value stream)."""
        features, _ = self.encoder.encode(inputs)
        return self._af(features), None if self._vf is None else self._vf(features)

    def forward(self, inputs: Any, size: int, valued: int) -> tuple[Tensor, Tensor | None]:
        """The same, of which the first `size` rows are learned from."""
        with torch.enable_grad():
            advantages, values = self(map_nested(lambda leaf: leaf[:size], inputs))
        self._out = [advantages] if values is None else [advantages, values]
        rest = map_nested(lambda leaf: leaf[size:], inputs)
        if first_leaf(rest).shape[0]:
            other, other_values = self(rest)
            advantages = torch.cat([advantages, other])
            values = None if other_values is None else torch.cat([values, other_values])
        return advantages.detach(), None if values is None else values.detach()

    def backward(self, d_advantages: Tensor, d_values: Tensor | None, optimiser: FlatOptimiser) -> None:  # type: ignore[override]
        """Computes the gradients of all parameters from those at the first rows."""
        super().backward([d_advantages] if d_values is None else [d_advantages, d_values], optimiser)


QFunction = FusedQ | AutogradQ


def q_function(encoder: Any, af: Any, vf: Any | None) -> QFunction:
    """A Q network from its encoder, advantage stream and (dueling) value stream."""
    plain = is_plain(encoder, af, *([] if vf is None else [vf]))
    return FusedQ(encoder, af, vf) if plain else AutogradQ(encoder, af, vf)


class _PolicyParts(Network):
    """What SAC's policies share; their log standard deviations are not yet clipped."""

    def __init__(self, encoder: Any, pi: nn.Module) -> None:
        super().__init__(encoder, pi)
        self._pi = pi
        low, high = LOG_STD_BOUNDS
        if isinstance(pi, GaussianHead):
            low, high = max(low, -pi.clip), min(high, pi.clip)
        self.log_std_bounds = low, high


class FusedPolicy(_PolicyParts, Fused):
    """A policy of plain layers."""

    def __init__(self, encoder: Any, pi: nn.Module) -> None:
        super().__init__(encoder, pi)
        self._chain = Chain([*encoder.mlp, *layers_of(pi)])

    def __call__(self, inputs: Tensor) -> Tensor:
        """Distribution inputs."""
        return _with_log_std(self._chain.forward(inputs), self._pi)

    def forward(self, inputs: Tensor, size: int) -> Tensor:
        """The same, of which the first `size` rows are learned from."""
        return self(inputs)

    def backward(self, gradient: Tensor, optimiser: FlatOptimiser) -> None:
        """Computes the gradients of all parameters from that at the first rows."""
        if isinstance(self._pi, GaussianHead) and self._pi.free:
            gradient, d_log_std = gradient.chunk(2, dim=-1)
            torch.sum(d_log_std, 0, out=optimiser.gradients[id(self._pi.log_std)])
            gradient = gradient.contiguous()
        self._chain.backward(gradient, optimiser.gradients, gradient.shape[0])


class AutogradPolicy(_PolicyParts, Autograd):
    """Any policy."""

    def __call__(self, inputs: Any) -> Tensor:
        """Distribution inputs."""
        features, _ = self.encoder.encode(inputs)
        return _with_log_std(layers_of(self._pi)(features), self._pi)

    def forward(self, inputs: Any, size: int) -> Tensor:
        """The same, of which the first `size` rows are learned from."""
        with torch.enable_grad():
            self._out = self(map_nested(lambda leaf: leaf[:size], inputs))
        return torch.cat([self._out.detach(), self(map_nested(lambda leaf: leaf[size:], inputs))])


def policy_network(encoder: Any, pi: nn.Module) -> FusedPolicy | AutogradPolicy:
    """SAC's policy from its encoder and head."""
    return FusedPolicy(encoder, pi) if is_plain(encoder, pi) else AutogradPolicy(encoder, pi)


class FusedCritic(Fused):
    """A critic of plain layers, of observation and Box action or of the observation alone."""

    def __init__(self, encoder: Any, head: Any) -> None:
        super().__init__(encoder, head)
        self._chain = Chain([*encoder.mlp, *head])

    def __call__(self, inputs: Tensor, actions: Tensor | None = None) -> Tensor:
        """[B] values of Box actions, or [B, actions] of all discrete ones."""
        if actions is None:
            return self._chain.forward(inputs)
        return self._chain.forward(torch.cat([inputs, actions], dim=-1)).squeeze(-1)

    def forward(self, inputs: Tensor) -> Tensor:
        """[B, actions] values of all discrete actions, to be learned from."""
        return self(inputs)

    def forward_twice(self, inputs: Tensor, actions: Tensor, own: Tensor) -> Tensor:
        """[2 B] values of the batch's actions, then of the policy's own, to be learned from."""
        return self(torch.cat([inputs, inputs]), torch.cat([actions, own]))

    def backward(self, gradient: Tensor, optimiser: FlatOptimiser) -> None:
        """Computes the gradients of all parameters after `forward`."""
        self._chain.backward(gradient, optimiser.gradients, gradient.shape[0])

    def backward_to_actions(self, gradient: Tensor, width: int, optimiser: FlatOptimiser) -> Tensor:
        """After `forward_twice`, the parameters' gradients from the first B rows; that of the own actions."""
        size = gradient.shape[0] // 2
        first = self._chain.backward(gradient.unsqueeze(-1), optimiser.gradients, size)
        return torch.mm(first[size:], self._chain.linear[0].weight[:, -width:])


class AutogradCritic(Autograd):
    """Any critic."""

    def __init__(self, encoder: Any, head: Any) -> None:
        super().__init__(encoder, head)
        self._head = head

    def __call__(self, inputs: Any, actions: Tensor | None = None) -> Tensor:
        """[B] values of Box actions, or [B, actions] of all discrete ones."""
        if actions is None:
            return self._head(self.encoder.encode(inputs)[0])
        return self._head(self.encoder.encode(inputs, actions)).squeeze(-1)

    def forward(self, inputs: Any) -> Tensor:
        """[B, actions] values of all discrete actions, to be learned from."""
        with torch.enable_grad():
            self._out = self(inputs)
        return self._out.detach()

    def forward_twice(self, inputs: Any, actions: Tensor, own: Tensor) -> Tensor:
        """[2 B] values of the batch's actions, then of the policy's own, to be learned from."""
        self._own = own.detach().requires_grad_()
        with torch.enable_grad():
            self._out, self._own_out = self(inputs, actions), self(inputs, self._own)
        return torch.cat([self._out.detach(), self._own_out.detach()])

    def backward_to_actions(self, gradient: Tensor, width: int, optimiser: FlatOptimiser) -> Tensor:
        """After `forward_twice`, the parameters' gradients from the first B rows; that of the own actions."""
        batch, own = gradient.chunk(2)
        self.backward(batch, optimiser)
        return torch.autograd.grad(self._own_out, self._own, own)[0]


Policy = FusedPolicy | AutogradPolicy
Critic = FusedCritic | AutogradCritic


def sac_networks(
    policy: tuple[Any, Any], critics: list[tuple[Any, Any]], targets: list[tuple[Any, Any]]
) -> tuple[Policy, list[Critic], list[Critic]]:
    """SAC's networks, each from its encoder and head: all hand-written, or none."""
    plain = all(is_plain(encoder, head) for encoder, head in [policy, *critics, *targets])
    actor: type[Policy] = FusedPolicy if plain else AutogradPolicy
    critic: type[Critic] = FusedCritic if plain else AutogradCritic
    return actor(*policy), [critic(*parts) for parts in critics], [critic(*parts) for parts in targets]


def _with_log_std(out: Tensor, pi: nn.Module) -> Tensor:
    """The means and, where they are a parameter of the head, the log standard deviations next to them."""
    if not isinstance(pi, GaussianHead) or not pi.free:
        return out
    return torch.cat([out, pi.log_std.expand_as(out)], dim=-1)
