"""Machines with names and disks of their own join a sweep's cluster, and leave it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from rayfish.sweep.records import DONE, fold
from tests.helpers import RAYFISH, events_of, start_tune, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.alone]

RAY = Path(RAYFISH).with_name("ray")
ENV = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": "/tmp/rf-machines"}
SLEEPS = """
import time
from rayfish import sweep

def train(config):
    for step in range(4):
        time.sleep(0.5)
        sweep.report(score=config["x"] * step)
"""


class Machine:
    """A node of a Ray cluster with a host name of its own.

    :param before: a shell command that runs first, where mounts are the machine's alone
    """

    def __init__(self, folder: Path, name: str, *options: str, before: str = "true") -> None:
        self._output = folder / f"{name}.txt"
        command = f"hostname {name} && {before} && exec {RAY} start {' '.join(options)} --num-cpus=1 --block"
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                ["unshare", "--uts", "--mount", "sh", "-c", command],
                env=ENV,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def up(self) -> str:
        """Waits until it has started; gives what it printed."""
        until = time.monotonic() + 90
        while "Ray runtime started" not in (text := self._output.read_text()):
            assert self._process.poll() is None, text
            assert time.monotonic() < until, text
            time.sleep(0.1)
        return text

    def kill(self) -> None:
        """As when its power fails."""
        if self._process.poll() is None:
            first = psutil.Process(self._process.pid)
            first.suspend()
            for process in [*first.children(recursive=True), first]:
                process.kill()
            self._process.wait()


@pytest.fixture
def machines(tmp_path):
    """`join(name, before)` gives a further machine of the cluster; the first one is `head`."""
    tried = subprocess.run(["unshare", "--uts", "--mount", "true"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no machine can be made here: {tried.stderr.decode().strip()}")
    head = Machine(tmp_path, "machine-a", "--head", "--port=0", "--include-dashboard=false")
    started = [head]
    try:
        address = re.search(r"--address='(\S+)'", head.up())[1]

        def join(name: str, before: str = "true") -> Machine:
            started.append(Machine(tmp_path, name, f"--address={address}", before=before))
            return started[-1]

        yield address, head, join
    finally:
        for machine in reversed(started):
            machine.kill()


def test_an_experiment_of_a_machine_that_died_goes_on_from_its_checkpoint(machines, tmp_path):
    address, _, join = machines
    second = join("machine-b")
    second.up()
    words = ("cartpole", "training.lr=grid(1e-3,1e-4)", "stop_conditions.training_iteration=15")
    words += ("rollouts.num_env_runners=0", "checkpoint.checkpoint_frequency=1")
    process = start_tune(tmp_path, "--on", address, *words, RAY_AUTH_MODE="disabled")
    wait_for(tmp_path, process, "report", 6)
    second.kill()
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    trials = fold(events_of(tmp_path))
    assert [t.state for t in trials.values()] == [DONE, DONE], out
    assert [len(t.curve) for t in trials.values()] == [15, 15]
    assert [e["failures"] for e in events_of(tmp_path) if e["event"] == "lost"] in ([0], [0, 0])


def test_a_machine_that_does_not_see_the_folder_ends_the_sweep_before_it_loses_a_trial(machines, tmp_path):
    address, _, join = machines
    (tmp_path / "mine.py").write_text(SLEEPS)
    words = ("--function", "mine.py:train", "x=uniform(0,1)", "search.num_samples=40")
    process = start_tune(tmp_path, "--on", address, *words, RAY_AUTH_MODE="disabled")
    wait_for(tmp_path, process, "report", 1)
    join("machine-b", before=f"mount -t tmpfs none {tmp_path / 'runs'}")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1, out
    assert "the machine machine-b does not see" in out
    done = [t for t in fold(events_of(tmp_path)).values() if t.state == DONE]
    assert done
    assert all(list((tmp_path / "runs").glob(f"*/*/trials/{trial.name}")) for trial in done)


def test_the_death_of_the_head_is_reported_and_the_sweep_goes_on_elsewhere(machines, tmp_path):
    address, head, _ = machines
    (tmp_path / "mine.py").write_text(SLEEPS)
    words = ("--function", "mine.py:train", "x=uniform(0,1)", "search.num_samples=6")
    process = start_tune(tmp_path, "--on", address, *words, RAY_AUTH_MODE="disabled")
    wait_for(tmp_path, process, "end", 2)
    head.kill()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1, out
    assert "next step: rayfish tune --resume" in out
    again = start_tune(tmp_path, "--resume", "last", "search.max_failures=1")
    out, _ = again.communicate(timeout=120)
    assert again.returncode == 0, out
    assert [t.state for t in fold(events_of(tmp_path)).values()] == [DONE] * 6
