"""Shared by all tests: one Ray for the session, one thread, a scratch working folder."""

from __future__ import annotations

import os
import sys
from collections import Counter

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ["RAYFISH_SIGNING_KEY"] = "5e" * 32  # the same in all processes, and none in the user's home

import pytest


@pytest.fixture(scope="session")
def ray_session():
    """One local Ray for all tests that build algorithms (starting it costs seconds)."""
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=True, configure_logging=False)
    yield ray
    ray.shutdown()


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """A fresh current folder, so that `runs/` of a test never lands in the clone."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder for a user's files, elsewhere than the current one; what they register is undone."""
    import gymnasium as gym

    from tests.envs.user_code import UserFolder

    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "code").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ids = set(gym.registry)
    yield UserFolder(tmp_path / "code")
    for env_id in set(gym.registry) - ids:
        del gym.registry[env_id]


@pytest.fixture
def tune(ray_session, workdir):
    """`rayfish.tune` with plain output, in a fresh folder."""
    import rayfish

    def call(*arguments, **settings):
        return rayfish.tune(*arguments, **{"plain": True, **settings})

    return call


@pytest.fixture(autouse=True)
def forget_modules(request):
    """Modules that a test wrote into its folder are not found by the next test that uses the same name."""
    yield
    folder = request.node.funcargs.get("tmp_path")
    if folder is not None:
        inside = f"{folder}{os.sep}"
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(inside):
                del sys.modules[name]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Where files run side by side, the longest test begins first, then the files with the most tests."""
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.stem != "test_fresh_clone", -sizes[item.path]))
