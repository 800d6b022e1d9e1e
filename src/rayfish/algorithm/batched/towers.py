"""Q functions and policies as the off-policy updates use them: outputs, and gradients from given slopes.

A network of plain layers is written out (`Tower`), any other is differentiated by autograd. Both kinds
offer the same calls, so that the losses in `dqn` and `sac` are written once. The networks are those of
`models/`: an encoder with `features` and `mlp`, or only `encode`, and a head.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from rayfish.algorithm.batched.fused import Chain, _through
from rayfish.algorithm.batched.optimise import FlatOptimiser
from rayfish.models.encoder import ActionEncoder, Encoder, OnehotLeaf, VectorLeaf
from rayfish.models.networks import GaussianHead
from rayfish.nested import map_nested

_ACTIVATIONS = (nn.Tanh, nn.ReLU)


class Tower(Chain):
    """A chain of layers that learns from some of its rows and passes the slopes of all of them on."""

    def forward(self, inputs: Tensor) -> Tensor:
        """The last layer's output, in memory that is kept for `descend`."""
        return super().forward(inputs) if self.linear else inputs

    def descend(self, slope: Tensor, gradients: dict[int, Tensor], learn: int) -> Tensor:
        """Writes the gradients of all parameters; gives the slope at the first layer, before its weights.

        :param slope: of the first rows of the last `forward`, at its output
        :param gradients: by `id` of the parameter, the memory to write into
        :param learn: rows, from the first on, whose slopes count for the parameters
        """
        rows = slope.shape[0]
        for index in range(len(self.linear) - 1, -1, -1):
            layer, below = self.linear[index], self._outputs[index - 1] if index else self._input
            assert below is not None
            _through(slope, self._outputs[index][:rows], self._kinds[index])
            torch.mm(slope[:learn].t(), below[:learn], out=gradients[id(layer.weight)])
            torch.sum(slope[:learn], 0, out=gradients[id(layer.bias)])
            if index:
                slope = torch.mm(slope, layer.weight, out=self._slopes[index - 1][:rows])
        return slope


class TidyOptimiser(FlatOptimiser):
    """Adam over flat memory, whose fading moments become 0 before they become denormal numbers.

    The moments of a ReLU that no longer fires shrink by a constant factor in every step; numbers too small
    for a float's usual form make a step of the CPU's Adam ten times slower. What is cut off is far below
    what can change a weight.
    """

    _every = 128  # 0.9 ** 128 is 1e-6: nothing falls from `_tiny` into the denormal numbers in between
    _tiny = 1e-30

    def attach(self) -> None:
        """Before a series of steps: take over a state that was loaded into the optimizer since."""
        super().attach()
        # Adam's own count, so that a resumed run cuts off at the same steps.
        self._count = 0 if self.moments is None else int(self.moments[2])

    def step(self, rate: Tensor | None = None) -> None:
        """One step along `gradient`."""
        super().step(rate)
        self._count += 1
        if self.moments is not None and self._count % self._every == 0:
            for moment in self.moments[:2]:
                moment.masked_fill_(moment.abs() < self._tiny, 0.0)


def is_plain(encoder: nn.Module, *heads: nn.Module) -> bool:
    """Whether a network can be written out: numbers in, linear layers with tanh or ReLU."""
    if not isinstance(encoder, Encoder | ActionEncoder):
        return False
    if isinstance(encoder, Encoder) and encoder.lstm is not None:
        return False
    if isinstance(encoder, ActionEncoder) and encoder.before is not None:
        return False
    leaves = all(isinstance(leaf, VectorLeaf | OnehotLeaf) for leaf in encoder.features.leaves)
    stacks = [encoder.mlp, *(_layers(head) for head in heads)]
    return leaves and all(isinstance(stack, nn.Sequential) and _simple(stack) for stack in stacks)


def _layers(head: nn.Module) -> nn.Module:
    return head.net if isinstance(head, GaussianHead) else head


def _simple(stack: nn.Sequential) -> bool:
    """Linear layers, each followed by at most one activation that can be written out."""
    linear = [isinstance(layer, nn.Linear) for layer in stack]
    known = all(
        is_linear or isinstance(layer, _ACTIVATIONS) for is_linear, layer in zip(linear, stack, strict=True)
    )
    return known and (not linear or linear[0]) and all(a or b for a, b in pairwise(linear))


def blend(mains: list[Tensor], targets: list[Tensor], tau: float) -> None:
    """Moves target networks towards the current ones: targets = tau * mains + (1 - tau) * targets."""
    if tau == 1.0:
        torch._foreach_copy_(targets, mains)
    else:
        torch._foreach_lerp_(targets, mains, tau)


def weights_of(parts: Iterable[nn.Module]) -> list[Tensor]:
    """Parameters and buffers of networks, in an order that is the same for a copy of them."""
    found = (tensor for part in parts for tensor in part.state_dict().values())
    return [tensor for tensor in found if tensor.is_floating_point()]


def limit(optimiser: FlatOptimiser, clip: float | None, by: str) -> Tensor | None:
    """Clips a gradient as RLlib's `grad_clip` says; gives its length before, where that decides."""
    if not clip:
        return None
    if by != "global_norm":
        optimiser.clip(clip, by)
        return None
    norm = torch.linalg.vector_norm(optimiser.gradient)
    optimiser.gradient.mul_((clip / (norm + 1e-6)).clamp_(max=1.0))
    return norm


def huber(delta: Tensor) -> Tensor:
    """Half the square up to 1, linear beyond."""
    size = delta.abs()
    return torch.where(size <= 1.0, 0.5 * delta * delta, size - 0.5)


class WrittenQ:
    """Advantages and values of discrete actions from plain layers; called without gradients."""

    def __init__(self, encoder: Any, af: Any, vf: Any | None) -> None:
        self._encoder = encoder
        self._trunk, self._af = Tower(list(encoder.mlp)), Tower(list(af))
        self._vf = Tower(list(vf)) if vf is not None else None

    def see(self, obs: Any) -> Tensor:
        """What the layers take of observations; the same for a copy of the network."""
        return self._encoder.features(obs)

    def __call__(self, seen: Tensor) -> tuple[Tensor, Tensor | None]:
        """(advantages, values or None); overwritten by the next call."""
        below = self._trunk.forward(seen)
        return self._af.forward(below), None if self._vf is None else self._vf.forward(below)

    def pair(self, seen: Tensor, size: int, valued: int) -> tuple[Tensor, Tensor | None]:
        """The same; only the first `size` rows will be learnt from, and the first `valued` need values."""
        below = self._trunk.forward(seen)
        return self._af.forward(below), None if self._vf is None else self._vf.forward(below[:valued])

    def learn(self, d_advantages: Tensor, d_values: Tensor | None, optimiser: FlatOptimiser) -> None:
        """Writes the gradients of all parameters, from slopes of the first rows."""
        gradients, rows = optimiser.gradients, d_advantages.shape[0]
        slope = self._af.descend(d_advantages, gradients, rows)
        slope = torch.mm(slope, self._af.linear[0].weight) if self._trunk.linear else slope
        if self._vf is not None:
            assert d_values is not None
            other = self._vf.descend(d_values, gradients, rows)
            if self._trunk.linear:
                slope.addmm_(other, self._vf.linear[0].weight)
        self._trunk.descend(slope, gradients, rows)


class DifferentiatedQ:
    """The same of any network; called without gradients, it keeps what it needs of them itself."""

    def __init__(self, encoder: Any, af: Any, vf: Any | None) -> None:
        self._encoder, self._af, self._vf = encoder, af, vf

    def see(self, obs: Any) -> Any:
        """Observations as they are."""
        return obs

    def __call__(self, seen: Any) -> tuple[Tensor, Tensor | None]:
        """(advantages, values or None)."""
        return self._heads(seen)

    def pair(self, seen: Any, size: int, valued: int) -> tuple[Tensor, Tensor | None]:
        """The same; only the first `size` rows will be learnt from, and the first `valued` need values."""
        with torch.enable_grad():
            self._out = self._heads(map_nested(lambda leaf: leaf[:size], seen))
        now = [None if part is None else part.detach() for part in self._out]
        rest = map_nested(lambda leaf: leaf[size:], seen)
        if not _rows(rest):
            return now[0], now[1]  # type: ignore[return-value]
        then = self(rest)
        joined = [None if b is None else torch.cat([a, b]) for a, b in zip(now, then, strict=True)]  # type: ignore[list-item]
        return joined[0], joined[1]  # type: ignore[return-value]

    def learn(self, d_advantages: Tensor, d_values: Tensor | None, optimiser: FlatOptimiser) -> None:
        """Adds up the gradients of all parameters."""
        optimiser.gradient.zero_()
        outs = [part for part in self._out if part is not None]
        torch.autograd.backward(outs, [slope for slope in (d_advantages, d_values) if slope is not None])

    def _heads(self, obs: Any) -> tuple[Tensor, Tensor | None]:
        features, _ = self._encoder.encode(obs)
        return self._af(features), None if self._vf is None else self._vf(features)


def q_function(encoder: Any, af: Any, vf: Any | None) -> WrittenQ | DifferentiatedQ:
    """The passes of a Q network: written out where it is plain."""
    plain = is_plain(encoder, af, *([] if vf is None else [vf]))
    return WrittenQ(encoder, af, vf) if plain else DifferentiatedQ(encoder, af, vf)


def _rows(tree: Any) -> int:
    while isinstance(tree, dict | tuple):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return int(tree.shape[0])
