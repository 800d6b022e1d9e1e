"""A run killed without warning goes on from its last checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.helpers import RAYFISH, info_of, metrics_of, only_run, rayfish

pytestmark = pytest.mark.slow

WORDS = (
    "train", "cartpole", "training.train_batch_size_per_learner=512", "training.minibatch_size=128",
    "training.num_epochs=1", "rollouts.num_envs_per_env_runner=8", "training.model.fcnet_hiddens=[32]",
    "checkpoint.checkpoint_frequency=2", "stop_conditions.training_iteration=400",
    "stop_conditions.episode_reward_mean=null",
)  # fmt: skip


def start(folder: Path) -> subprocess.Popen:
    """The run as a process group of its own, so that killing it reaches what it started."""
    return subprocess.Popen(
        [RAYFISH, *WORDS],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for_checkpoint(folder: Path, number: int, timeout: float = 120) -> Path:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = sorted(folder.glob("runs/*/*/checkpoints/[0-9]*/rayfish.json"))
        if len(found) >= number:
            return only_run(folder)
        time.sleep(0.1)
    raise AssertionError("no checkpoint in time")


def test_a_killed_run_resumes_without_a_step_in_its_curve(tmp_path):
    process = start(tmp_path)
    run = wait_for_checkpoint(tmp_path, 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert rayfish("runs", "list", cwd=tmp_path).stdout.count("lost") == 1
    last = int((run / "checkpoints/last").resolve().name)
    rayfish("train", "--resume", "last", f"stop_conditions.training_iteration={last + 5}", cwd=tmp_path)
    lines = metrics_of(run)
    assert [line["run/iteration"] for line in lines] == list(range(1, last + 6))
    steps = [line["run/env_steps"] for line in lines]
    assert all(500 <= b - a <= 600 for a, b in pairwise(steps))
    assert info_of(run)["status"] == "done"


def test_ctrl_c_finishes_the_iteration_saves_and_says_how_to_resume(tmp_path):
    process = subprocess.Popen(
        [RAYFISH, *WORDS], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    run = wait_for_checkpoint(tmp_path, 1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert info_of(run)["status"] == "stopped"
    iteration = metrics_of(run)[-1]["run/iteration"]
    assert (run / "checkpoints/last").resolve().name == f"{iteration:06.0f}"
    assert "--resume" in output
