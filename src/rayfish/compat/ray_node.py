"""Ray's own record of the node that this process uses, and of the names registered with it: private names.

Ray has no public way to ask which of its processes it started, whether they live, or to end them at once.
Without this a run would not notice that its local Ray has died until a call of Ray hangs.
"""

from __future__ import annotations

import atexit
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROCESSES = {"gcs_server": "Ray's head", "raylet": "Ray's node manager"}
"""The processes without which a Ray is lost, and what to call them."""

ended_here: set[int] = set()
"""Processes of Ray that this process has ended itself, on purpose."""


def node() -> Any:
    """Ray's record of the node this process uses; None when there is no Ray."""
    return getattr(sys.modules.get("ray._private.worker"), "_global_node", None)


def local_processes() -> list[Any]:
    """Ray's processes that this process started and that still run."""
    here = node()
    if here is None:
        return []
    processes = [started.process for kind in PROCESSES for started in here.all_processes.get(kind, ())]
    return [process for process in processes if process.poll() is None]


def end_local_ray() -> None:
    """Kills the processes of a Ray that this process started."""
    here = node()
    if here is not None and here.head:
        here.kill_all_processes(check_alive=False, allow_graceful=False)


def memory_of_killed(pid: int) -> str:
    """The memory of a worker that Ray ended because this machine ran low on it; "" for any other.

    Ray writes that into its node's log only; on another machine it cannot be seen from here.
    """
    here = node()
    if here is None:
        return ""
    log = Path(here.get_logs_dir_path()) / "raylet.out"
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(rf"Selected to kill:.*\bpid={pid}, actual memory used=([\d.]+\w+)", text)
    return found[1] if found else ""


def registered_creator(name: str) -> Any | None:
    """What an imported module gave to `register_env` under a name, without importing Ray.

    Ray's public lookup asks the cluster after `ray.init`, which does not know what was registered before.
    """
    module = sys.modules.get("ray.tune.registry")
    if module is None:  # without it no module can have registered anything
        return None
    registry, category = module._global_registry, module.ENV_CREATOR
    pending = getattr(registry, "_to_flush", {})
    if (category, name) not in pending and not registry.contains(category, name):
        return None
    return registry.get(category, name)


@contextmanager
def registered_names_kept(own: str) -> Iterator[None]:
    """What this process gave to `register_env` outlives the Ray that is shut down in the block.

    Ray keeps it in the server that ends, so that the next Ray of this process would not know it. It also
    remembers the job it belonged to, under which workers of another one would not find it.

    :param own: names that begin so are Rayfish's own, of one run, and are forgotten
    """
    module = sys.modules.get("ray.tune.registry")
    if module is None:
        yield
        return
    registry, kept = module._global_registry, {}
    for category, name in list(registry._registered):
        if not name.startswith(own):
            with suppress(Exception):  # it was taken back, or Ray is lost
                key = module._make_key(registry.prefix, category, name)
                kept[category, name] = module._internal_kv_get(key)
    yield
    registry._registered.clear()
    registry._prefix = None
    registry._to_flush.update({entry: value for entry, value in kept.items() if value is not None})


def returns_in_time(shutdown: Callable[[], object], seconds: float) -> bool:
    """Whether Ray's shutdown returned in time: it waits for ever for a server that does not answer."""
    from ray._private import worker

    farewell = threading.Thread(target=shutdown, daemon=True)
    farewell.start()
    farewell.join(seconds)
    if farewell.is_alive():
        atexit.unregister(worker.shutdown)  # it would wait once more
    return not farewell.is_alive()
