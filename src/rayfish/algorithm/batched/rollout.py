"""Experience as a few large arrays: T steps of N slots, written in place while sampling.

A slot is one environment, or one agent of one environment. Leaves are torch tensors on the device
where actions are chosen; a tree (dict or tuple) of them where observations are nested.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rayfish.nested import map_nested

Tree = Any
"""A tensor, or a dict or tuple of trees."""

_COUNTS = ("stream", "env_steps")


@dataclass
class Rollout:
    """What a sampler collected, and what a learner or a replay buffer takes.

    :param obs: [T, N, ...] what was seen before each step
    :param actions: [T, N, ...] as the policy chose them (not yet scaled to the environment's bounds)
    :param terminated: [T, N] the step ended the episode for good: nothing comes after it
    :param done: [T, N] the step ended the episode, by itself or by a time limit
    :param valid: [T, N] false where a slot only waited (an environment that resets in a step of its
        own, an agent that is away); None when every entry is a step
    :param last_obs: [N, ...] what was seen after the last step
    :param final_index: [K] `t * N + n` of the steps that ended an episode, ascending; None when
        `final_obs` is [T, N, ...], with what every step led to
    :param final_obs: [K, ...] the true last observation of each of those episodes
    :param extras: [T, N, ...] what the policy returned besides the action, by name
    :param states: [T, N, ...] a recurrent policy's state before each step; None without memory
    :param last_state: [N, ...] its state after the last step
    :param final_state: [K, ...] its state at each final observation
    :param stream: number of the process that sampled it; its next rollout continues the slots of this one
    :param env_steps: steps of environments in it: fewer than those of slots where these are agents
    """

    obs: Tree
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    done: Tensor
    valid: Tensor | None
    last_obs: Tree
    final_index: Tensor | None
    final_obs: Tree
    extras: dict[str, Tensor] = field(default_factory=dict)
    states: Tree | None = None
    last_state: Tree | None = None
    final_state: Tree | None = None
    stream: int = 0
    env_steps: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(T, N)."""
        steps, slots = self.rewards.shape
        return int(steps), int(slots)

    def __len__(self) -> int:
        """Steps that were really taken."""
        return int(self.rewards.numel() if self.valid is None else self.valid.sum())

    def to(self, device: torch.device | str) -> Rollout:
        """The same on another device; itself where it is there already."""
        if self.rewards.device == torch.device(device):
            return self
        return self._mapped(lambda leaf: leaf.to(device, non_blocking=True))

    def copy(self) -> Rollout:
        """A copy of its own; a sampler writes its next rollout into the same memory."""
        return self._mapped(torch.clone)

    def columns(self, start: int, stop: int) -> Rollout:
        """The slots `start` to `stop` alone, as one learner of several takes them."""
        _, slots = self.shape
        dense = ["obs", "actions", "rewards", "terminated", "done", "valid", "states", "extras"]
        cut = replace(self)
        if self.final_index is None:
            dense.append("final_obs")
        else:
            slot = self.final_index % slots
            mine = (slot >= start) & (slot < stop)
            cut.final_index = self.final_index[mine] // slots * (stop - start) + slot[mine] - start
            for name in ("final_obs", "final_state"):
                setattr(cut, name, map_nested(lambda leaf: leaf[mine], getattr(self, name)))
        for name in dense:
            setattr(cut, name, map_nested(lambda leaf: leaf[:, start:stop], getattr(self, name)))
        for name in ("last_obs", "last_state"):
            setattr(cut, name, map_nested(lambda leaf: leaf[start:stop], getattr(self, name)))
        return cut

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> Rollout:
        changed: dict[str, Any] = {
            name: map_nested(function, value) for name, value in vars(self).items() if name not in _COUNTS
        }
        return Rollout(**changed, stream=self.stream, env_steps=self.env_steps)

    def __getstate__(self) -> dict[str, Any]:
        """Between processes as NumPy arrays, which Ray moves without copying."""
        return {
            name: value if name in _COUNTS else map_nested(lambda leaf: leaf.cpu().numpy(), value)
            for name, value in vars(self).items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Tensors again, over the memory of the arrays; nothing writes to them."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not writable")
            for name, value in state.items():
                setattr(self, name, value if name in _COUNTS else map_nested(torch.from_numpy, value))
