"""Imports what an algorithm needs while Ray's processes start, and leaves out what costs time for nothing."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from importlib import import_module
from typing import Any


def import_ahead(name: str) -> None:
    """Imports torch, RLlib and the named algorithm; what cannot be imported is left to whoever needs it."""
    with _quick_imports():
        with suppress(ImportError, AttributeError):
            leave_out_compiler()
        for module in (
            "rayfish.algorithm.build",
            f"ray.rllib.algorithms.{name.lower()}",
            "rayfish.algorithm.workers",
        ):
            with suppress(ImportError):
                import_module(module)


@contextmanager
def _quick_imports() -> Iterator[None]:
    """Without looking for garbage among what stays (0.4 s), and without JAX (0.4 s).

    RLlib imports JAX by way of Flax wherever it finds them, and learns with torch.
    """
    collecting, imported = gc.isenabled(), "flax" in sys.modules
    gc.disable()
    if not imported:
        sys.modules["flax"] = None  # type: ignore[assignment]  # Python takes that for "not installed"
    try:
        yield
    finally:
        if not imported:
            sys.modules.pop("flax", None)
        if collecting:
            gc.enable()


def leave_out_compiler() -> None:
    """From now on torch imports its compiler when something is compiled, and not before.

    Otherwise an optimizer imports it (a second) to exclude its own methods from compilation, and
    `use_deterministic_algorithms`, which RLlib calls with every seed, to pass the setting on. Once the
    compiler is imported, both do as before.
    """
    import torch

    if "torch._dynamo" in sys.modules:
        return
    for method in vars(torch.optim.Optimizer).values():
        code = getattr(method, "__code__", None)
        if code is not None and code.co_filename == torch._compile.__file__:
            _exclude_later(method)
    if not hasattr(torch.use_deterministic_algorithms, "__wrapped__"):
        torch.use_deterministic_algorithms = _set_later(torch.use_deterministic_algorithms)


def _exclude_later(method: Any) -> None:
    """Let a method of an optimizer be excluded from compilation once there is a compiler."""
    function = method.__wrapped__

    def called(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        vars(function).pop("__dynamo_disable", None)  # where torch keeps its substitute
        return method(*args, **kwargs)

    if not hasattr(function, "__dynamo_disable"):
        function.__dynamo_disable = called


def _set_later(use_deterministic_algorithms: Callable[..., None]) -> Callable[..., None]:
    """Set torch itself at once, its compiler by the variable that it reads as it is imported."""
    import torch

    @wraps(use_deterministic_algorithms)
    def set_now(mode: bool, *, warn_only: bool = False) -> None:
        if "torch._inductor" in sys.modules:
            use_deterministic_algorithms(mode, warn_only=warn_only)
            return
        os.environ["TORCHINDUCTOR_DETERMINISTIC"] = "1" if mode else "0"
        torch.set_deterministic_debug_mode(("warn" if warn_only else "error") if mode else "default")

    return set_now
