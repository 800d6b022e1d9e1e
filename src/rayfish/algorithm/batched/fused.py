"""The forward and backward pass of an `ActorCritic` of plain layers, written out.

Small networks spend most of an autograd step on bookkeeping. Where a policy is made of linear layers
with tanh or ReLU alone (the usual case without images and memory), its gradients are few matrix
products into memory that is there already. The network itself stays the one in `models/`; this reads
its parameters and writes their gradients. Anything else is differentiated by autograd (`ppo.Differentiated`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rayfish.models.encoder import Encoder, OnehotLeaf, VectorLeaf
from rayfish.models.masking import mask_logits
from rayfish.models.networks import ActorCritic, GaussianHead
from rayfish.models.spaces import MASK_KEY

_ACTIVATIONS = (nn.Tanh, nn.ReLU)


class Chain:
    """Linear layers one after the other, each with tanh, ReLU or nothing after it."""

    def __init__(self, layers: list[nn.Module]) -> None:
        self.linear: list[nn.Linear] = []
        self._kinds: list[type[nn.Module] | None] = []
        for layer in layers:
            if isinstance(layer, nn.Linear):
                self.linear.append(layer)
                self._kinds.append(None)
            else:
                self._kinds[-1] = type(layer)
        self._outputs: list[Tensor] = []
        self._slopes: list[Tensor] = []
        self._input: Tensor | None = None
        self._bound: list[tuple[Tensor, Tensor, Tensor]] = []

    def __call__(self, inputs: Tensor) -> Tensor:
        """The last layer's output, in new memory."""
        out = inputs
        for layer, kind in zip(self.linear, self._kinds, strict=True):
            out = torch.addmm(layer.bias, out, layer.weight.t())
            _activate(out, kind)
        return out

    def forward(self, inputs: Tensor) -> Tensor:
        """The same into memory that is kept for `backward`."""
        self._reserve(inputs)
        self._input = out = inputs
        for (_, turned, bias), kind, memory in zip(self._bound, self._kinds, self._outputs, strict=True):
            out = torch.addmm(bias, out, turned, out=memory)
            _activate(out, kind)
        return out

    def backward(
        self, slope: Tensor, gradients: dict[int, Tensor], *, to_input: Tensor | None = None
    ) -> None:
        """Writes the gradients of all parameters, given that of the last output.

        :param slope: overwritten where the last layer has an activation
        :param gradients: by `id` of the parameter, the memory to write into
        :param to_input: where to add the gradient of the inputs; None when nobody asks for it
        """
        for index in range(len(self.linear) - 1, -1, -1):
            layer, below = self.linear[index], self._outputs[index - 1] if index else self._input
            assert below is not None
            _through(slope, self._outputs[index], self._kinds[index])
            torch.mm(slope.t(), below, out=gradients[id(layer.weight)])
            torch.sum(slope, 0, out=gradients[id(layer.bias)])
            if index:
                slope = torch.mm(slope, self._bound[index][0], out=self._slopes[index - 1])
            elif to_input is not None:
                to_input.addmm_(slope, self._bound[index][0])

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
        self._slopes = [inputs.new_empty(rows, size) for size in sizes[:-1]]


class FusedActorCritic:
    """An `ActorCritic` of plain layers: numbers and values, and the gradients of both."""

    def __init__(self, net: ActorCritic) -> None:
        self.net = net
        self.masked = net.masked
        self._gaussian = net.pi if isinstance(net.pi, GaussianHead) else None
        self._actor = Chain([*net.encoder.mlp, *_layers(net.pi)])
        self._critic: Chain | None = None
        self._trunk: Chain | None = None
        if net.vf is not None:
            own = net.critic_encoder.mlp if net.critic_encoder is not None else []
            self._critic = Chain([*own, *net.vf])
        if net.shared and len(net.encoder.mlp):
            self._trunk = Chain(list(net.encoder.mlp))
            self._actor = Chain([*_layers(net.pi)])
        self._slope: Tensor | None = None

    def features(self, obs: Any) -> Tensor:
        """What the layers see of observations; the same for every pass over a batch."""
        return self.net.encoder.features(obs)

    def policy(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Action distribution inputs, without keeping anything for a backward pass."""
        return self._numbers(self._actor(self._shared(features)), mask)

    def value(self, features: Tensor) -> Tensor:
        """State values, without keeping anything."""
        assert self._critic is not None
        return self._critic(self._shared(features)).squeeze(-1)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(numbers, values), remembering what `backward` needs; overwritten by the next call."""
        assert self._critic is not None
        below = self._trunk.forward(features) if self._trunk is not None else features
        self._out = self._actor.forward(below)
        self._mask = mask
        return self._numbers(self._out, mask), self._critic.forward(below).squeeze(-1)

    def backward(self, d_numbers: Tensor, d_values: Tensor, gradients: dict[int, Tensor]) -> None:
        """Writes every parameter's gradient into its place in `gradients` (by `id`)."""
        assert self._critic is not None
        d_actor = self._through_head(d_numbers, gradients)
        to_trunk = None
        if self._trunk is not None:
            shared = self._trunk._outputs[-1]
            if self._slope is None or self._slope.shape != shared.shape:
                self._slope = torch.empty_like(shared)
            to_trunk = self._slope.zero_()
        self._actor.backward(d_actor, gradients, to_input=to_trunk)
        self._critic.backward(d_values.unsqueeze(-1), gradients, to_input=to_trunk)
        if self._trunk is not None and to_trunk is not None:
            self._trunk.backward(to_trunk, gradients)

    def _shared(self, features: Tensor) -> Tensor:
        return features if self._trunk is None else self._trunk(features)

    def _numbers(self, out: Tensor, mask: Tensor | None) -> Tensor:
        """What the policy's last layer gives, as its distribution takes it."""
        head = self._gaussian
        if head is not None:
            if head.free:
                mean, log_std = out, head.log_std.expand_as(out)
            else:
                mean, log_std = out.chunk(2, dim=-1)
            out = torch.cat([mean, log_std.clamp(-head.clip, head.clip)], dim=-1)
        return out if mask is None else mask_logits(out, mask)

    def _through_head(self, d_numbers: Tensor, gradients: dict[int, Tensor]) -> Tensor:
        """The gradient of the policy's last layer; a clipped deviation and a forbidden action pass none."""
        if self._mask is not None:
            return torch.where(self._mask > 0, d_numbers, 0.0)
        head = self._gaussian
        if head is None:
            return d_numbers
        d_mean, d_log_std = d_numbers.chunk(2, dim=-1)
        log_std = head.log_std.expand_as(d_mean) if head.free else self._out.chunk(2, dim=-1)[1]
        d_log_std = torch.where(log_std.abs() <= head.clip, d_log_std, 0.0)
        if head.free:
            torch.sum(d_log_std, 0, out=gradients[id(head.log_std)])
            return d_mean.contiguous()
        return torch.cat([d_mean, d_log_std], dim=-1)


def fused(net: nn.Module) -> FusedActorCritic | None:
    """The written-out form of a network; None where it has layers that autograd must differentiate."""
    if type(net) is not ActorCritic or not _plain(net.encoder):
        return None
    if not all(weights.requires_grad for weights in net.parameters()):
        return None
    if net.critic_encoder is not None and not _plain(net.critic_encoder):
        return None
    heads = [
        net.pi.net if isinstance(net.pi, GaussianHead) else net.pi,
        *([net.vf] if net.vf is not None else []),
    ]
    if not all(isinstance(part, nn.Sequential) and _simple(part) for part in heads):
        return None
    return FusedActorCritic(net)


def mask_of(obs: Any, masked: bool) -> Tensor | None:
    """The action mask within observations."""
    return obs[MASK_KEY] if masked else None


def _layers(head: nn.Module) -> nn.Sequential:
    return head.net if isinstance(head, GaussianHead) else head  # type: ignore[return-value]


def _plain(encoder: Encoder) -> bool:
    leaves = all(isinstance(leaf, VectorLeaf | OnehotLeaf) for leaf in encoder.features.leaves)
    return encoder.lstm is None and leaves and _simple(encoder.mlp)


def _simple(stack: nn.Sequential) -> bool:
    layers = list(stack)
    linear = [isinstance(layer, nn.Linear) for layer in layers]
    known = all(
        is_linear or isinstance(layer, _ACTIVATIONS) for is_linear, layer in zip(linear, layers, strict=True)
    )
    # An activation follows a linear layer, never another activation.
    return (
        known and all(linear[i] or linear[i - 1] for i in range(1, len(layers))) and (not layers or linear[0])
    )


def _activate(out: Tensor, kind: type[nn.Module] | None) -> None:
    if kind is nn.Tanh:
        out.tanh_()
    elif kind is nn.ReLU:
        out.relu_()


def _through(slope: Tensor, out: Tensor, kind: type[nn.Module] | None) -> None:
    """Through an activation backwards, in place."""
    if kind is nn.Tanh:
        torch.ops.aten.tanh_backward.grad_input(slope, out, grad_input=slope)
    elif kind is nn.ReLU:
        torch.ops.aten.threshold_backward.grad_input(slope, out, 0, grad_input=slope)
