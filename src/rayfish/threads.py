"""How many threads torch gets: by the size of a computation and the cores, never by the load.

A number that followed the load would make runs differ bit by bit. Threads wait for each other after every
layer: on idle cores two of them are at most twice as fast, on busy ones up to thirteen times as slow
(measured, a convolutional policy on one observation). So only long computations get more than one.
`OMP_NUM_THREADS`, where it is set, decides alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gymnasium as gym
    from torch import nn

VARIABLE = "OMP_NUM_THREADS"

WORK_PER_THREAD = 1e9
"""Multiplications of one computation that a thread is worth: about 0.1 s of a core."""

BACKWARD = 3
"""An update costs three times the forward pass."""


def machine_cpus() -> int:
    """CPUs this process may use: affinity and container limit considered."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = Path("/sys/fs/cgroup/cpu.max")
    if limit.is_file():
        quota, _, period = limit.read_text().strip().partition(" ")
        if quota != "max" and period:
            count = min(count, max(1, int(quota) // int(period)))
    return count


def fitting(multiplications: float) -> int:
    """The number of threads for a computation of that size: at most one for every two cores.

    Two of them often share the units that multiply, and what else runs on the machine finds room.
    """
    worth = int(multiplications / WORK_PER_THREAD)
    return 1 if worth < 2 else max(1, min(machine_cpus() // 2, worth))


def use(count: int) -> None:
    """From now on so many threads in this process, unless `OMP_NUM_THREADS` decides."""
    if VARIABLE not in os.environ:
        import torch

        torch.set_num_threads(count)


@contextmanager
def limited_to(count: int) -> Iterator[None]:
    """So many threads in the block, unless `OMP_NUM_THREADS` decides."""
    import torch

    before = torch.get_num_threads()
    if before == count or VARIABLE in os.environ:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def multiplications(module: nn.Module, observation_space: gym.Space | None) -> float:
    """About how many a network does for one observation: the size of its weights, per place of an image.

    Convolutions follow each other from the image on; one that takes as many channels as the first one
    begins another tower.
    """
    image = _pixels(observation_space)
    total, places, channels = 0.0, image, None
    for part in module.modules():
        weights = [weight for weight in part.parameters(recurse=False) if weight.dim() > 1]
        if not getattr(part, "stride", None) or not hasattr(part, "in_channels"):
            total += sum(weight.numel() for weight in weights)
            continue
        if channels in (None, part.in_channels):
            places, channels = image, part.in_channels
        for step in part.stride if isinstance(part.stride, tuple) else (part.stride,):
            places = max(1.0, places / step)
        total += places * sum(weight.numel() for weight in weights)
    return total


def _pixels(space: Any) -> float:
    """Height times width of the largest image in the observations; 1 without any."""
    parts = getattr(space, "spaces", None)
    if parts is not None:
        return max(map(_pixels, parts.values() if isinstance(parts, Mapping) else parts), default=1.0)
    shape = getattr(space, "shape", None) or ()
    height, width = sorted(shape)[-2:] if len(shape) >= 3 else (1, 1)
    return float(height * width)
