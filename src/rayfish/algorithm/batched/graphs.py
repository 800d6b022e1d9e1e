"""Work over fixed memory, recorded once as a CUDA graph and replayed without Python in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_BEFORE_RECORDING = 2  # calls that run as they are: libraries choose their kernels, memory is laid out


class Replayed:
    """A function without arguments whose tensors stay where they are; on a CPU it is simply called.

    Every call is one execution, recorded or not: the first ones run as they are. The result is overwritten
    by the next call.

    :param after: calls that run as they are before one is recorded
    """

    def __init__(self, function: Callable[[], Any], device: torch.device, after: int = 0) -> None:
        self._function = function
        self._after = after
        self._on_gpu = device.type == "cuda"
        self._calls = 0
        self._graph: Any = None
        self._result: Any = None

    def __call__(self) -> Any:
        """Do the work once."""
        if not self._on_gpu:
            return self._function()
        self._calls += 1
        if self._calls <= max(_BEFORE_RECORDING, self._after):
            return self._on_side_stream()
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):  # records, without executing anything
                self._result = self._function()
        self._graph.replay()
        return self._result

    def _on_side_stream(self) -> Any:
        """Run on another stream, as recording will."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self._function()
        torch.cuda.current_stream().wait_stream(stream)
        return result
