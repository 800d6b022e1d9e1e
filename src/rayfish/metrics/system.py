"""The machine's load as metrics: processor, memory, GPU. Well under a millisecond per reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rayfish.compat.ray_internals import bundled_pynvml
from rayfish.metrics import names


class SystemUsage:
    """Reads the load of this machine; NVIDIA GPUs included."""

    def __init__(self) -> None:
        import psutil

        self._psutil = psutil
        self._process = psutil.Process()
        self._nvml, self._gpus = _gpus()
        psutil.cpu_percent()  # The first call only starts the clock of the next.

    def read(self) -> dict[str, float]:
        """The `system/*` metrics since the last reading."""
        line: dict[str, float] = {
            names.CPU: self._psutil.cpu_percent(),
            names.RAM: self._psutil.virtual_memory().percent,
            names.PROCESS_RAM: round(self._process.memory_info().rss / 1e9, 3),
        }
        if not self._gpus:
            return line
        try:
            loads = [self._nvml.nvmlDeviceGetUtilizationRates(gpu).gpu for gpu in self._gpus]
            memory = [self._nvml.nvmlDeviceGetMemoryInfo(gpu) for gpu in self._gpus]
        except Exception:  # A GPU that falls off the bus must not end the training.
            self._gpus = []
            return line
        line[names.GPU] = float(max(loads))
        line[names.GPU_MEMORY] = max(100.0 * info.used / info.total for info in memory)
        return line


def _gpus() -> tuple[Any, list[Any]]:
    """NVIDIA's library and its handle of each GPU; none where there is no library or no device."""
    if not Path("/proc/driver/nvidia").is_dir():
        return None, []
    try:
        try:
            import pynvml
        except ImportError:
            pynvml = bundled_pynvml()
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        return pynvml, [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    except Exception:
        return None, []
