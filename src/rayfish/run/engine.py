"""Starting Ray for a run, and what the machine has to offer it.

A Ray that is already up (a notebook's, a test's, a cluster job's) is used as it is and left
running; one that Rayfish started is shut down by Rayfish.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from rayfish.compat import local_ray, ray_node
from rayfish.envs.resolve import OWN_NAMES
from rayfish.errors import RayfishError
from rayfish.run import signing
from rayfish.supervise.watchdog import RayHealth
from rayfish.threads import machine_cpus

MEANWHILE = "rayfish-meanwhile"
"""Name of the thread that works while Ray starts."""

_FAREWELL_S, _SHUTDOWN_S = 5.0, 20.0
_MODE, _TOKEN, _PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


@dataclass(frozen=True)
class RayOptions:
    """How to start or find Ray; every field left at None means Ray's own choice.

    :param address: an existing cluster's address; None starts a local Ray
    :param num_cpus: CPUs the local Ray offers (may exceed the machine's, to oversubscribe it)
    :param num_gpus: GPUs the local Ray offers
    :param object_store_memory: bytes of shared memory for objects
    :param temp_dir: folder for Ray's session files and logs
    :param dashboard: whether the local Ray shows itself in a browser, which it is slower to start with
    """

    address: str | None = None
    num_cpus: int | None = None
    num_gpus: int | None = None
    object_store_memory: int | None = None
    temp_dir: str | None = None
    dashboard: bool = False


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
        have = ray.cluster_resources()
    elif options.address:
        with running_ray(options) as cluster:
            have = cluster.cluster_resources()
    else:
        cpus = machine_cpus() if options.num_cpus is None else options.num_cpus
        have = {"CPU": cpus, "GPU": machine_gpus() if options.num_gpus is None else options.num_gpus}
    return float(have.get("CPU", 0)), float(have.get("GPU", 0))


@contextmanager
def running_ray(
    options: RayOptions,
    paths: Sequence[str] = (),
    workers: int = 1,
    meanwhile: Callable[[], object] | None = None,
) -> Iterator[Any]:
    """Ray for the block's duration, started if need be.

    :param paths: folders whose modules can be imported on every worker
    :param workers: remote processes the run will ask for; without any, a local Ray keeps none ready
    :param meanwhile: called in another thread while a local Ray without dashboard starts (this
        process would only wait), and done before the block begins; what it raises is lost
    """
    _quiet_environment(paths)
    if options.address:
        join_with_token()
    else:
        make_token()
    import ray

    if ray.is_initialized():
        yield ray
        return

    def ahead() -> None:
        if meanwhile is not None:
            with suppress(Exception):  # it is done again when needed, and then raises
                meanwhile()

    helper = threading.Thread(target=ahead, daemon=True, name=MEANWHILE)
    ray_node.ended_here.clear()
    try:
        with _deaf_to_sigterm():
            if options.address:
                ray.init(**_joining(options, paths))
            elif options.dashboard:
                with local_ray.on_loopback():
                    ray.init(**_starting(options))
            else:
                local_ray.import_what_init_imports()
                with local_ray.on_loopback(), local_ray.few_processes(workers), _whole_or_nothing():
                    helper.start()
                    # Not the other way round: Ray's processes end with the thread that started them.
                    ray.init(**_starting(options))
    except Exception as error:  # a node that starts too slowly is a bare one
        if helper.ident is not None:  # else it was never started
            helper.join()
        where = f"the cluster at {options.address}" if options.address else "a local Ray"
        raise RayfishError(f"{where} did not start or answer: {error}", "rayfish doctor") from error
    except BaseException:  # a signal that came just when Ray was complete
        _end(ray)
        raise
    try:
        _close_to_others()
        if helper.ident is not None:
            helper.join()
        yield ray
    finally:
        _end(ray)


_ALWAYS: dict[str, Any] = {"log_to_driver": True, "logging_level": logging.ERROR, "namespace": "rayfish"}


def _joining(options: RayOptions, paths: Sequence[str]) -> dict[str, Any]:
    """Arguments of `ray.init` for a cluster that is there."""
    environment = {"PYTHONPATH": _pythonpath(paths), "PYTHONHASHSEED": "0"}
    return {**_ALWAYS, "address": options.address, "runtime_env": {"env_vars": environment}}


def _starting(options: RayOptions) -> dict[str, Any]:
    """Arguments of `ray.init` for a Ray of this process's own."""
    arguments = {
        "include_dashboard": options.dashboard,
        "num_cpus": options.num_cpus or machine_cpus(),
        "num_gpus": options.num_gpus,
        "object_store_memory": options.object_store_memory,
        "_temp_dir": options.temp_dir,
    }
    return _ALWAYS | {key: value for key, value in arguments.items() if value is not None}


def _close_to_others() -> None:
    """The sockets and logs of a local Ray are its user's; Ray lets every user of the machine write there."""
    node = ray_node.node()
    if node is not None and node.head:
        with suppress(OSError):
            Path(node.get_session_dir_path()).chmod(0o700)


@contextmanager
def _deaf_to_sigterm() -> Iterator[None]:
    """A local Ray started in the block sees no SIGTERM and no SIGHUP; it ends with this process.

    A job that is preempted gets SIGTERM in all its processes, one whose terminal is closed SIGHUP. Were
    Ray to end there and then, the run could no longer save its checkpoint.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    # Children inherit it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        if callable(handler):
            signal.signal(signal.SIGTERM, handler)  # Ray has put its own there
        _hurry_its_end()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hurry_its_end() -> None:
    """Ray asks its processes with SIGTERM first, to which they are deaf, and then waits for nothing."""
    node = ray_node.node()
    if node is not None and node.head:
        end = node.kill_all_processes

        def end_now(check_alive: bool = True, allow_graceful: bool = False, wait: bool = False) -> None:
            family = _descendants(ray_node.local_processes())
            end(check_alive=check_alive, allow_graceful=False, wait=wait)
            _kill(family)  # some notice their parent's end only after ten seconds

        node.kill_all_processes = end_now


@contextmanager
def _whole_or_nothing() -> Iterator[None]:
    """Ends what was started of a Ray when the block is left by an error, Ctrl-C above all.

    Ray knows of its processes only once it is complete; some of them, left alone, would wait for
    the others for a good while.
    """
    before = {process.pid for process in psutil.Process().children()}
    try:
        yield
    except BaseException:
        home = str(Path(sys.modules["ray"].__file__ or "").parent)
        for process in psutil.Process().children():
            with suppress(psutil.Error):
                if process.pid not in before and any(home in word for word in process.cmdline()):
                    process.suspend()  # or it might start more meanwhile
                    family = [process, *_descendants([process])]
                    ray_node.ended_here.update(member.pid for member in family)
                    _kill(family)
        raise


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def _descendants(processes: list[Any]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in processes:
        with suppress(psutil.Error):
            found += psutil.Process(process.pid).children(recursive=True)
    return found


def _end(ray: Any) -> None:
    if RayHealth().lost():
        ray_node.end_local_ray()
        ray_node.returns_in_time(ray.shutdown, _FAREWELL_S)
    elif ray.is_initialized():
        ray_node.ended_here.update(process.pid for process in ray_node.local_processes())
        if not ray_node.returns_in_time(ray_node.registered_names_kept(OWN_NAMES)(ray.shutdown), _SHUTDOWN_S):
            ray_node.end_local_ray()


@contextmanager
def repeatable_kernels() -> Iterator[None]:
    """While entered, torch takes no kernel whose result varies; what has no other fails by its name."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _quiet_environment(paths: Sequence[str]) -> None:
    """Settings that Ray's processes inherit; must be made before `ray` is first imported."""
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # every worker's lines matter to their author
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("PYTHONWARNINGS", "ignore::DeprecationWarning,ignore::FutureWarning")
    # RLlib walks through sets of agent names: in workers, too, their order must not be chance.
    os.environ.setdefault("PYTHONHASHSEED", "0")
    # Workers inherit this, so a user's env, model or callback imports there as it does here.
    os.environ["PYTHONPATH"] = _pythonpath(paths)


def _pythonpath(paths: Sequence[str]) -> str:
    present = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join([*present, *(path for path in paths if path not in present)])


def token_file() -> Path | None:
    """The file that Ray reads its token from; None where this user has no home folder."""
    try:
        return Path(os.environ.get(_PATH) or "~/.ray/auth_token").expanduser()
    except RuntimeError:
        return None


def join_with_token() -> None:
    """For a cluster that was started with a token: Ray sends one only in token mode."""
    file = token_file()
    if _MODE not in os.environ and (_TOKEN in os.environ or (file is not None and file.is_file())):
        os.environ[_MODE] = "token"


def make_token() -> None:
    """For a local Ray: a token that this user alone can read, before Ray makes one that everyone can.

    One that is there is kept; it and its folder are closed to others, unless `RAY_AUTH_TOKEN_PATH` names it.
    Where the home folder cannot be written, it is kept in a temporary folder, for this process's lifetime.
    """
    if os.environ.get(_MODE, "token").lower() != "token" or _TOKEN in os.environ:
        return
    file = token_file()
    try:
        if file is None:
            raise OSError("no home folder")
        if not file.exists():
            signing.make_secret(file)
        elif _PATH not in os.environ:
            _close_to_other_users(file)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="rayfish-token-"))  # mode 0700
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        file = folder / "auth_token"
        signing.make_secret(file)
        os.environ[_PATH] = str(file)


def _close_to_other_users(file: Path) -> None:
    for path, mode in ((file, 0o600), (file.parent, 0o700)):
        found = path.stat()
        if found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) & 0o077:
            with suppress(OSError):
                path.chmod(mode)
