"""The global random generators of a process: Python's, NumPy's and torch's, GPUs included."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def generators() -> dict[str, Any]:
    """Their states, as plain CPU values."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state().numpy(),
        "cuda": [state.numpy() for state in torch.cuda.get_rng_state_all()] if _uses_cuda() else [],
    }


def set_generators(state: dict[str, Any]) -> None:
    """Puts states back; those of GPUs that are not here are left out."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(torch.from_numpy(state["torch"].copy()))
    if state["cuda"] and torch.cuda.is_available():
        for index, one in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(torch.from_numpy(one.copy()), index)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Whatever is drawn inside the block is as if it had not been drawn."""
    state = generators()
    try:
        yield
    finally:
        set_generators(state)


def _uses_cuda() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()
