"""Killed without warning twenty times, at any moment, a run still ends as if it had never been touched."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.helpers import RAYFISH, comparable, info_of, metrics_of, only_run, rayfish

pytestmark = [pytest.mark.slow, pytest.mark.alone]

PPO = (
    "cartpole", "rollouts.num_env_runners=2", "rollouts.num_envs_per_env_runner=2",
    "rollouts.observation_filter=MeanStdFilter", "training.lr=[[0,0.002],[12000,0.0]]",
    "training.entropy_coeff=[[0,0.02],[12000,0.0]]", "training.train_batch_size_per_learner=256",
    "training.minibatch_size=64", "training.num_epochs=2", "training.model.fcnet_hiddens=[16]",
    "training.model.use_lstm=true", "training.model.lstm_cell_size=16", "training.model.max_seq_len=8",
    "evaluation.evaluation_interval=7", "evaluation.evaluation_duration=3",
)  # fmt: skip
DQN = (
    "cartpole-dqn", "training.num_steps_sampled_before_learning_starts=300",
    "reporting.min_sample_timesteps_per_iteration=60", "training.model.fcnet_hiddens=[16]",
    "training.target_network_update_freq=100",
)  # fmt: skip
COMMON = (
    "checkpoint.checkpoint_frequency=3",
    "checkpoint.num_to_keep=3",
    "stop_conditions.episode_reward_mean=null",
)

CPUS = ("--ray-num-cpus", "4")  # the two runners of PPO, the driver, and the machine may have but two

# When to strike. "starting" is before the first iteration, "early" right after it, "writing" in the
# middle of a checkpoint, "between" anywhere else.
KILLS = {
    "PPO": ["starting", "early", *["between", "writing"] * 2],
    "PPO by RLlib": ["between", "writing"],
    "DQN": ["starting", "early", *["between", "writing"] * 5],
}
RUNS = {"PPO": (PPO, 100), "PPO by RLlib": ((*PPO, "rollouts.runner=rllib"), 40), "DQN": (DQN, 240)}
"""What is trained, and for how many iterations; the first and the last on the batched path."""
assert sum(len(kills) for kills in KILLS.values()) == 20


@dataclass
class Reader:
    """Reads `run.json` all the time, as a monitor would; whatever it cannot read is a fault."""

    folder: Path
    reads: int = 0
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.wait(0.002):
            for path in self.folder.glob("runs/*/*/run.json"):
                try:
                    json.loads(path.read_text())
                    self.reads += 1
                except (OSError, ValueError) as error:
                    self.faults.append(repr(error))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def strike(process: subprocess.Popen, folder: Path, moment: str, chance: random.Random) -> None:
    """Waits for the moment, then kills the driver; what it started must end by itself."""

    def iterations() -> int:
        return sum(len(path.read_bytes().splitlines()) for path in folder.glob("runs/*/*/metrics.jsonl"))

    def seen() -> bool:
        if moment == "writing":
            return any(folder.glob("runs/*/*/checkpoints/.writing-*/*"))
        if moment == "starting":
            return any(folder.glob("runs/*/*/run.json")) and iterations() == before
        return iterations() > before + more

    more = chance.randrange(3) if moment == "between" else 0
    before, deadline = iterations(), time.monotonic() + 120
    while not seen():
        said = (folder / "said.txt").read_text()[-2000:]
        assert process.poll() is None, f"it ended before it could be killed while {moment}: {said}"
        assert time.monotonic() < deadline, f"no moment to kill it while {moment}"
        time.sleep(0.001)
    if moment == "writing":
        time.sleep(chance.uniform(0, 0.03))
    elif moment == "starting":
        time.sleep(chance.uniform(0, 4))
    else:
        time.sleep(chance.uniform(0, 0.05 if moment == "early" else 0.3))
    process.send_signal(signal.SIGKILL)
    process.wait()


def weights(run: Path) -> str:
    """A hash of the final weights."""
    digest = hashlib.sha256()
    for path in sorted((run / "checkpoints/last/policy").rglob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def tensorboard(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Every curve as TensorBoard shows it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "events"), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if comparable({tag: 0.0})
    }


@pytest.mark.parametrize("name", RUNS)
def test_a_run_killed_again_and_again_ends_as_if_never_touched(name, tmp_path):
    words, iterations = RUNS[name]
    chance = random.Random(name)
    goal = f"stop_conditions.training_iteration={iterations}"
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    rayfish("train", *CPUS, *words, *COMMON, goal, cwd=whole)
    reader = Reader(broken)
    command = ["train", *CPUS, *words, *COMMON, goal]
    for moment in KILLS[name]:
        process = subprocess.Popen(
            [RAYFISH, *command],
            cwd=broken,
            stdout=(broken / "said.txt").open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"TERM": "dumb"},
        )
        strike(process, broken, moment, chance)
        for link in broken.glob("runs/*/*/checkpoints/*"):
            assert link.exists(), f"{link} leads nowhere"
        command = ["train", *CPUS, "--resume", "last"]
    done = rayfish("train", *CPUS, "--resume", "last", cwd=broken)
    reader.stop()
    expected, got = only_run(whole), only_run(broken)
    assert info_of(got)["status"] == "done", done.stdout
    assert info_of(got)["runner"]["used"] == ("rllib" if "RLlib" in name else "batched")
    assert [comparable(line) for line in metrics_of(got)] == [
        comparable(line) for line in metrics_of(expected)
    ]
    assert weights(got) == weights(expected)
    assert tensorboard(got) == tensorboard(expected)
    assert info_of(got)["best"] == info_of(expected)["best"]
    assert sorted(p.name for p in (got / "checkpoints").iterdir()) == sorted(
        p.name for p in (expected / "checkpoints").iterdir()
    )
    assert reader.reads > 1000, "nobody read run.json"
    assert not reader.faults, reader.faults[:3]
