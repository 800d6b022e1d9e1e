"""Several runs watched in one process: each by its own watch, until the last is closed."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rayfish.errors import RayfishError, RunFailed
from rayfish.experiment import Experiment
from rayfish.run import trainer
from rayfish.supervise import watchdog
from rayfish.supervise.error_messages import explained
from rayfish.supervise.watchdog import Watch


@pytest.fixture
def experiment():
    return Experiment.compose(
        "cartpole",
        ("fault_tolerance.no_progress_timeout_s=0.4", "fault_tolerance.env_timeout_s=60"),
    )


def stand_still(seconds: float = 3.0) -> None:
    time.sleep(seconds)


def test_a_watch_goes_on_when_another_is_closed(experiment):
    one, two = Watch(experiment).__enter__(), Watch(experiment).__enter__()
    one.__exit__()
    with (
        pytest.raises(RunFailed, match="no environment step"),
        explained(experiment, two),
        two.expecting_progress(),
    ):
        stand_still()
    two.__exit__()
    assert watchdog._live == []
    assert callable(signal.getsignal(watchdog._SIGNAL))
    os.kill(os.getpid(), watchdog._SIGNAL)  # one that comes late does nothing


def test_a_run_is_watched_by_its_own_watch(experiment):
    patient = experiment.with_values({"fault_tolerance.no_progress_timeout_s": None}, "test")
    with Watch(experiment) as one, Watch(patient) as two:
        with explained(patient, two), two.expecting_progress():
            stand_still(1.0)
        assert one.reason is None
        assert two.reason is None


def test_standing_still_counts_only_where_progress_is_expected(experiment):
    with Watch(experiment) as one, explained(experiment, one):
        stand_still(1.0)
        with one.expecting_progress():
            stand_still(0.1)
        stand_still(1.0)
        with one.expecting_progress():
            for _ in range(10):
                stand_still(0.1)
                watchdog.report_progress()
    assert one.reason is None


def test_iterations_without_a_step_add_up(experiment):
    with Watch(experiment) as one, pytest.raises(RunFailed, match="no environment step"):
        for _ in range(10):
            with explained(experiment, one), one.expecting_progress():
                stand_still(0.2)


def test_a_trainer_whose_ray_does_not_start_leaves_no_watch(experiment, monkeypatch):
    def broken(*_):
        raise RayfishError("no Ray today")

    monkeypatch.setattr(trainer, "running_ray", broken)
    with pytest.raises(RayfishError, match="no Ray today"):
        trainer.Trainer(experiment)
    assert watchdog._live == []


def test_no_descriptor_and_no_thread_is_left(experiment, ray_session):
    def handles() -> int:
        """Open handles of processes; other descriptors come and go with Ray's threads."""
        found = 0
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since the folder was listed
                found += "[pidfd]" in str(entry.readlink())
        return found

    def wait_for_watches_to_end() -> None:
        deadline = time.monotonic() + 10
        while any(thread.name == "rayfish-watch" for thread in threading.enumerate()):
            assert time.monotonic() < deadline, "a watch's thread is left"
            time.sleep(0.05)

    wait_for_watches_to_end()  # those of the tests before
    before = handles()
    for _ in range(3):
        with Watch(experiment):
            time.sleep(0.3)
            assert handles() > before
    wait_for_watches_to_end()
    assert handles() == before
