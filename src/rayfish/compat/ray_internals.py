"""Single private names of Ray that other packages need; each says what breaks without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def worker_output_dispatcher() -> Any:
    """What hands the printed lines of Ray's workers to their listeners in this process.

    Ray has no public listener. Without it the output of workers is printed past a run's log.
    """
    from ray._private import ray_logging

    return ray_logging.global_worker_stdstream_dispatcher


def actor_row(actor: Any) -> Any:
    """An actor's row in Ray's table (pid, restarts, cause of death); None for one that Ray does not know.

    The public state API needs the dashboard. Without it a worker's restarts and end go unnoticed.
    """
    from ray._private import state
    from ray.core.generated import gcs_pb2

    data = state.state._connect_and_get_accessor().get_actor_info(actor._actor_id)
    return None if data is None else gcs_pb2.ActorTableData.FromString(data)


def deprecated_value() -> Any:
    """The default that RLlib gives to parameters it no longer takes.

    RLlib has no other mark of them. Without it, settings that do nothing would be offered and documented.
    """
    from ray._common.deprecation import DEPRECATED_VALUE

    return DEPRECATED_VALUE


def bundled_pynvml() -> Any:
    """Ray's own copy of pynvml. Without it there are no GPU metrics where pynvml is not installed."""
    from ray._private.thirdparty import pynvml

    return pynvml


@contextmanager
def results_in(folder: str) -> Iterator[None]:
    """Lets algorithms built meanwhile make their folder in `folder`.

    RLlib takes no folder. Without it each algorithm leaves an empty one in ~/ray_results.
    """
    from ray.tune.trainable import trainable

    before, trainable.DEFAULT_STORAGE_PATH = trainable.DEFAULT_STORAGE_PATH, folder
    try:
        yield
    finally:
        trainable.DEFAULT_STORAGE_PATH = before
