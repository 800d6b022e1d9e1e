"""Fires on an NVIDIA GPU: one block of threads per fire, the cell functions of the CPU (extra `cuda`).

    fires = CudaFires(simulator)      # a Simulator of the physics behave, at its current state
    fires.run(1000)
    fires.copy_back()                 # the simulator goes on from here

Times are integers and the earliest arrival wins whatever comes first, so maps are equal to the CPU's, cell
for cell; only the order of lists differs. Not here: embers, and winds that change with time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire.fire.behave import Behave
from rayfish.worlds.wildfire.fire.simulator import Simulator
from rayfish.worlds.wildfire.fire.spread import Fires

THREADS = 64
MOST_CELLS = 48_000  # a map has to fit into a block's shared memory, a byte per cell


class CudaFires:
    """The fires of a simulator, moved to the GPU; `copy_back` moves them back."""

    def __init__(self, simulator: Simulator) -> None:
        cuda = _cuda()
        from rayfish.worlds.wildfire.fire.cuda_kernel import LISTS, run

        engine, spotting = simulator.engine, simulator.settings.fire.spotting
        if not isinstance(engine, Behave):
            raise RayfishError("fires of the physics simfire stay on the CPU", "use physics behave")
        if engine.changes or (spotting and spotting.probability):
            raise RayfishError(
                "embers and winds that change with time are not made on the GPU",
                "run this simulator on the CPU",
            )
        number, cells = engine.fires.fire_map.shape
        if cells > MOST_CELLS:
            raise RayfishError(
                f"a map of {cells:,} cells does not fit into the GPU's shared memory",
                f"use at most {MOST_CELLS:,} cells (219 x 219), or the CPU",
            )
        self._engine, self._kernel = engine, run
        self._state = {name: cuda.to_device(getattr(engine.fires, name)) for name in _MOVED}
        self._lists = cuda.device_array((number, LISTS, cells), np.int32)
        tables = engine.tables()
        self._tables = [cuda.to_device(part) for part in (tables.costs, tables.of, tables.substeps)]
        self._limits = cuda.to_device(engine.limits)

    def run(self, updates: int = 1) -> None:
        """Advances all fires; returns when the GPU has done it."""
        cuda, engine = _cuda(), self._engine
        number, cells = engine.fires.fire_map.shape
        self._kernel[number, THREADS, 0, 4 * -(-cells // 4)](
            *(self._state[name] for name in _MOVED),
            self._lists,
            *self._tables,
            self._limits,
            np.int32(updates),
            *(np.int32(rule) for rule in engine.rules),
        )
        cuda.synchronize()

    def fire_map(self) -> np.ndarray:
        """Codes of all cells, [N, H, W], copied from the GPU."""
        return self._state["fire_map"].copy_to_host().reshape(-1, *self._engine.shape)

    def copy_back(self) -> None:
        """The simulator's fires become these."""
        for name, there in self._state.items():
            there.copy_to_host(getattr(self._engine.fires, name))


_MOVED = Fires._fields


def _cuda() -> Any:
    try:
        from numba import cuda
    except ImportError as error:
        raise RayfishError("numba cannot reach CUDA here", "pip install 'rayfish[cuda]'") from error
    if not cuda.is_available():
        raise RayfishError("no NVIDIA GPU is in reach", "run the Simulator itself: it is made for the CPU")
    return cuda
