"""Private operations of torch on many tensors in one call; see `tests/compat/test_torch_internals.py`.

Each is the step of one small network's update, which takes tens of microseconds: a loop over the tensors, or
the public way through an optimizer's own bookkeeping, takes as long as the rest of the update.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def adam_step(
    weights: Tensor,
    gradient: Tensor,
    average: Tensor,
    square: Tensor,
    count: Tensor,
    *,
    group: dict[str, Any],
    rate: float | Tensor,
) -> None:
    """One step of Adam in place, by the kernel behind `torch.optim.Adam(fused=True)`.

    The public optimizer groups its tensors by device and type again in every step, and reads the learning
    rate as a number, which a CUDA graph would keep. Without this: `optimizer.step()`, no recorded epochs.

    :param average: first moment; `square` is the second
    :param count: steps so far, this one included
    :param group: of the optimizer, for everything but the learning rate
    """
    torch._fused_adam_(
        [weights],
        [gradient],
        [average],
        [square],
        [],
        [count],
        lr=rate,
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=group["maximize"],
        grad_scale=None,
        found_inf=None,
    )


def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copies each source into its target. Without this: `target.copy_(source)` in a loop."""
    torch._foreach_copy_(targets, sources)


def lerp_all(targets: list[Tensor], sources: list[Tensor], weight: float) -> None:
    """targets += weight * (sources - targets). Without this: `target.lerp_(source, weight)` in a loop."""
    torch._foreach_lerp_(targets, sources, weight)
