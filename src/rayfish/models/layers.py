"""Layers from their names: activations, initialisers, fully connected stacks, convolutions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from rayfish.errors import ModelError, did_you_mean
from rayfish.models.options import ACTIVATIONS

_ACTIVATIONS: dict[str, type[nn.Module] | None] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "leakyrelu": nn.LeakyReLU,
    "sigmoid": nn.Sigmoid,
    "selu": nn.SELU,
    "linear": None,
    "none": None,
}


def activation(name: str | None) -> type[nn.Module] | None:
    """The activation class of this name; None for linear."""
    if name is None:
        return None
    if name.lower() not in _ACTIVATIONS:
        meant = did_you_mean(name.lower(), ACTIVATIONS)
        raise ModelError(
            f"no activation called {name!r}",
            f"did you mean {meant[0]!r}?" if meant else f"one of {', '.join(ACTIVATIONS)}",
        )
    return _ACTIVATIONS[name.lower()]


def initialise(layer: nn.Module, model: Mapping[str, Any], stack: str) -> None:
    """Apply the `<stack>_kernel_initializer` and `<stack>_bias_initializer` of a model section.

    Weights are the parameters with two axes or more, so this serves Linear, Conv2d and LSTM alike.
    """
    for part, is_weight in (("kernel", True), ("bias", False)):
        name = model.get(f"{stack}_{part}_initializer")
        if name is None:
            continue
        function = getattr(torch.nn.init, name if name.endswith("_") else f"{name}_", None)
        if function is None:
            raise ModelError(
                f"{stack}_{part}_initializer: torch.nn.init has no function {name!r}",
                "see https://pytorch.org/docs/stable/nn.init.html",
            )
        kwargs = model.get(f"{stack}_{part}_initializer_kwargs") or {}
        for parameter in layer.parameters():
            if (parameter.dim() >= 2) == is_weight:
                try:
                    function(parameter, **kwargs)
                except (TypeError, ValueError) as error:
                    raise ModelError(
                        f"{stack}_{part}_initializer {name!r} failed on a tensor of shape "
                        f"{tuple(parameter.shape)}: {error}",
                        f"check {stack}_{part}_initializer_kwargs ({kwargs})",
                    ) from error


def mlp(
    inputs: int, hiddens: Sequence[int], act: str | None, model: Mapping[str, Any], stack: str
) -> nn.Sequential:
    """A fully connected stack: Linear, (LayerNorm,) activation, for each size in `hiddens`."""
    layers: list[nn.Module] = []
    size = inputs
    for width in hiddens:
        linear = nn.Linear(size, int(width))
        initialise(linear, model, stack)
        layers.append(linear)
        if model.get(f"{stack}_use_layernorm"):
            layers.append(nn.LayerNorm(int(width), eps=1e-3))
        if (cls := activation(act)) is not None:
            layers.append(cls())
        size = int(width)
    return nn.Sequential(*layers)


def head(inputs: int, outputs: int, model: Mapping[str, Any]) -> nn.Sequential:
    """A head: `head_fcnet_hiddens`, then one linear layer to `outputs` numbers."""
    hiddens = model["head_fcnet_hiddens"]
    stack = mlp(inputs, hiddens, model["head_fcnet_activation"], model, "head_fcnet")
    last = nn.Linear(int(hiddens[-1]) if hiddens else inputs, outputs)
    initialise(last, model, "head_fcnet")
    stack.append(last)
    return stack


def convolutions(
    height: int, width: int, channels: int, filters: Sequence[Sequence[Any]], model: Mapping[str, Any]
) -> tuple[nn.Sequential, int]:
    """Convolutions with "same" padding, flattened, and how many numbers come out."""
    layers: list[nn.Module] = []
    for out, kernel, stride in filters:
        kernel_h, kernel_w = _pair(kernel)
        stride_h, stride_w = _pair(stride)
        left, right, next_width = _same(width, kernel_w, stride_w)
        top, bottom, next_height = _same(height, kernel_h, stride_h)
        symmetric = left == right and top == bottom
        if not symmetric:
            layers.append(nn.ZeroPad2d((left, right, top, bottom)))
        padding = (top, left) if symmetric else 0
        layer = nn.Conv2d(channels, int(out), (kernel_h, kernel_w), (stride_h, stride_w), padding=padding)
        initialise(layer, model, "conv")
        layers.append(layer)
        if (cls := activation(model["conv_activation"])) is not None:
            layers.append(cls())
        channels, height, width = int(out), next_height, next_width
    layers.append(nn.Flatten())
    return nn.Sequential(*layers), channels * height * width


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    first, second = value
    return int(first), int(second)


def _same(size: int, kernel: int, stride: int) -> tuple[int, int, int]:
    """(padding before, padding after, output size) so that the output is ceil(size / stride)."""
    output = math.ceil(size / stride)
    total = max((output - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2, output
