"""What a run was made with: versions, source revision, host and hardware."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import rayfish
from rayfish.threads import machine_cpus

PACKAGES = ("ray", "torch", "gymnasium", "numpy", "hydra-core", "pettingzoo", "safetensors")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def collect() -> dict[str, Any]:
    """The record kept as `provenance.json`; git is that of the current folder, the user's code."""
    return {
        "versions": versions(),
        "git": git(),
        "host": {"name": platform.node(), "system": platform.platform(), "user_id": os.getuid()},
        "hardware": hardware(),
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "working_folder": str(Path.cwd()),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what a run computes, without importing them."""
    found = {"python": platform.python_version(), "rayfish": rayfish.__version__}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def git() -> dict[str, Any] | None:
    """Commit, branch and whether files differ from it; None outside a git clone."""
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return None
    return {
        "commit": commit,
        "branch": _git("rev-parse", "--abbrev-ref", "HEAD"),
        "changed_files": len((_git("status", "--porcelain") or "").splitlines()),
    }


def hardware() -> dict[str, Any]:
    """Cores, memory and GPUs of this machine."""
    import psutil

    return {
        "cpu": _cpu_model(),
        "cores": machine_cpus(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "gpus": gpus(),
    }


def gpus() -> list[str]:
    """The NVIDIA GPUs of this machine by name, as the driver reports them (torch need not be imported)."""
    return [
        line.partition(":")[2].strip()
        for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        for line in information.read_text().splitlines()
        if line.startswith("Model:")
    ]


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or sys.platform


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
