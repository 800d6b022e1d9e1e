"""Generalised advantage estimation (https://arxiv.org/abs/1506.02438) over whole [T, N] arrays."""

from __future__ import annotations

import torch
from torch import Tensor


def advantages(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    *,
    terminated: Tensor,
    done: Tensor,
    valid: Tensor | None,
    gamma: float,
    lambda_: float,
) -> Tensor:
    """The advantage of every step; one operation on [N] per step of time.

    :param next_values: value of what each step led to; for a step that ended an episode, of the true
        final observation (not of the first one of the next episode)
    :param terminated: nothing comes after the step: its next value counts as 0
    :param done: the episode ended there, so nothing is summed across it
    :param valid: false where a slot only waited: such entries neither count nor interrupt
    """
    delta = torch.where(terminated, rewards, rewards + gamma * next_values) - values
    keep = torch.where(done, 0.0, gamma * lambda_).to(delta.dtype)
    if valid is not None:
        delta = torch.where(valid, delta, 0.0)
        keep = torch.where(valid, keep, 1.0)
    result = torch.empty_like(delta)
    after = torch.zeros_like(delta[0])
    steps = zip(reversed(delta.unbind(0)), reversed(keep.unbind(0)), reversed(result.unbind(0)), strict=True)
    for now, factor, out in steps:
        after = torch.addcmul(now, factor, after, out=out)
    return result


def following(
    values: Tensor, last: Tensor, final: Tensor, *, done: Tensor, final_index: Tensor | None
) -> Tensor:
    """`next_values` for `advantages`: [T, N] values moved up by one step.

    :param last: [N] values of the observations after the last step
    :param final: values of the true final observations: one for each of `final_index` (`t * N + n` of
        the steps that ended an episode), or [T, N] without it
    """
    moved = torch.cat([values[1:], last.unsqueeze(0)])
    if final_index is None:
        return torch.where(done, final, moved)
    moved.view(-1)[final_index] = final
    return moved
