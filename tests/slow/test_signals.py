"""Ctrl-C, SIGTERM and SIGHUP, as a terminal, a colleague or a scheduler sends them."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.helpers import RAYFISH, info_of, metrics_of, only_run, rayfish

pytestmark = [pytest.mark.slow, pytest.mark.alone]

WORDS = (
    "train", "cartpole", "--ray-num-cpus", "4", "training.train_batch_size_per_learner=512",
    "training.minibatch_size=128", "training.num_epochs=1", "rollouts.num_env_runners=1",
    "rollouts.num_envs_per_env_runner=8", "training.model.fcnet_hiddens=[32]",
    "checkpoint.checkpoint_frequency=2", "stop_conditions.training_iteration=4000",
    "stop_conditions.episode_reward_mean=null",
)  # fmt: skip

SLOW_ENV = """
import time
import gymnasium as gym

class Slow(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action):
        Slow.steps += 1
        if Slow.steps > 2000:
            time.sleep(1.0)
        return self.observation_space.low, 1.0, Slow.steps % 20 == 0, False, {}
"""


def start(folder: Path, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [RAYFISH, *WORDS, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for_checkpoint(folder: Path, number: int, timeout: float = 120) -> Path:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if len(list(folder.glob("runs/*/*/checkpoints/[0-9]*/rayfish.json"))) >= number:
            return only_run(folder)
        time.sleep(0.1)
    raise AssertionError("no checkpoint in time")


def ended(process: subprocess.Popen, within: float) -> str:
    """Its output, once it and all it started have gone."""
    began, family = time.monotonic(), psutil.Process(process.pid).children(recursive=True)
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - began < within, output
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE], alive
    return output


def last_saved(run: Path) -> int:
    return int((run / "checkpoints/last").resolve().name)


def test_ctrl_c_finishes_the_iteration_saves_and_says_how_to_resume(tmp_path):
    process = start(tmp_path)
    run = wait_for_checkpoint(tmp_path, 1)
    process.send_signal(signal.SIGINT)
    output = ended(process, 30)
    assert process.returncode == 130, output
    assert info_of(run)["status"] == "stopped"
    assert last_saved(run) == metrics_of(run)[-1]["run/iteration"]
    assert "--resume" in output


def test_ctrl_c_twice_stops_at_once_and_breaks_nothing(tmp_path):
    process = start(tmp_path)
    run = wait_for_checkpoint(tmp_path, 1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output = ended(process, 15)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert info_of(run)["status"] == "stopped"
    goal = f"stop_conditions.training_iteration={last_saved(run) + 2}"
    rayfish("train", "--ray-num-cpus", "4", "--resume", "last", goal, cwd=tmp_path)
    iterations = [line["run/iteration"] for line in metrics_of(run)]
    assert iterations == list(range(1, len(iterations) + 1))


def test_a_preempted_job_saves_although_all_its_processes_get_sigterm(tmp_path):
    process = start(tmp_path)
    run = wait_for_checkpoint(tmp_path, 1)
    for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        os.kill(one.pid, signal.SIGTERM)
    output = ended(process, 20)
    assert process.returncode == 143, output
    assert info_of(run)["status"] == "stopped"
    assert "SIGTERM" in info_of(run)["reason"]
    assert last_saved(run) == metrics_of(run)[-1]["run/iteration"]
    assert "--resume" in output


def test_a_closed_terminal_saves_and_ends_the_run(tmp_path):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(RAYFISH, [RAYFISH, *WORDS])
    reader = threading.Thread(target=read_all, args=(terminal,), daemon=True)
    reader.start()
    run = wait_for_checkpoint(tmp_path, 1)
    family = psutil.Process(pid).children(recursive=True)
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert (code, info_of(run)["status"], info_of(run)["reason"]) == (129, "stopped", "SIGHUP")
    assert last_saved(run) == metrics_of(run)[-1]["run/iteration"]
    assert not psutil.wait_procs(family, timeout=10)[1]


def read_all(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass


def test_an_iteration_too_long_for_a_preempted_job_is_given_up(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_ENV)
    process = start(tmp_path, "environment.env=slow.py:Slow", "rollouts.num_env_runners=0")
    run = wait_for_checkpoint(tmp_path, 1)
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    output = ended(process, 20)
    assert "Traceback" not in output
    assert info_of(run)["status"] == "stopped"
    assert "the iteration did not end within 12 s" in info_of(run)["reason"]
    assert (run / "checkpoints/last").exists()


@pytest.mark.parametrize("after_s", [0.3, 1.0, 2.0, 2.8, 3.3, 3.6])  # while Ray starts, and just after
def test_a_signal_before_the_first_iteration_ends_the_run_with_a_reason(tmp_path, after_s):
    process = start(tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("runs/*/*/run.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(after_s)
    process.send_signal(signal.SIGTERM)
    output = ended(process, 20)
    assert "Traceback" not in output
    assert process.returncode == 143, output
    run = only_run(tmp_path)
    began = (run / "checkpoints/last").exists()  # on a fast machine the latest of them come after that
    reason = "SIGTERM" if began else "SIGTERM, before it began"
    assert (info_of(run)["status"], info_of(run)["reason"]) == ("stopped", reason)
