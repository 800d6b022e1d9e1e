"""Deaths that a run survives: it goes back to its last checkpoint, or on without the dead, and says so."""

from __future__ import annotations

import subprocess

import psutil
import pytest

from tests.bad_input.faults import REMOTE, WORLD, environment_of_tests, kill, train, training
from tests.helpers import RAYFISH, info_of, metrics_of

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SIMULATOR = """import subprocess

from world import World


class Simulator(World):
    def __init__(self, **config):
        super().__init__(**config)
        self.program = subprocess.Popen(["sleep", "60"])

    def step(self, action):
        if self.program is not None:
            self.program.terminate()
            print("the program ended with", self.program.wait(timeout=20))
            self.program = None
        return super().step(action)
"""


def struck(folder, victim: str, more: str):
    """The output of a run of twelve iterations in which `victim` was killed, and its folder."""
    (folder / "world.py").write_text(WORLD)
    words = train("", f"{more} stop_conditions.training_iteration=12").split()
    pipe = subprocess.PIPE
    command = subprocess.Popen(
        [RAYFISH, *words], cwd=folder, stdout=pipe, stderr=pipe, text=True, env=environment_of_tests()
    )
    try:
        run = training(folder, command)
        kill(victim)(psutil.Process(command.pid), run)
        out, err = command.communicate(timeout=200)
    finally:
        command.kill()
    assert command.returncode == 0, out + err
    return out, run


def test_a_run_goes_back_to_its_checkpoint_when_the_learner_is_killed(tmp_path):
    out, run = struck(tmp_path, "_WrappedExecutable", "learners.num_learners=1 --ray-num-cpus 3")
    assert "the learner died: its process was killed" in out
    assert "(1 of 3)" in out
    assert info_of(run)["counters"]["run/learner_restarts"] == 1
    lines = metrics_of(run)
    assert [line["run/iteration"] for line in lines] == list(range(1, 13))
    assert [line["run/env_steps"] for line in lines] == [200 * i for i in range(1, 13)]


def test_a_run_goes_on_when_all_its_runners_are_killed(tmp_path):
    out, run = struck(tmp_path, "EnvRunner", REMOTE.replace("runners=1", "runners=2"))
    for runner in (1, 2):
        assert f"runner {runner} died: its process was killed or crashed" in out
    assert info_of(run)["counters"]["run/worker_restarts"] == 2
    assert info_of(run)["status"] == "done"
    assert "Traceback" not in out


def test_an_environment_on_a_runner_can_end_the_program_it_started(tmp_path):
    (tmp_path / "world.py").write_text(WORLD)
    (tmp_path / "simulator.py").write_text(SIMULATOR)
    words = train("", f"{REMOTE} stop_conditions.training_iteration=2").replace(
        "world.py:World", "simulator.py:Simulator"
    )
    done = subprocess.run(
        [RAYFISH, *words.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment_of_tests(),
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the program ended with -15" in done.stdout
