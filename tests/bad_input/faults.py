"""Faults that strike while a run is training: what is typed, what lies there, who is killed meanwhile."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.bad_input.harness import PLAIN, Seen, run_here
from tests.helpers import RAYFISH

SMALL = (
    "rollouts.num_envs_per_env_runner=2 training.train_batch_size_per_learner=200 training.minibatch_size=50 "
    "training.num_epochs=1 training.model.fcnet_hiddens=[8] stop_conditions.episode_reward_mean=null "
    "checkpoint.checkpoint_frequency=1"
)
"""Iterations that take a fraction of a second."""

REMOTE = "fault_tolerance.delay_between_env_runner_restarts_s=0.5 rollouts.num_env_runners=1 --ray-num-cpus 3"

WORLD = """import ctypes
import time

import gymnasium as gym
import numpy as np


class World(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault="", after=350):
        self.fault, self.left = fault, after

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        self.left -= 1
        seen, reward = np.zeros(2, np.float32), 1.0
        if self.fault and self.left < 0:
            seen, reward = getattr(self, self.fault)(seen, reward)
        return seen, reward, self.t >= 10, False, {}

    def breaks(self, seen, reward):
        raise RuntimeError("the motor is hot")

    def not_a_number(self, seen, reward):
        return seen / 0, reward

    def grows(self, seen, reward):
        return np.zeros(3, np.float32), reward

    def pays_too_much(self, seen, reward):
        return seen, float("inf")

    def hangs(self, seen, reward):
        while True:
            time.sleep(1)

    def hangs_in_c(self, seen, reward):
        mutex = ctypes.create_string_buffer(64)
        lock = ctypes.CDLL(None).pthread_mutex_lock
        lock(mutex), lock(mutex)

    def takes_all_memory(self, seen, reward):
        raise MemoryError

    def hoards(self, seen, reward):
        self.hoard = [*getattr(self, "hoard", []), np.ones(40_000_000, np.uint8)]
        return seen, reward
"""

CALLBACKS = """import time

from ray.rllib.callbacks.callbacks import RLlibCallback


class Breaks(RLlibCallback):
    def on_train_result(self, *, algorithm, result, **kwargs):
        if algorithm.iteration >= 3:
            raise KeyError("colour")


class Hangs(RLlibCallback):
    def on_train_result(self, *, algorithm, result, **kwargs):
        while algorithm.iteration >= 3:
            time.sleep(1)
"""

MODEL = """import torch


class Breaks(torch.nn.Module):
    def __init__(self, observation_space, action_space, num_outputs, model_config, **kwargs):
        super().__init__()
        self.body = torch.nn.Linear(2, num_outputs + 1)
        self.calls = 0

    def forward(self, obs, **kwargs):
        self.calls += 1
        if self.calls > 400:
            raise RuntimeError("the cable is loose")
        out = self.body(obs)
        return out[..., :-1], out[..., -1]
"""


@dataclass(frozen=True)
class Fault:
    """One fault.

    :param name: what happens, the name of its snapshot
    :param line: what the user typed after `rayfish`
    :param strike: done to the process and the run's folder once some iterations are done
    :param said: words that the message must hold
    :param files: what lies in the current folder besides world.py
    :param environment: variables of the environment
    :param kept: whether the run's folder, with a checkpoint in it, is there afterwards
    :param here: called in this process, on the Ray of the tests, which is faster
    """

    name: str
    line: str
    said: str
    strike: Callable[[psutil.Process, Path], None] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    kept: bool = True
    here: bool = False


def train(world: str, more: str = "") -> str:
    """The command that trains in a world with a fault."""
    fault = f" environment.env_config.fault={world}" if world else ""
    return f"train cartpole environment.env=world.py:World{fault} {SMALL} {more}".strip()


def kill(name: str) -> Callable[[psutil.Process, Path], None]:
    """Kills the processes below the command whose name holds `name`."""

    def strike(command: psutil.Process, run: Path) -> None:
        hit = [child for child in command.children(recursive=True) if name in child.name()]
        assert hit, [child.name() for child in command.children(recursive=True)]
        for child in hit:
            child.kill()

    return strike


def remove_folder(command: psutil.Process, run: Path) -> None:
    """Removes the run's folder, though the run goes on writing into it."""
    while run.exists():
        shutil.rmtree(run, ignore_errors=True)


def run(fault: Fault, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The command, typed in `folder`, struck once it trains."""
    for name, content in {"world.py": WORLD, **fault.files}.items():
        (folder / name).write_text(content)
    if fault.here:
        return run_here(shlex.split(fault.line), folder, monkeypatch)
    pipe = subprocess.PIPE
    command = subprocess.Popen(
        [RAYFISH, *shlex.split(fault.line)],
        cwd=folder,
        stdout=pipe,
        stderr=pipe,
        text=True,
        env={**environment_of_tests(), **fault.environment},
    )
    try:
        if fault.strike is not None:
            fault.strike(psutil.Process(command.pid), training(folder, command))
        out, err = command.communicate(timeout=150)
    finally:
        command.kill()
    return Seen(command.returncode, out, err)


def training(folder: Path, command: subprocess.Popen, iterations: int = 3) -> Path:
    """The run's folder, as soon as so many iterations are done."""
    until = time.monotonic() + 90
    while time.monotonic() < until and command.poll() is None:
        for file in folder.glob("runs/*/*/metrics.jsonl"):
            if len(file.read_text().splitlines()) >= iterations:
                return file.parent
        time.sleep(0.1)
    raise AssertionError(f"it never trained: {command.communicate()}")


def steady(text: str) -> str:
    """`text` without the lines that tell of progress, whose number and figures differ from run to run."""
    moving = r"\[\d+:\d\d\]  iteration |checkpoint \d+: "
    lines = [line for line in text.splitlines() if not re.match(moving, line)]
    text = "\n".join(lines) + "\n"
    text = re.sub(r"iteration \d+", "iteration 3", text)
    text = re.sub(r"checkpoints/\d{6}", "checkpoints/000003", text)
    text = re.sub(r"it used [\d.]+GB", "it used 3.0GB", text)
    return re.sub(r"in step \d+ of the episode", "in step 5 of the episode", text)


def environment_of_tests() -> dict[str, str]:
    """Variables that make what is printed the same everywhere."""
    return {**os.environ, **PLAIN}
