"""Shared by all tests: one Ray for the session, one thread, a scratch working folder."""

from __future__ import annotations

import os
from collections import Counter

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Where files run side by side, the longest test begins first, then the files with the most tests."""
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.stem != "test_fresh_clone", -sizes[item.path]))
