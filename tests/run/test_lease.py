"""Who may train a run: locks, leases, and processes that cannot be seen from here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import psutil
import pytest

from rayfish.errors import RayfishError
from rayfish.experiment import Experiment
from rayfish.run import lease
from rayfish.run.directory import RunDirectory
from rayfish.sweep.directory import SweepDirectory

ELSEWHERE = {"host": "container-1", "kernel": "another machine's", "pid": 7, "start": 0.0, "lease_s": 1.5}


@pytest.fixture
def run(workdir):
    """A run that another machine's process has been training until now."""
    made = RunDirectory.create(Experiment.compose("cartpole"))
    made.update(process=ELSEWHERE)
    made._lease.release()
    return RunDirectory.open(made.path)


def aged(run: RunDirectory, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(run.path / lease.LOCK, (then, then))


def test_a_run_whose_container_was_killed_is_lost_once_its_lease_is_over(run):
    assert run.status == "running"
    aged(run, 60)
    assert run.status == "lost"
    run.require_idle()


def test_a_run_killed_a_moment_ago_is_waited_for_and_then_taken(run, capsys):
    began = time.monotonic()
    run.require_idle()
    assert 0.5 < time.monotonic() - began < 10
    assert "process 7 on container-1; waiting up to" in capsys.readouterr().err


def test_a_process_that_ended_and_that_was_not_waited_for_holds_no_run(workdir):
    """A zombie: what is left of a killed process in a container whose first process reaps none."""
    made = RunDirectory.create(Experiment.compose("cartpole"))
    code = (
        "from rayfish.run import lease\n"
        "import json\n"
        "print(json.dumps(lease.this_process()), flush=True)\n"
        "input()\n"
    )
    pipe = subprocess.PIPE
    other = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
    made.update(process=json.loads(other.stdout.readline()))
    made._lease.release()
    assert RunDirectory.open(made.path).status == "running"
    other.kill()
    deadline = time.monotonic() + 10
    while psutil.Process(other.pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert RunDirectory.open(made.path).status == "lost"
    RunDirectory.open(made.path).require_idle()
    other.communicate()


def test_a_process_elsewhere_that_renews_its_lease_keeps_its_run(run):
    touch = threading.Timer(0.7, os.utime, (run.path / lease.LOCK,))
    touch.start()
    with pytest.raises(RayfishError, match="is in training: process 7 on container-1"):
        run.require_idle()


def test_a_sweep_takes_its_trial_from_a_machine_that_is_gone_without_waiting(run, capsys):
    run.require_idle(elsewhere=False)
    assert not capsys.readouterr().err


def test_another_container_of_this_machine_frees_its_run_as_it_ends(run, capsys):
    run.update(process={"kernel": lease._kernel(), "pid_namespace": "another"})
    code = (
        "import sys\n"
        "from rayfish.run.lease import Lease\n"
        "from pathlib import Path\n"
        "lease = Lease(Path(sys.argv[1]), 'x').claim()\n"
        "print(flush=True)\n"
        "input()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code, run.path], stdin=pipe, stdout=pipe) as other:
        other.stdout.readline()
        aged(run, 1000)
        assert run.status == "running"
        with pytest.raises(RayfishError, match=f"is in training: process {other.pid} on"):
            run.require_idle()
        other.kill()
    os.utime(run.path / lease.LOCK)
    assert run.status == "lost"
    run.require_idle()
    assert not capsys.readouterr().err


def test_a_run_of_an_older_version_is_judged_by_the_age_of_its_record(run):
    run.data["process"] = {"host": "container-1", "pid": 7, "start": 0.0}
    run.update()
    assert run.status == "running"
    os.utime(run.path / "run.json", (0, 0))
    assert run.status == "lost"
    run.data["process"]["host"] = lease.platform.node()
    assert run.status == "lost"


def test_leases_are_judged_by_the_clock_of_the_file_server(run, monkeypatch):
    monkeypatch.setattr(lease.time, "time", lambda: 4e9)
    assert run.status == "running"


def test_the_lease_is_renewed_while_the_run_itself_does_nothing(workdir, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_S", 0.05)
    run = RunDirectory.create(Experiment.compose("cartpole"))
    aged(run, 1000)
    until = time.monotonic() + 10
    while lease._touched(run.path / lease.LOCK) < time.time() - 500:
        assert time.monotonic() < until
        time.sleep(0.02)
    run.finish("done", "x")
    aged(run, 1000)
    time.sleep(0.3)
    assert lease._touched(run.path / lease.LOCK) < time.time() - 500


def test_an_owner_that_was_suspended_too_long_stops_and_writes_nothing(workdir, monkeypatch):
    suspended = RunDirectory.create(Experiment.compose("cartpole"))
    taker = RunDirectory.open(suspended.path)
    taker.data["process"] |= ELSEWHERE
    aged(taker, 1000)
    taker.require_idle()
    taker.update(process=lease.this_process() | {"host": "container-2"})
    record = (taker.path / "run.json").read_bytes()
    for write in (suspended.update, lambda: suspended.finish("failed", "x"), suspended.require_held):
        with pytest.raises(lease.Taken, match="was taken over by process"):
            write()
    assert (taker.path / "run.json").read_bytes() == record
    taker.require_held()


def test_a_lock_file_that_was_removed_and_made_again_belongs_to_another_process(workdir):
    run = RunDirectory.create(Experiment.compose("cartpole"))
    (run.path / lease.LOCK).unlink()
    run.require_held()
    for mark, owner in (
        (b"process 7 on container-1, f00d\n", "process 7 on container-1"),
        (run._lease._mark, "another process"),
        (b"", "another process"),
    ):
        (run.path / lease.LOCK).write_bytes(mark)
        with pytest.raises(lease.Taken, match=f"taken over by {owner}: "):
            run.require_held()


def test_a_sweep_is_lost_when_its_process_is_gone_and_held_while_it_is_there(workdir):
    code = (
        "from rayfish.sweep.directory import SweepDirectory\n"
        "sweep = SweepDirectory.create('runs', 'x', {})\n"
        "print(sweep.path, flush=True)\n"
        "input()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as other:
        path = other.stdout.readline().strip()
        sweep = SweepDirectory.open(path)
        assert sweep.status == "running"
        with pytest.raises(RayfishError, match=f"is running: process {other.pid} on"):
            sweep.lock()
        other.kill()
    assert SweepDirectory.open(path).status == "lost"
    sweep.lock()
