"""What building and training an algorithm imports, imported before it is needed, and no more than that.

It takes seconds, in which Ray's processes can start. Takes an algorithm's name; gives nothing but time.
"""

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
    with _without_collecting(), _without_flax():
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
def _without_collecting() -> Iterator[None]:
    """Imports make a great many objects that stay; looking among them for garbage costs a tenth more."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _without_flax() -> Iterator[None]:
    """RLlib imports JAX by way of Flax wherever it finds them (half a second), and learns with torch."""
    if "flax" in sys.modules:
        yield
        return
    sys.modules["flax"] = None  # type: ignore[assignment]  # what Python takes for "not installed"
    try:
        yield
    finally:
        sys.modules.pop("flax", None)


def leave_out_compiler() -> None:
    """From now on torch imports its compiler when something is compiled, and not before.

    Otherwise making an optimizer imports it (a second) to have it keep away from the optimizer's
    methods, and asking for repeatable kernels, as RLlib does with every seed, to have it choose
    such kernels too. Once it is imported, by whomever, both go their usual ways.
    """
    import torch

    if "torch._dynamo" in sys.modules:
        return
    for method in vars(torch.optim.Optimizer).values():
        code = getattr(method, "__code__", None)
        if code is not None and code.co_filename == torch._compile.__file__:
            _untold(method)
    if not hasattr(torch.use_deterministic_algorithms, "__wrapped__"):
        torch.use_deterministic_algorithms = _asked_later(torch.use_deterministic_algorithms)


def _untold(method: Any) -> None:
    """A method that torch keeps its compiler away from, which goes without saying until there is one."""
    function = method.__wrapped__

    def called(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        vars(function).pop("__dynamo_disable", None)  # where torch keeps what it calls in its place
        return method(*args, **kwargs)

    if not hasattr(function, "__dynamo_disable"):
        function.__dynamo_disable = called


def _asked_later(use_deterministic_algorithms: Callable[..., None]) -> Callable[..., None]:
    """The same for torch itself at once; for its compiler by what it reads as it is imported."""
    import torch

    @wraps(use_deterministic_algorithms)
    def asked(mode: bool, *, warn_only: bool = False) -> None:
        if "torch._inductor" in sys.modules:
            use_deterministic_algorithms(mode, warn_only=warn_only)
            return
        os.environ["TORCHINDUCTOR_DETERMINISTIC"] = "1" if mode else "0"
        torch.set_deterministic_debug_mode(("warn" if warn_only else "error") if mode else "default")

    return asked
