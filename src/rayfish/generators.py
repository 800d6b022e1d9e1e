"""The global random generators of a process: Python's, NumPy's and, where it is imported, torch's."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def generators() -> dict[str, Any]:
    """Their states, as plain CPU values; torch, where it is not imported, has drawn nothing yet."""
    torch = sys.modules.get("torch")
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": None,
        "cuda": [],
    }
    if torch is not None:
        state["torch"] = torch.get_rng_state().numpy()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = [one.numpy() for one in torch.cuda.get_rng_state_all()]
    return state


def set_generators(state: dict[str, Any]) -> None:
    """Puts states back; those of GPUs that are not here are left out."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    if state["torch"] is None:
        return
    import torch

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
