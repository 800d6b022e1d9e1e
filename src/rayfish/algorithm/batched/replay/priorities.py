"""Drawing in proportion to priorities: one number per place, with sums and minima over blocks of them.

Two levels in place of a binary tree: a draw is a search among the blocks' sums and one inside a block,
each a handful of vectorised operations for the whole batch, on the CPU as on a GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 64


class Priorities:
    """Numbers of `size` places, 0 for what cannot be drawn."""

    def __init__(self, size: int, device: torch.device | str = "cpu") -> None:
        blocks = -(-size // _BLOCK)
        self._leaves = torch.zeros(blocks * _BLOCK, dtype=torch.float64, device=device)
        self._grid = self._leaves.view(blocks, _BLOCK)
        self._sums = torch.zeros(blocks, dtype=torch.float64, device=device)
        self._lows = torch.full((blocks,), torch.inf, dtype=torch.float64, device=device)

    def put(self, places: Tensor, values: Tensor) -> None:
        """Gives places new priorities."""
        self._leaves.index_copy_(0, places, values.to(torch.float64))
        touched = places // _BLOCK
        rows = self._grid.index_select(0, touched)
        self._sums.index_copy_(0, touched, rows.sum(dim=1))
        self._lows.index_copy_(0, touched, rows.masked_fill_(rows == 0, torch.inf).amin(dim=1))

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(places, their priorities), each drawn by itself in proportion to its priority."""
        ends = self._sums.cumsum(0)
        drawn = torch.rand(count, dtype=torch.float64, device=ends.device, generator=generator) * ends[-1]
        drawn = torch.minimum(drawn, _just_below(ends[-1]))
        block = torch.searchsorted(ends, drawn, right=True)
        inside = self._grid.index_select(0, block).cumsum(dim=1)
        # Sums of sums round otherwise than sums: what is left must still lie inside the block.
        rest = drawn - (ends[block] - self._sums[block])
        rest = torch.minimum(rest.clamp_(min=0.0), _just_below(inside[:, -1]))
        leaf = (inside <= rest.unsqueeze(1)).sum(dim=1)
        places = block * _BLOCK + leaf
        return places, self._leaves.index_select(0, places)

    def of(self, places: Tensor) -> Tensor:
        """The priorities of places."""
        return self._leaves.index_select(0, places)

    def lowest(self) -> Tensor:
        """The lowest priority above 0."""
        return self._lows.min()

    def read(self, count: int) -> tuple[Tensor, Tensor]:
        """(the first `count` numbers, the sums of all blocks), for saving."""
        return self._leaves[:count].clone(), self._sums.clone()

    def load(self, leaves: Tensor, sums: Tensor) -> None:
        """Takes back what `read` gave."""
        self._leaves[: leaves.numel()] = leaves
        self._sums.copy_(sums)
        self._lows.copy_(self._grid.masked_fill(self._grid == 0, torch.inf).amin(dim=1))


def _just_below(value: Tensor) -> Tensor:
    return torch.nextafter(value, torch.zeros((), dtype=value.dtype, device=value.device))
