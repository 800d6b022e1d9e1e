"""The forward and backward pass of networks of plain layers, written by hand.

Small networks spend most of an autograd step on bookkeeping. Where a network is made of linear layers with
tanh or ReLU alone (the usual case without images and memory), its gradients are a few matrix products into
preallocated memory. The network itself stays the one in `models/`; this reads its parameters and writes their
gradients. Any other network is differentiated by autograd.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from rayfish.models.actions import mask_logits
from rayfish.models.encoder import ActionEncoder, Encoder, OnehotLeaf, VectorLeaf
from rayfish.models.networks import ActorCritic, GaussianHead

_ACTIVATIONS = (nn.Tanh, nn.ReLU)


class Chain:
    """Linear layers one after the other, each with tanh, ReLU or nothing after it; maybe none at all."""

    def __init__(self, layers: list[nn.Module]) -> None:
        self.linear: list[nn.Linear] = []
        self._activations: list[type[nn.Module] | None] = []
        for layer in layers:
            if isinstance(layer, nn.Linear):
                self.linear.append(layer)
                self._activations.append(None)
            else:
                self._activations[-1] = type(layer)
        self._outputs: list[Tensor] = []
        self._gradients: list[Tensor] = []
        self._input: Tensor | None = None
        self._bound: list[tuple[Tensor, Tensor, Tensor]] = []

    def __call__(self, inputs: Tensor) -> Tensor:
        """The last layer's output, in new memory."""
        out = inputs
        for layer, activation in zip(self.linear, self._activations, strict=True):
            out = torch.addmm(layer.bias, out, layer.weight.t())
            _activate(out, activation)
        return out

    def forward(self, inputs: Tensor) -> Tensor:
        """The same into memory that is kept for `backward`."""
        if not self.linear:
            return inputs
        self._reserve(inputs)
        self._input = out = inputs
        for (_, transposed, bias), activation, memory in zip(
            self._bound, self._activations, self._outputs, strict=True
        ):
            out = torch.addmm(bias, out, transposed, out=memory)
            _activate(out, activation)
        return out

    def backward(self, gradient: Tensor, gradients: dict[int, Tensor], learn: int | None = None) -> Tensor:
        """Writes all parameters' gradients; returns that of the first layer's output, before its weights.

        :param gradient: of the first rows of the last output; overwritten where that has an activation
        :param gradients: by `id` of the parameter, the memory to write into
        :param learn: rows, from the first on, whose gradients count for the parameters; None for all
        """
        rows = gradient.shape[0]
        outputs, memory, inputs = self._outputs, self._gradients, self._input
        if outputs and rows < outputs[0].shape[0]:
            assert inputs is not None
            inputs = inputs[:rows]
            outputs, memory = ([tensor[:rows] for tensor in tensors] for tensors in (outputs, memory))
        for index in range(len(self.linear) - 1, -1, -1):
            layer, below = self.linear[index], outputs[index - 1] if index else inputs
            assert below is not None
            _activation_backward(gradient, outputs[index], self._activations[index])
            here = gradient
            if learn is not None and learn < rows:
                here, below = here[:learn], below[:learn]
            torch.mm(here.t(), below, out=gradients[id(layer.weight)])
            torch.sum(here, 0, out=gradients[id(layer.bias)])
            if index:
                gradient = torch.mm(gradient, self._bound[index][0], out=memory[index - 1])
        return gradient

    def _reserve(self, inputs: Tensor) -> None:
        # Asking a module for its parameters costs more than a small product; their memory seldom moves.
        if not self._bound or self._bound[0][0].data_ptr() != self.linear[0].weight.data_ptr():
            self._bound = [
                (layer.weight.data, layer.weight.data.t(), layer.bias.data) for layer in self.linear
            ]
        rows = inputs.shape[0]
        if self._outputs and self._outputs[0].shape[0] == rows:
            return
        sizes = [layer.out_features for layer in self.linear]
        self._outputs = [inputs.new_empty(rows, size) for size in sizes]
        self._gradients = [inputs.new_empty(rows, size) for size in sizes[:-1]]


class FusedActorCritic:
    """An `ActorCritic` of plain layers: distribution inputs and values, and the gradients of both."""

    def __init__(self, net: ActorCritic) -> None:
        self.net = net
        self.masked = net.masked
        self._gaussian = net.pi if isinstance(net.pi, GaussianHead) else None
        self._actor = Chain([*net.encoder.mlp, *layers_of(net.pi)])
        self._critic: Chain | None = None
        self._trunk: Chain | None = None
        if net.vf is not None:
            own = net.critic_encoder.mlp if net.critic_encoder is not None else []
            self._critic = Chain([*own, *net.vf])
        if net.shared and len(net.encoder.mlp):
            self._trunk = Chain(list(net.encoder.mlp))
            self._actor = Chain([*layers_of(net.pi)])

    def features(self, obs: Any) -> Tensor:
        """What the layers see of observations; the same for every pass over a batch."""
        return self.net.encoder.features(obs)

    def policy(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Action distribution inputs, without keeping anything for a backward pass."""
        return self._dist_inputs(self._actor(self._shared(features)), mask)

    def value(self, features: Tensor) -> Tensor:
        """State values, without keeping anything."""
        assert self._critic is not None
        return self._critic(self._shared(features)).squeeze(-1)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(distribution inputs, values), remembering what `backward` needs; overwritten by the next call."""
        assert self._critic is not None
        below = self._trunk.forward(features) if self._trunk is not None else features
        self._out = self._actor.forward(below)
        self._mask = mask
        return self._dist_inputs(self._out, mask), self._critic.forward(below).squeeze(-1)

    def backward(self, d_dist_inputs: Tensor, d_values: Tensor, gradients: dict[int, Tensor]) -> None:
        """Writes every parameter's gradient into its place in `gradients` (by `id`)."""
        assert self._critic is not None
        d_actor = self._actor.backward(self._through_head(d_dist_inputs, gradients), gradients)
        d_critic = self._critic.backward(d_values.unsqueeze(-1), gradients)
        if self._trunk is not None:
            d_trunk = torch.mm(d_actor, self._actor.linear[0].weight.data)
            self._trunk.backward(d_trunk.addmm_(d_critic, self._critic.linear[0].weight.data), gradients)

    def _shared(self, features: Tensor) -> Tensor:
        return features if self._trunk is None else self._trunk(features)

    def _dist_inputs(self, out: Tensor, mask: Tensor | None) -> Tensor:
        """Distribution inputs from the output of the policy's last layer."""
        return mask_logits(out if self._gaussian is None else self._gaussian.bounded(out), mask)

    def _through_head(self, d_dist_inputs: Tensor, gradients: dict[int, Tensor]) -> Tensor:
        """The gradient of the policy's last layer; a clipped deviation and a forbidden action pass none."""
        if self._mask is not None:
            return torch.where(self._mask > 0, d_dist_inputs, 0.0)
        head = self._gaussian
        if head is None:
            return d_dist_inputs
        d_mean, d_log_std = d_dist_inputs.chunk(2, dim=-1)
        log_std = head.log_std.expand_as(d_mean) if head.free else self._out.chunk(2, dim=-1)[1]
        d_log_std = torch.where(log_std.abs() <= head.clip, d_log_std, 0.0)
        if head.free:
            torch.sum(d_log_std, 0, out=gradients[id(head.log_std)])
            return d_mean.contiguous()
        return torch.cat([d_mean, d_log_std], dim=-1)


def fused(net: nn.Module) -> FusedActorCritic | None:
    """The hand-written form of a network; None where it has layers that autograd must differentiate."""
    if type(net) is not ActorCritic or not all(weights.requires_grad for weights in net.parameters()):
        return None
    if net.critic_encoder is not None and not is_plain(net.critic_encoder):
        return None
    heads = [net.pi] if net.vf is None else [net.pi, net.vf]
    return FusedActorCritic(net) if is_plain(net.encoder, *heads) else None


def is_plain(encoder: nn.Module, *heads: nn.Module) -> bool:
    """Whether a network is made of what `Chain` can do: flat inputs, linear layers with tanh or ReLU."""
    if not isinstance(encoder, Encoder | ActionEncoder):
        return False
    if isinstance(encoder, Encoder) and encoder.lstm is not None:
        return False
    if isinstance(encoder, ActionEncoder) and encoder.before is not None:
        return False
    leaves = all(isinstance(leaf, VectorLeaf | OnehotLeaf) for leaf in encoder.features.leaves)
    stacks = [encoder.mlp, *(layers_of(head) for head in heads)]
    return leaves and all(isinstance(stack, nn.Sequential) and _simple(stack) for stack in stacks)


def layers_of(head: nn.Module) -> nn.Sequential:
    """The layers of a head."""
    return head.net if isinstance(head, GaussianHead) else head  # type: ignore[return-value]


def _simple(stack: nn.Sequential) -> bool:
    """Linear layers, each followed by at most one activation that `Chain` knows."""
    linear = [isinstance(layer, nn.Linear) for layer in stack]
    known = all(
        is_linear or isinstance(layer, _ACTIVATIONS) for is_linear, layer in zip(linear, stack, strict=True)
    )
    return known and (not linear or linear[0]) and all(a or b for a, b in pairwise(linear))


def _activate(out: Tensor, activation: type[nn.Module] | None) -> None:
    if activation is nn.Tanh:
        out.tanh_()
    elif activation is nn.ReLU:
        out.relu_()


def _activation_backward(gradient: Tensor, out: Tensor, activation: type[nn.Module] | None) -> None:
    """In place."""
    if activation is nn.Tanh:
        torch.ops.aten.tanh_backward.grad_input(gradient, out, grad_input=gradient)
    elif activation is nn.ReLU:
        torch.ops.aten.threshold_backward.grad_input(gradient, out, 0, grad_input=gradient)
