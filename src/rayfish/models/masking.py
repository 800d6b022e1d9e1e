"""Forbidden actions: a mask of 0 and 1 beside the observation takes them out of every choice."""

from __future__ import annotations

import torch
from torch import Tensor

MASKED = -1e9
"""Logit of a forbidden action: its probability is exactly 0 in float32, and sums stay finite."""


def mask_logits(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits with the forbidden actions (mask 0) at `MASKED`."""
    return torch.where(mask > 0, logits, MASKED)


def mask_values(values: Tensor, mask: Tensor) -> Tensor:
    """Q values with the forbidden actions at `MASKED`.

    A mask that forbids everything (terminal states, padding) forbids nothing here, or the target
    of a truncated step would be `MASKED`.
    """
    allowed = mask > 0
    allowed = allowed | ~allowed.any(dim=-1, keepdim=True)
    return torch.where(allowed, values, MASKED)
