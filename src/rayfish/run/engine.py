"""Starting Ray for a run, and what the machine has to offer it.

A Ray that is already up (a notebook's, a test's, a cluster job's) is used as it is and left
running; one that Rayfish started is shut down by Rayfish.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfish.errors import RayfishError

if TYPE_CHECKING:
    from rayfish.envs.build import EnvInfo


@dataclass(frozen=True)
class RayOptions:
    """How to start or find Ray; every field left at None means Ray's own choice.

    :param address: an existing cluster's address; None starts a local Ray
    :param num_cpus: CPUs the local Ray offers (may exceed the machine's, to oversubscribe it)
    :param num_gpus: GPUs the local Ray offers
    :param object_store_memory: bytes of shared memory for objects
    :param temp_dir: folder for Ray's session files and logs
    """

    address: str | None = None
    num_cpus: int | None = None
    num_gpus: int | None = None
    object_store_memory: int | None = None
    temp_dir: str | None = None


def machine_cpus() -> int:
    """CPUs this process may use: affinity and container limit considered."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = Path("/sys/fs/cgroup/cpu.max")
    if limit.is_file():
        quota, _, period = limit.read_text().strip().partition(" ")
        if quota != "max" and period:
            count = min(count, max(1, int(quota) // int(period)))
    return count


def machine_gpus() -> int:
    """NVIDIA GPUs visible to this process, without importing torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def offered(options: RayOptions) -> tuple[float, float]:
    """CPUs and GPUs a run may ask for: the running Ray's, else what a local one would offer."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        resources = ray.cluster_resources()
        return float(resources.get("CPU", 0)), float(resources.get("GPU", 0))
    if options.address:
        with running_ray(options) as cluster:
            resources = cluster.cluster_resources()
        return float(resources.get("CPU", 0)), float(resources.get("GPU", 0))
    cpus = options.num_cpus if options.num_cpus is not None else machine_cpus()
    gpus = options.num_gpus if options.num_gpus is not None else machine_gpus()
    return float(cpus), float(gpus)


@contextmanager
def running_ray(options: RayOptions, paths: Sequence[str] = ()) -> Iterator[Any]:
    """Ray, started if need be with `paths` importable on every worker, for the block's duration."""
    _quiet_environment(paths)
    import ray

    if ray.is_initialized():
        yield ray
        return
    arguments: dict[str, Any] = {
        "include_dashboard": False,
        "log_to_driver": True,
        "logging_level": logging.ERROR,
        "namespace": "rayfish",
    }
    if options.address:
        arguments |= {
            "address": options.address,
            "runtime_env": {"env_vars": {"PYTHONPATH": _pythonpath(paths)}},
        }
        arguments.pop("include_dashboard")
    else:
        arguments |= {
            "num_cpus": options.num_cpus or machine_cpus(),
            "num_gpus": options.num_gpus,
            "object_store_memory": options.object_store_memory,
            "_temp_dir": options.temp_dir,
        }
    try:
        ray.init(**{key: value for key, value in arguments.items() if value is not None})
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f"the cluster at {options.address}" if options.address else "a local Ray"
        raise RayfishError(f"{where} did not start or answer: {error}", "rayfish doctor") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def use_fitting_threads(info: EnvInfo) -> None:
    """One torch thread in this process, unless images make more of them pay or OMP_NUM_THREADS decides.

    The matrices of a policy without convolutions are so small that threads gain little when the
    cores are idle, and cost many times the work when something else uses them.
    """
    if "OMP_NUM_THREADS" in os.environ or any(_has_image(s) for s in info.observation_spaces.values()):
        return
    import torch

    torch.set_num_threads(1)


def _has_image(space: Any) -> bool:
    parts = getattr(space, "spaces", None)
    if parts is None:
        return len(space.shape or ()) >= 3
    return any(_has_image(part) for part in (parts.values() if isinstance(parts, Mapping) else parts))


def _quiet_environment(paths: Sequence[str]) -> None:
    """Settings that Ray's processes inherit; must be made before `ray` is first imported."""
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # every worker's lines matter to their author
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("PYTHONWARNINGS", "ignore::DeprecationWarning,ignore::FutureWarning")
    # Workers inherit this, so a user's env, model or callback imports there as it does here.
    os.environ["PYTHONPATH"] = _pythonpath(paths)


def _pythonpath(paths: Sequence[str]) -> str:
    present = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join([*present, *(path for path in paths if path not in present)])
