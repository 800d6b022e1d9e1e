"""A local Ray with no more processes than a run needs, by private names of Ray.

By default Ray starts a web server even without a dashboard, a monitor that would ask a cloud for more
machines, and one idle worker per CPU: Python processes that import Ray and compete with the run on a small
machine. A name that another version of Ray lacks is skipped: that part then starts as usual.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from typing import Any

_NO_IDLE_WORKERS = "RAY_prestart_worker_first_driver"
OPEN_TO_OTHERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's variable: with 1, a local Ray listens on every interface; with 0, on 127.0.0.1."""

_LOOK_EVERY_S, _PATIENCE_S = 0.02, 20.0
_IMPORTED_BY_INIT = (
    "argparse",
    "ctypes.util",
    "optparse",
    "ray._common.usage.usage_lib",
    "ray._private.runtime_env.uv_runtime_env_hook",
    "ray._private.thirdparty.pynvml",
)


@contextmanager
def few_processes(workers: int) -> Iterator[None]:
    """While entered, `ray.init` starts what a run with so many remote workers needs, and nothing else."""
    with ExitStack() as replaced:
        for module, name, new in _replacements(workers):
            with suppress(ImportError, AttributeError):
                replaced.enter_context(_replaced(module, name, new))
        if not workers and _NO_IDLE_WORKERS not in os.environ:
            os.environ[_NO_IDLE_WORKERS] = "0"
            replaced.callback(os.environ.pop, _NO_IDLE_WORKERS, None)
        yield


@contextmanager
def on_loopback() -> Iterator[None]:
    """While entered, a Ray that `ray.init` starts listens on 127.0.0.1 alone: gRPC, agents and metrics.

    Ray does so by itself on systems where it forms no clusters. Its own variable for that, when it is set,
    decides instead.
    """
    with ExitStack() as replaced:
        if OPEN_TO_OTHERS not in os.environ:
            with suppress(ImportError, AttributeError):
                constant = ("ray._private.ray_constants", "ENABLE_RAY_CLUSTER", lambda _: False)
                replaced.enter_context(_replaced(*constant))
        yield


def import_what_init_imports() -> None:
    """So that `ray.init` itself imports nothing while another thread imports.

    Two threads that import parts of one package at a time can see each other's unfinished modules.
    """
    for module in _IMPORTED_BY_INIT:
        with suppress(ImportError):
            import_module(module)


def _replacements(workers: int) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """Names of Ray, each with what makes its substitute from the original."""
    services = "ray._private.services"
    found: list[tuple[str, str, Callable[[Any], Any]]] = [
        (services, "start_api_server", lambda _: lambda *_, **__: ("", None)),  # no address, no process
        # Ray would import the dashboard's packages (half a second) to see whether they are installed.
        ("ray._private.utils", "get_dashboard_dependency_error", lambda _: lambda: ImportError("unused")),
        (services, "get_node", _watchful),
    ]
    if not workers:  # with workers, the monitor reports when Ray finds no place for one
        found.append(("ray._private.node:Node", "start_monitor", lambda _: lambda node: None))
    return found


@contextmanager
def _replaced(place: str, name: str, new: Callable[[Any], Any]) -> Iterator[None]:
    module, _, inner = place.partition(":")
    holder: Any = import_module(module)
    holder = getattr(holder, inner) if inner else holder
    original = getattr(holder, name)
    setattr(holder, name, new(original))
    try:
        yield
    finally:
        setattr(holder, name, original)


def _watchful(get_node: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    """Ray looks once a second whether its node is there; this one looks more often, then asks Ray."""

    def get_node_soon(gcs_address: str, node_id: str) -> Any:
        with suppress(Exception):
            _wait_for(gcs_address, node_id)
        return get_node(gcs_address, node_id)

    return get_node_soon


def _wait_for(gcs_address: str, node_id: str) -> None:
    from ray._private import services, state

    known = state.GlobalState()
    known._initialize_global_state(services._get_gcs_client_options(gcs_address))
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while time.monotonic() < deadline:
            if any(node["NodeID"] == node_id for node in known.node_table()):
                return
            time.sleep(_LOOK_EVERY_S)
    finally:
        known.disconnect()
