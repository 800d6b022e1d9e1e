"""From an observation of any supported space to a feature vector, with or without memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rayfish.models.layers import convolutions, initialise, mlp
from rayfish.models.spaces import (
    Leaf,
    default_filters,
    image_layout,
    leaves,
    onehot_sizes,
    split_mask,
    without_mask,
)

State = dict[str, Any]
"""Recurrent state: tensors by name, first axis the batch; empty for a model without memory."""


class VectorLeaf(nn.Module):
    """A Box or MultiBinary leaf: flattened numbers as float32; bytes scaled to 0..1."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.axes = len(leaf.space.shape)
        self.scale = byte_scale(leaf.space)
        self.size = int(np.prod(leaf.space.shape))

    def forward(self, x: Tensor) -> Tensor:
        """(..., *shape) to (..., size)."""
        x = _flattened(x, self.axes).float()
        return x * self.scale if self.scale is not None else x


class OnehotLeaf(nn.Module):
    """A Discrete or MultiDiscrete leaf: one-hot, the components one after the other."""

    offsets: Tensor
    starts: Tensor
    lasts: Tensor

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        sizes, starts = onehot_sizes(leaf.space)
        self.axes = len(leaf.space.shape)
        self.size = sum(sizes)
        offsets = np.cumsum([0, *sizes[:-1]])
        self.register_buffer("offsets", torch.as_tensor(offsets, dtype=torch.int64), persistent=False)
        self.register_buffer("starts", torch.as_tensor(starts, dtype=torch.int64), persistent=False)
        self.register_buffer("lasts", torch.as_tensor(sizes, dtype=torch.int64) - 1, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., *shape) of category numbers to (..., size)."""
        x = _flattened(x, self.axes)
        # Padded steps of a sequence are zero, which lies outside a space that starts elsewhere.
        index = torch.minimum((x.long() - self.starts).clamp_(min=0), self.lasts) + self.offsets
        out = torch.zeros((*index.shape[:-1], self.size), device=x.device)
        return out.scatter_(-1, index, 1.0)


class ImageLeaf(nn.Module):
    """An image leaf: channels first, scaled to 0..1, through convolutions."""

    def __init__(self, leaf: Leaf, model: Mapping[str, Any]) -> None:
        super().__init__()
        assert isinstance(leaf.space, gym.spaces.Box)
        height, width, channels, self.channels_first = image_layout(leaf.space)
        self.shape = leaf.space.shape
        self.scale = byte_scale(leaf.space)
        filters = model["conv_filters"] or default_filters(height, width)
        self.net, self.size = convolutions(height, width, channels, filters, model)

    def forward(self, x: Tensor) -> Tensor:
        """(..., *shape) to (..., size)."""
        lead = x.shape[: x.dim() - len(self.shape)]
        x = x.reshape(-1, *self.shape)
        if len(self.shape) == 2:
            x = x.unsqueeze(1)
        elif not self.channels_first:
            x = x.permute(0, 3, 1, 2)
        x = x.float()
        if self.scale is not None:
            x = x * self.scale
        out = self.net(x)
        return out if len(lead) == 1 else out.reshape(*lead, self.size)


class Features(nn.Module):
    """Every leaf of an observation encoded, one after the other, as one vector."""

    def __init__(self, space: gym.Space, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.space = space
        seen, _ = split_mask(space)
        found = leaves(seen, convolve=bool(model["conv_filters"]))
        self.paths = [leaf.path for leaf in found]
        self.leaves = nn.ModuleList([_leaf(leaf, model) for leaf in found])
        self.size = sum(int(leaf.size) for leaf in self.leaves)  # type: ignore[arg-type]

    def forward(self, observation: Any) -> Tensor:
        """An observation (nested tensors with leading batch axes) to (..., size)."""
        seen = without_mask(observation, self.space)
        if len(self.paths) == 1 and not self.paths[0]:
            return self.leaves[0](seen)
        parts = []
        for path, leaf in zip(self.paths, self.leaves, strict=True):
            value = seen
            for key in path:
                value = value[key]
            parts.append(leaf(value))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


class Encoder(nn.Module):
    """Observation to features: leaves, fully connected layers, and an LSTM if asked for.

    With an LSTM the input has a time axis after the batch axis, and the state's first axis is the
    batch.
    """

    def __init__(self, space: gym.Space, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.features = Features(space, model)
        hiddens = model["fcnet_hiddens"]
        self.mlp = mlp(self.features.size, hiddens, model["fcnet_activation"], model, "fcnet")
        self.size = int(hiddens[-1]) if hiddens else self.features.size
        self.lstm: nn.LSTM | None = None
        if model["use_lstm"]:
            self.lstm = nn.LSTM(self.size, int(model["lstm_cell_size"]), batch_first=True)
            initialise(self.lstm, model, "lstm")
            self.size = int(model["lstm_cell_size"])

    def initial_state(self) -> State:
        """The state at the start of an episode, without a batch axis; {} without memory."""
        if self.lstm is None:
            return {}
        return {"h": torch.zeros(self.size), "c": torch.zeros(self.size)}

    def encode(self, observation: Any, state: State | None = None) -> tuple[Tensor, State]:
        """(features, next state)."""
        out = self.mlp(self.features(observation))
        if self.lstm is None:
            return out, {}
        assert state is not None
        before = (state["h"].unsqueeze(0).contiguous(), state["c"].unsqueeze(0).contiguous())
        out, (h, c) = self.lstm(out, before)
        return out, {"h": h.squeeze(0), "c": c.squeeze(0)}


class ActionEncoder(nn.Module):
    """Observation and action to features, for Q(observation, action).

    The action meets the observation at the first fully connected layer; with `fusionnet_hiddens`,
    the observation passes `fcnet_hiddens` first.
    """

    def __init__(self, space: gym.Space, action_size: int, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.features = Features(space, model)
        size = self.features.size
        fused = model["fusionnet_hiddens"]
        self.before: nn.Module | None = None
        if fused is not None:
            self.before = mlp(size, model["fcnet_hiddens"], model["fcnet_activation"], model, "fcnet")
            size = int(model["fcnet_hiddens"][-1]) if model["fcnet_hiddens"] else size
        hiddens = model["fcnet_hiddens"] if fused is None else fused
        act = model["fcnet_activation"] if fused is None else model["fusionnet_activation"]
        self.mlp = mlp(size + action_size, hiddens, act, model, "fcnet")
        self.size = int(hiddens[-1]) if hiddens else size + action_size

    def encode(self, observation: Any, action: Tensor) -> Tensor:
        """Features of (observation, action)."""
        out = self.features(observation)
        if self.before is not None:
            out = self.before(out)
        return self.mlp(torch.cat([out, action.float()], dim=-1))


def byte_scale(space: gym.Space) -> float | None:
    """1/255 for numbers that run from 0 to 255, None otherwise."""
    if not isinstance(space, gym.spaces.Box) or space.low.size == 0:
        return None
    return 1.0 / 255.0 if space.low.min() == 0 and space.high.max() == 255 else None


def _flattened(x: Tensor, axes: int) -> Tensor:
    if axes == 1:
        return x
    return x.flatten(-axes) if axes else x.unsqueeze(-1)


def _leaf(leaf: Leaf, model: Mapping[str, Any]) -> nn.Module:
    if leaf.kind == "onehot":
        return OnehotLeaf(leaf)
    return ImageLeaf(leaf, model) if leaf.kind == "image" else VectorLeaf(leaf)
