"""A sweep of real trainings, killed again and again, ends as one that was never touched."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rayfish.sweep.records import DONE, fold, read_events
from tests.helpers import RAYFISH, comparable, metrics_of, rayfish

pytestmark = [pytest.mark.slow, pytest.mark.alone]

WORDS = (
    "tune", "cartpole", "training.lr=loguniform(1e-4,1e-2)", "training.gamma=choice(0.95,0.99)",
    "search.method=random", "search.num_samples=6", "search.seed=11",
    "stop_conditions.training_iteration=30", "stop_conditions.episode_reward_mean=null",
    "checkpoint.checkpoint_frequency=4", "training.train_batch_size_per_learner=2048", "--plain",
)  # fmt: skip


def sweep_of(folder: Path) -> Path:
    (found,) = (folder / "runs").glob("*/*/sweep.json")
    return found.parent


def kill_when(folder: Path, words: tuple[str, ...], reports: int) -> None:
    """Starts, and kills the driver without warning after so many more reports."""
    process = subprocess.Popen(
        [RAYFISH, *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "dumb"},
    )
    tables = folder / "runs"
    known = sum(e["event"] == "report" for t in tables.glob("*/*/trials.jsonl") for e in read_events(t))
    until = time.monotonic() + 120
    while True:
        now = sum(e["event"] == "report" for t in tables.glob("*/*/trials.jsonl") for e in read_events(t))
        if now >= known + reports:
            break
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1.0)  # Ray's processes notice


def test_a_sweep_killed_three_times_equals_one_that_was_not(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    rayfish(*WORDS, cwd=whole)
    kill_when(killed, WORDS, 21)
    kill_when(killed, ("tune", "--resume", "last", "--plain"), 33)
    kill_when(killed, ("tune", "--resume", "last", "--plain"), 17)
    rayfish("tune", "--resume", "last", "--plain", cwd=killed)
    a, b = sweep_of(whole), sweep_of(killed)
    trials = fold(read_events(a / "trials.jsonl")), fold(read_events(b / "trials.jsonl"))
    assert len(trials[0]) == len(trials[1]) == 6
    attempts = 0
    for number, first in trials[0].items():
        second = trials[1][number]
        assert first.params == second.params
        assert first.state == second.state == DONE
        assert first.curve == second.curve, f"trial {number}"
        lines = metrics_of(a / "trials" / first.name), metrics_of(b / "trials" / second.name)
        assert len(lines[0]) == 30
        assert list(map(comparable, lines[0])) == list(map(comparable, lines[1])), f"trial {number}"
        attempts += second.attempt
    assert attempts >= 9, "the kills hit nothing"
    assert (b / "best").resolve().name == (a / "best").resolve().name
