"""A rollout of a recurrent policy cut into sequences of at most so many steps, padded to equal length.

A sequence never crosses the end of an episode; it starts with the state the policy had there while
sampling (truncated backpropagation through time).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rayfish.algorithm.batched.rollout import Rollout, Tree
from rayfish.nested import map_nested


@dataclass
class Sequences:
    """Where each step of a rollout is in the padded form.

    :param index: [S, L] `t * N + n` of each step; padding repeats the first step of its sequence
    :param weight: [S, L] 1 for steps, 0 for padding
    """

    index: Tensor
    weight: Tensor
    shape: tuple[int, int]

    def gather(self, tree: Tree) -> Tree:
        """[T, N, ...] to [S, L, ...]."""
        return map_nested(lambda leaf: leaf.flatten(0, 1)[self.index], tree)

    def first(self, tree: Tree) -> Tree:
        """[T, N, ...] to [S, ...]: the entry at the start of each sequence."""
        return map_nested(lambda leaf: leaf.flatten(0, 1)[self.index[:, 0]], tree)

    def scatter(self, padded: Tensor) -> Tensor:
        """[S, L] back to [T, N]; 0 where there was no step."""
        steps, slots = self.shape
        out = padded.new_zeros(steps * slots)
        real = self.weight > 0
        out[self.index[real]] = padded[real]
        return out.view(steps, slots)


def split(rollout: Rollout, longest: int) -> Sequences:
    """The sequences of a rollout, slot by slot in the order of time, padded to the longest allowed."""
    steps, slots = rollout.shape
    device = rollout.rewards.device
    valid = rollout.valid if rollout.valid is not None else torch.ones_like(rollout.done)
    # Column by column, so that the steps of one slot follow one another.
    flat_valid = valid.t().reshape(-1)
    done = rollout.done.t().reshape(-1)
    time = torch.arange(steps, device=device).repeat(slots)
    before = torch.ones_like(done)
    before[1:] = done[:-1] | ~flat_valid[:-1]
    starts = (time == 0) | before
    place = torch.arange(steps * slots, device=device)
    since = place - torch.cummax(torch.where(starts, place, 0), 0).values
    starts = starts | (since % longest == 0)
    real = flat_valid.nonzero().squeeze(-1)
    number = torch.cumsum(starts[real].long(), 0) - 1
    count = int(number[-1]) + 1 if len(real) else 0
    offset = (since % longest)[real]
    source = time[real] * slots + real // steps
    first = source[starts[real]]
    index = first.unsqueeze(1).repeat(1, longest)
    weight = torch.zeros(count, longest, device=device)
    index[number, offset] = source
    weight[number, offset] = 1.0
    return Sequences(index, weight, (steps, slots))
