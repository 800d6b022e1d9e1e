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
        self._gpus = _Gpus()
        psutil.cpu_percent()  # The first call only starts the clock of the next.

    def read(self) -> dict[str, float]:
        """The `system/*` metrics since the last reading."""
        line: dict[str, float] = {
            names.CPU: self._psutil.cpu_percent(),
            names.RAM: self._psutil.virtual_memory().percent,
            names.PROCESS_RAM: round(self._process.memory_info().rss / 1e9, 3),
        }
        return line | self._gpus.read()


class _Gpus:
    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        if not Path("/proc/driver/nvidia").is_dir():
            return
        try:
            try:
                import pynvml
            except ImportError:
                pynvml = bundled_pynvml()
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
            self._nvml = pynvml
        except Exception:  # No library or no device: there is nothing to report.
            self._handles = []

    def read(self) -> dict[str, float]:
        if not self._handles:
            return {}
        try:
            loads = [self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in self._handles]
            memory = [self._nvml.nvmlDeviceGetMemoryInfo(handle) for handle in self._handles]
        except Exception:  # A GPU that falls off the bus must not end the training.
            self._handles = []
            return {}
        return {
            names.GPU: float(max(loads)),
            names.GPU_MEMORY: max(100.0 * info.used / info.total for info in memory),
        }
