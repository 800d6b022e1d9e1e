"""What on this machine may keep a run from working: one check per topic, each with its fix."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rayfish.compat.local_ray import OPEN_TO_OTHERS
from rayfish.memory import memory as machine_memory
from rayfish.run import provenance
from rayfish.run.engine import make_token, token_file
from rayfish.threads import machine_cpus

OK, WARN, FAIL = "ok", "warn", "fail"
_GB = 1e9
_RAY_PROBE = """
import ray
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
assert ray.get(ray.remote(lambda: 21 * 2).remote()) == 42
ray.shutdown()
"""
_RAY_TIMEOUT_S = 90
_SUPPORTED_RAY = "2.60."
_SUPPORTED_PYTHON = ((3, 11), (3, 13))
# Ray puts sockets into <temp dir>/ray/session_<time>_<pid>/sockets/; Linux allows 107 bytes in all.
_LONGEST_TEMP_DIR = 45


@dataclass(frozen=True)
class Check:
    """One finding: the topic, `ok`, `warn` or `fail`, what was found, and how to fix it."""

    topic: str
    level: str
    what: str
    fix: str = ""


def checks(*, start_ray: bool = True) -> Iterator[Check]:
    """Look at everything, one finding after the other (the slow one last).

    :param start_ray: also start a real Ray in a process of its own
    """
    quick = (python, packages, cores, memory, shared_memory, gpu, display, threads, disk, temp_dir)
    for look in (*quick, open_files, token):
        yield look()
    if start_ray:
        yield ray_starts()


def python() -> Check:
    """The interpreter."""
    version = sys.version.split()[0]
    low, high = _SUPPORTED_PYTHON
    if not low <= sys.version_info[:2] < high:
        what = f"{version}; Rayfish supports 3.11 and 3.12"
        return Check("python", FAIL, what, "make a venv with python3.11")
    inside = sys.prefix != sys.base_prefix
    return Check("python", OK, f"{version}, {'virtual environment' if inside else 'no virtual environment'}")


def packages() -> Check:
    """The packages that decide what a run computes."""
    found = provenance.versions()
    text = "  ".join(f"{name} {version}" for name, version in found.items() if name != "python")
    missing = [name for name in provenance.PACKAGES if name not in found]
    if missing:
        return Check("packages", FAIL, f"not installed: {', '.join(missing)}", "pip install rayfish")
    if not found["ray"].startswith(_SUPPORTED_RAY):
        fix = f"pip install 'ray[rllib,tune,default]=={_SUPPORTED_RAY}*'"
        return Check("packages", FAIL, f"ray {found['ray']}; Rayfish needs {_SUPPORTED_RAY}x", fix)
    return Check("packages", OK, text)


def cores() -> Check:
    """Processor cores, and those that this process may use."""
    usable, there = machine_cpus(), os.cpu_count() or 1
    text = f"{usable}" if usable >= there else f"{usable} of {there} usable (affinity or container limit)"
    return Check("cores", OK, f"{text}  {provenance.hardware()['cpu']}")


def memory() -> Check:
    """Main memory, of this machine or of the container that limits this process."""
    free, total = machine_memory()
    what = f"{free / _GB:.1f} GB free of {total / _GB:.1f} GB"
    if free < 2 * _GB:
        # A driver takes about 0.5 GB, Ray's services 0.5 GB, each env runner another 0.5 GB.
        fix = "rollouts.num_env_runners=0, or close something: a run takes 1 GB or more"
        return Check("memory", WARN, what, fix)
    return Check("memory", OK, what)


def shared_memory() -> Check:
    """/dev/shm, where Ray keeps its objects."""
    place = Path("/dev/shm")
    if not place.is_dir():
        return Check("shared memory", OK, "no /dev/shm: Ray uses its temp folder")
    fix = "docker run --shm-size=2g, or clear /dev/shm: Ray gets slow without"
    return _free_space("shared memory", place, 0.2, fix)


def gpu() -> Check:
    """GPUs, and whether torch can use them."""
    found = provenance.gpus()
    torch_version = provenance.versions().get("torch", "")
    if not found:
        return Check("gpu", OK, "none (fine for small models)")
    if "+cpu" in torch_version:
        fix = "install a CUDA build of torch: https://pytorch.org/get-started/locally"
        return Check("gpu", WARN, f"{', '.join(found)}; torch {torch_version} cannot use it", fix)
    return Check("gpu", OK, ", ".join(found))


def display() -> Check:
    """A screen for environments that open a window."""
    screen = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
    if screen:
        return Check("display", OK, screen)
    return Check("display", OK, "none: training and recordings work, windows (render_mode=human) do not")


def threads() -> Check:
    """Thread settings of the numeric libraries."""
    usable = machine_cpus()
    given = {name: os.environ[name] for name in provenance.THREAD_VARIABLES if name in os.environ}
    text = "  ".join(f"{name}={value}" for name, value in given.items()) or "library defaults"
    wrong = [name for name, value in given.items() if not value.isdigit() or int(value) > usable]
    if wrong:
        return Check("threads", WARN, f"{text}, but {usable} cores", f"unset {' '.join(wrong)}")
    return Check("threads", OK, text)


def disk() -> Check:
    """Free space where runs are written."""
    if not os.access(Path.cwd(), os.W_OK):
        return Check("disk", WARN, f"{Path.cwd()} is not writable", "runtime.local_dir=~/runs")
    fix = "free some space, set runtime.local_dir elsewhere, or checkpoint.num_to_keep=3"
    return _free_space("disk", Path.cwd(), 5, fix, needed_gb=0.5)


def temp_dir() -> Check:
    """The folder of Ray's session files and sockets."""
    place = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    if len(str(place)) > _LONGEST_TEMP_DIR:
        what = f"{place}: too long a path for Ray's sockets"
        return Check("temp folder", FAIL, what, "export RAY_TMPDIR=/tmp, or a shorter --temp-dir")
    if not os.access(place, os.W_OK):
        return Check("temp folder", FAIL, f"{place} is not writable", "export RAY_TMPDIR=/a/folder/of/yours")
    fix = "export RAY_TMPDIR to a folder with space; old sessions: /tmp/ray"
    return _free_space("temp folder", place, 1, fix)


def _free_space(topic: str, folder: Path, enough_gb: float, fix: str, needed_gb: float = 0) -> Check:
    free = shutil.disk_usage(folder).free / _GB
    what = f"{free:.1f} GB free in {folder}"
    if free >= enough_gb:
        return Check(topic, OK, what)
    return Check(topic, FAIL if free < needed_gb else WARN, what, fix)


def open_files() -> Check:
    """How many files a process may open (Ray needs many)."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= 1024:
        return Check("open files", OK, f"limit {soft}")
    fix = f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}"
    return Check("open files", WARN, f"limit {soft}", fix)


def token() -> Check:
    """Ray's authentication token: whether it exists and who may read it. Its content is not looked at."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled":
        what = "RAY_AUTH_MODE=disabled: anyone who reaches this Ray may run code in it"
        return Check("tokens", WARN, what, "unset RAY_AUTH_MODE")
    if "RAY_AUTH_TOKEN" in os.environ:
        return Check("tokens", OK, "from RAY_AUTH_TOKEN")
    place = token_file()
    if place is None or not place.exists():
        return Check("tokens", OK, "none yet: it is made when Ray first starts")
    mode = stat.S_IMODE(place.stat().st_mode)
    if mode & 0o077:
        what = f"{place} can be read by other users (mode {mode:04o})"
        return Check("tokens", WARN, what, f"chmod 600 {place}")
    return Check("tokens", OK, f"{place}, readable by you only")


def ray_starts() -> Check:
    """Start Ray, run one task, stop it."""
    started = time.monotonic()
    make_token()
    # Its own process: a Ray that hangs or dies must not take this one along. Not in the current folder, which
    # Ray's workers have first on their path: a ray.py there would run.
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _RAY_PROBE],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={OPEN_TO_OTHERS: "0", **os.environ},
            cwd="/",
            timeout=_RAY_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        fix = "look at /tmp/ray/session_latest/logs; a firewall or proxy on localhost is the usual cause"
        return Check("ray", FAIL, f"did not start within {_RAY_TIMEOUT_S} s", fix)
    took = time.monotonic() - started
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        what = f"does not start: {''.join(last) or f'exit code {done.returncode}'}"
        return Check("ray", FAIL, what, "look at /tmp/ray/session_latest/logs")
    return Check("ray", OK, f"starts, runs a task and stops in {took:.1f} s")
