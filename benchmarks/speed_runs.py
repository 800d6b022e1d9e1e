"""Peers of `speed.py` as processes: how each is started, and the file every run is added to.

Takes a task, a peer and a choice (threads, env count); starts the peer as a user would from the shell, times
the whole command, reads what it reports and adds one line to `results/speed-runs.jsonl`. A line is written as
soon as its run has ended, so that a benchmark cut off half-way goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
RUNS = ROOT / "results" / "speed-runs.jsonl"
sys.path.insert(0, str(ROOT / "peers"))

from common import TASKS, Task, steady  # noqa: E402  (the peers' folder is on the path only now)

GRACE = 120.0  # seconds a process may take for importing, building and ending, on top of its training limit


@dataclass(frozen=True)
class Choice:
    """What is searched for per peer.

    :param threads: of the tensor library; 0 leaves it to the peer
    :param envs: environment copies; 0 takes the settings' own number
    :param vectorize: RLlib's `gym_env_vectorize_mode`; empty for the others
    """

    threads: int = 0
    envs: int = 0
    vectorize: str = ""

    def __str__(self) -> str:
        envs = f"{self.envs} envs" if self.envs else "own envs"
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}" if self.threads else "own threads"
        return ", ".join(filter(None, [threads, envs, self.vectorize]))


@dataclass(frozen=True)
class Ask:
    """One run: who, what, how, and until when.

    :param only_steps: no goal: so many env steps
    :param max_seconds: seconds of training after which to give up; None takes the task's
    """

    task: str
    peer: str
    seed: int
    choice: Choice
    only_steps: int | None = None
    max_seconds: float | None = None


@dataclass(frozen=True)
class Peer:
    """A library to compare with.

    :param title: as tables show it
    :param tasks: those it has settings for
    :param run: starts it and gives what it reports
    :param own: the choice its settings make by themselves
    :param threads: thread counts to try
    :param envs: env counts to try per task; what is not listed keeps its settings' own number
    :param by: how the env count is chosen: `goal` (time to the goal, for settings in which the count changes
        what is learnt) or `steps` (steps per second, where the batch stays the same)
    """

    title: str
    tasks: tuple[str, ...]
    run: Callable[[Ask], dict[str, Any]]
    own: Callable[[str], Choice]
    threads: tuple[int, ...]
    envs: dict[str, tuple[Choice, ...]]
    by: str


def run_script(script: str, ask: Ask, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Runs a script of `peers/` and gives the line it prints, or what went wrong."""
    command = [sys.executable, str(ROOT / "peers" / script), "--task", ask.task, "--seed", str(ask.seed)]
    command += ["--threads", str(ask.choice.threads), "--envs", str(ask.choice.envs)]
    if ask.only_steps:
        command += ["--only-steps", str(ask.only_steps)]
    if ask.max_seconds:
        command += ["--max-seconds", str(ask.max_seconds)]
    if settings is not None:
        command += ["--settings", json.dumps({**settings, "vectorize": ask.choice.vectorize})]
    done, seconds = _timed(command, ask)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"error": (done.stderr or done.stdout)[-1500:], "whole_s": round(seconds, 2)}
    return {**json.loads(lines[-1]), "whole_s": round(seconds, 2)}


def run_rayfish(ask: Ask) -> dict[str, Any]:
    """`rayfish train <preset>` from the shell; the numbers come from its run directory."""
    task = TASKS[ask.task]
    limit = ask.max_seconds or task.max_seconds
    with tempfile.TemporaryDirectory() as folder:
        words = [f"runtime.local_dir={folder}", f"debugging.seed={ask.seed}"]
        goal = "null" if ask.only_steps else task.goal
        words += [
            f"stop_conditions.episode_reward_mean={goal}",
            f"stop_conditions.timesteps_total={ask.only_steps or task.max_steps}",
            f"stop_conditions.time_total_s={limit}",
        ]
        if task.window != 100:
            words.append(f"reporting.metrics_num_episodes_for_smoothing={task.window}")
        if ask.choice.envs:
            words.append(f"rollouts.num_envs_per_env_runner={ask.choice.envs}")
        command = [str(Path(sys.executable).parent / "rayfish"), "train", *task.preset]
        command += ["--config-dir", str(ROOT / "conf"), *words]
        done, seconds = _timed(command, ask)
        runs = sorted(Path(folder).glob("*/*/run.json"))
        if done.returncode or not runs:
            return {"error": (done.stderr or done.stdout)[-1500:], "whole_s": round(seconds, 2)}
        return {**_read_run(runs[-1].parent, task, ask), "whole_s": round(seconds, 2)}


def _read_run(folder: Path, task: Task, ask: Ask) -> dict[str, Any]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    info = json.loads((folder / "run.json").read_text("utf-8"))
    last = lines[-1]
    steps, seconds = int(last["run/env_steps"]), float(last["time/total_s"])
    mean = last.get("rollout/return_mean")
    full = last.get("run/episodes", 0) >= task.window
    marks = [(0, 0.0)] + [(int(line["run/env_steps"]), float(line["time/total_s"])) for line in lines]
    return {
        "reached": bool(not ask.only_steps and full and mean is not None and mean >= task.goal),
        "steps": steps,
        "train_s": round(seconds, 3),
        "steps_per_s": round(steps / seconds, 1),
        "steady_steps_per_s": round(steady(marks), 1),
        "episodes": int(last.get("run/episodes", 0)),
        "return_mean": mean,
        "threads": ask.choice.threads,
        "envs": ask.choice.envs or preset_settings(ask.task)["envs"],
        "runner": info["runner"]["used"],
        "settings": preset_settings(ask.task),
    }


def _timed(command: list[str], ask: Ask) -> tuple[subprocess.CompletedProcess[str], float]:
    """Runs a command from a folder of its own, without thread counts of the shell it was started from."""
    env = {key: value for key, value in os.environ.items() if key not in _THREADS}
    if ask.choice.threads:
        env["OMP_NUM_THREADS"] = env["MKL_NUM_THREADS"] = str(ask.choice.threads)
    limit = (ask.max_seconds or TASKS[ask.task].max_seconds) + GRACE
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        try:
            done = subprocess.run(
                command, cwd=folder, env=env, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(command, 1, "", f"did not end within {limit:.0f} s")
        return done, time.perf_counter() - begun


_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS")


@cache
def preset_settings(task: str) -> dict[str, Any]:
    """The hyper-parameters of Rayfish's preset, in RLlib's names: what the stock peer is given."""
    from rayfish.experiment import Experiment

    experiment = Experiment.compose(TASKS[task].preset[0], config_dir=ROOT / "conf")
    training = {k: v for k, v in experiment.section("training").items() if k not in {"model", "optimizer"}}
    return {
        "training": training,
        "model": dict(experiment.get("training.model") or {}),
        "reporting": dict(experiment.section("reporting")),
        "envs": experiment.get("rollouts.num_envs_per_env_runner"),
    }


def _stock_own(task: str) -> Choice:
    return Choice(threads=1, envs=preset_settings(task)["envs"], vectorize="sync")


def _envs(*counts: int) -> tuple[Choice, ...]:
    return tuple(Choice(envs=count) for count in counts)


_STOCK_ENVS = tuple(Choice(envs=count, vectorize="sync") for count in (16, 64, 128))
_NATIVE_ENVS = tuple(Choice(envs=count, vectorize="vector_entry_point") for count in (64, 128, 256))
_PPO = tuple(name for name, task in TASKS.items() if task.algo == "PPO")

PEERS = {
    "rayfish": Peer("Rayfish", tuple(TASKS), run_rayfish, lambda _: Choice(), (0, 1, 2), {}, "steps"),
    "rllib": Peer(
        "RLlib stock",
        tuple(TASKS),
        lambda ask: run_script("rllib_stock.py", ask, preset_settings(ask.task)),
        _stock_own,
        (1, 2),
        # Off-policy, RLlib learns once per round of env steps: there the count is part of the settings.
        {name: _STOCK_ENVS + (_NATIVE_ENVS if name == "cartpole" else ()) for name in _PPO},
        "steps",
    ),
    "sb3": Peer(
        "Stable-Baselines3",
        tuple(TASKS),
        lambda ask: run_script("sb3_zoo.py", ask),
        lambda _: Choice(threads=1),
        (1, 2),
        {"cartpole": _envs(16)},
        "goal",
    ),
    "sbx": Peer(
        "sbx (JAX)",
        tuple(TASKS),
        lambda ask: run_script("sbx_zoo.py", ask),
        lambda _: Choice(threads=1),
        (1, 2),
        {"cartpole": _envs(16)},
        "goal",
    ),
    "cleanrl": Peer(
        "CleanRL style",
        _PPO,
        lambda ask: run_script("cleanrl_ppo.py", ask),
        lambda _: Choice(threads=1),
        (1, 2),
        {},  # its one file fixes the env count
        "goal",
    ),
}


class Log:
    """The runs made so far, one per line of `results/speed-runs.jsonl`."""

    def __init__(self, path: Path = RUNS) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []
        if path.exists():
            self.lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]

    def made(self, kind: str, ask: Ask) -> dict[str, Any] | None:
        """The run of this kind made before."""
        for line in self.of(kind, ask.task, ask.peer):
            same = line["seed"] == ask.seed and line["choice"] == asdict(ask.choice)
            if same and line["only_steps"] == ask.only_steps:
                return line
        return None

    def run(self, kind: str, ask: Ask) -> dict[str, Any]:
        """Makes a run, or gives the one made before, and says a line about it."""
        known = self.made(kind, ask)
        if known is None:
            found = PEERS[ask.peer].run(ask)
            known = {
                "kind": kind, "task": ask.task, "peer": ask.peer, "seed": ask.seed,
                "choice": asdict(ask.choice), "only_steps": ask.only_steps,
                "when": time.strftime("%Y-%m-%dT%H:%M:%S"), **found,
            }  # fmt: skip
            if "error" not in known:  # a failure is shown, and tried again the next time
                self._add(known)
        who = f"{kind:7} {ask.task:13} {ask.peer:8} seed {ask.seed:<4} {ask.choice!s:38}"
        print(f"  {who} {said(known)}", flush=True)
        return known

    def _add(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def of(self, kind: str, task: str, peer: str) -> Iterator[dict[str, Any]]:
        """The runs of one kind, task and peer."""
        for line in self.lines:
            if (line["kind"], line["task"], line["peer"]) == (kind, task, peer):
                yield line

    def forget(self, kinds: set[str], tasks: list[str], peers: list[str]) -> None:
        """Drops the runs of these kinds, tasks and peers, to be repeated."""
        keep = [
            line
            for line in self.lines
            if not (line["kind"] in kinds and line["task"] in tasks and line["peer"] in peers)
        ]
        self.lines = keep
        self.path.write_text("".join(json.dumps(line) + "\n" for line in keep), encoding="utf-8")


def said(line: dict[str, Any]) -> str:
    """One run in words."""
    if "error" in line:
        return "failed:\n" + line["error"]
    how = "goal" if line["reached"] else ("probe" if line["only_steps"] else "NOT REACHED")
    times = f"training {line['train_s']:7.2f} s, whole {line['whole_s']:7.2f} s"
    speed = f"steady {line['steady_steps_per_s']:>9,.0f} steps/s, mean {line['return_mean']}"
    return f"{how}: {line['steps']:>8,} steps, {times}, {speed}"
