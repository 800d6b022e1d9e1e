"""A local Ray has the processes a run needs and no others, and starts beside what is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from rayfish.compat import local_ray, ray_node
from rayfish.errors import RayfishError
from rayfish.run import engine
from rayfish.run.engine import RayOptions, running_ray

NO_IDLE_WORKERS = "RAY_prestart_worker_first_driver"

START = """
import json, sys, threading, time
import psutil
from rayfish.compat import local_ray
from rayfish.run.engine import RayOptions, running_ray

workers, dashboard = int(sys.argv[1]), sys.argv[2] == "dashboard"
import ray
local_ray.import_what_init_imports()
before, begun = set(sys.modules), []

class Here:
    def __call__(self):
        begun.append((threading.current_thread() is threading.main_thread(), ray.is_initialized()))
        raise ImportError("told by whoever needs it")

with running_ray(RayOptions(num_cpus=2, dashboard=dashboard), (), workers, Here()):
    imported = sorted(set(sys.modules) - before)
    look = lambda: [" ".join(p.cmdline()) for p in psutil.Process().children(recursive=True)]
    deadline = time.monotonic() + 30
    while workers and not any("ray::IDLE" in line for line in look()) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    lines = look()
    answer = ray.get(ray.remote(lambda: 7).remote())
print(json.dumps({"processes": lines, "imported": imported, "begun": begun, "answer": answer}))
"""


def started(workers: int, dashboard: str = "none") -> dict:
    """What a Ray for so many workers consists of, seen from a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", START, str(workers), dashboard],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def count(seen: dict, part: str) -> int:
    return sum(part in line for line in seen["processes"])


def test_without_workers_only_what_ray_cannot_do_without_is_started():
    seen = started(0)
    assert [count(seen, part) for part in ("gcs_server", "raylet/raylet", "log_monitor.py")] == [1, 1, 1]
    assert [count(seen, part) for part in ("dashboard/dashboard.py", "monitor.py --logs", "ray::IDLE")] == [
        0
    ] * 3
    assert seen["answer"] == 7  # a worker that is asked for after all comes


def test_with_workers_some_are_kept_ready_and_the_monitor_tells_what_finds_no_place():
    seen = started(1)
    assert count(seen, "ray::IDLE") >= 1
    assert count(seen, "_private/monitor.py") == 1
    assert count(seen, "dashboard/dashboard.py") == 0
    assert seen["answer"] == 7


def test_a_dashboard_that_is_asked_for_is_there():
    assert count(started(0, "dashboard"), "dashboard/dashboard.py") == 1


def test_ray_imports_nothing_while_another_thread_may_import():
    seen = started(0)
    assert seen["imported"] == []
    assert seen["begun"] == [[False, False]]  # elsewhere, before Ray was there; what it raised is lost


def test_rays_own_functions_are_back_afterwards():
    from ray._private import services, utils
    from ray._private.node import Node

    def now():
        dependency = utils.get_dashboard_dependency_error
        return services.start_api_server, services.get_node, dependency, Node.start_monitor

    before = now()
    with local_ray.few_processes(0):
        assert not set(now()) & set(before)
        assert os.environ[NO_IDLE_WORKERS] == "0"
    assert now() == before
    assert NO_IDLE_WORKERS not in os.environ


INTERRUPTED = """
import psutil, ray
from ray._private import services
from rayfish.run.engine import RayOptions, running_ray

def interrupted(*_):
    print(len(psutil.Process().children(recursive=True)))
    raise KeyboardInterrupt

services.get_node = interrupted
try:
    with running_ray(RayOptions(num_cpus=1), (), 0):
        raise AssertionError("the block must not begin")
except KeyboardInterrupt:
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=3)
    print(len(alive))
"""


def test_ctrl_c_while_ray_starts_leaves_none_of_its_processes():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120, check=True
    )
    there, left = map(int, done.stdout.split())
    assert there >= 4
    assert left == 0


def test_a_name_that_another_ray_lacks_is_passed_over(monkeypatch):
    from ray._private import services

    monkeypatch.delattr(services, "start_api_server")
    with local_ray.few_processes(0):
        assert not hasattr(services, "start_api_server")
        assert services.get_node.__name__ == "get_node_soon"


def test_a_ray_that_does_not_start_is_one_message_and_leaves_no_thread(monkeypatch):
    import ray

    going_on = threading.Event()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: (_ for _ in ()).throw(ConnectionError("no port is free")))
    with (
        pytest.raises(RayfishError, match="a local Ray did not start or answer: no port is free"),
        running_ray(RayOptions(), (), 0, lambda: going_on.wait(0.5)),
    ):
        raise AssertionError("the block must not begin")
    assert not [thread for thread in threading.enumerate() if thread.name == engine.MEANWHILE]


NAMES = """
from ray.tune import register_env
import gymnasium as gym
from rayfish.envs.build import EnvSpec, make
from rayfish.run.engine import RayOptions, running_ray

register_env("before", lambda config: gym.make("CartPole-v1"))
with running_ray(RayOptions(num_cpus=1), (), 0):
    register_env("during", lambda config: gym.make("Acrobot-v1"))
    register_env("rayfish-1", lambda config: None)
with running_ray(RayOptions(num_cpus=1), (), 0) as ray:
    from ray.tune.registry import _global_registry, ENV_CREATOR
    print(*(make(EnvSpec(name)).spec.id for name in ("before", "during")), end=" ")
    print(_global_registry.contains(ENV_CREATOR, "rayfish-1"), _global_registry.prefix)
"""


def test_names_registered_with_ray_outlive_the_ray_that_a_trainer_closes():
    done = subprocess.run(
        [sys.executable, "-c", NAMES], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["CartPole-v1", "Acrobot-v1", "False", "01000000"], done.stderr[-2000:]


def test_a_ray_whose_shutdown_never_returns_does_not_keep_the_process(monkeypatch):
    import ray

    monkeypatch.setattr(ray_node, "node", lambda: None)  # not the tests' own
    monkeypatch.setattr(engine, "_SHUTDOWN_S", 0.2)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    for_ever = threading.Event()
    monkeypatch.setattr(ray, "shutdown", for_ever.wait)
    begun = time.monotonic()
    engine._end(ray)
    assert time.monotonic() - begun < 5
    for_ever.set()


LISTENING = """
import ipaddress, os, psutil, sys
from rayfish.run.engine import RayOptions, running_ray

with running_ray(RayOptions(num_cpus=1), workers=1) as ray:
    assert ray.get(ray.remote(lambda: 42).remote()) == 42
    me = psutil.Process()
    family = [me, *me.children(recursive=True)]
    for process in family:
        for one in process.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN:
                print(process.name(), one.laddr.ip.removeprefix("::ffff:"), flush=True)
    assert os.stat(ray._private.worker._global_node.get_session_dir_path()).st_mode & 0o777 == 0o700
"""


def test_a_local_ray_listens_on_loopback_alone_and_needs_no_home(tmp_path):
    env = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", LISTENING],
        cwd=tmp_path,
        env={**env, "HOME": "/proc/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    listening = [line.split() for line in done.stdout.splitlines()]
    assert {"gcs_server", "raylet"} <= {words[0] for words in listening}
    assert {words[-1] for words in listening} == {"127.0.0.1"}
