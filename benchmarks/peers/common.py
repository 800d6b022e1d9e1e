"""What every peer of `benchmarks/speed.py` shares: the tasks, the stopping rule and the one line printed.

Takes the words of a peer's command line (task, seed, threads, envs, limits); gives a `Progress` that the
peer tells about every finished episode and every round of steps, and that says when to stop. The goal is
the same for all: the mean return of the last `window` finished episodes, over all environments, with at
least `window` of them finished. Only the standard library is imported here, so that no peer pays for it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """One thing to learn.

    :param env: Gymnasium's id
    :param algo: PPO, DQN or SAC
    :param preset: the words after `rayfish train`
    :param goal: mean return of the last `window` finished episodes
    :param max_steps: env steps after which a peer gives up
    :param max_seconds: seconds of training after which a peer gives up
    :param probe_steps: env steps of one short run in the search for the best threads and env count
    """

    env: str
    algo: str
    preset: tuple[str, ...]
    goal: float
    max_steps: int
    max_seconds: float
    probe_steps: int
    window: int = 100


# Pendulum's episodes last 200 steps: a window of 100 would be 20,000 steps, minutes of waiting per run with
# SAC, so its window is 20 episodes.
TASKS = {
    "cartpole": Task("CartPole-v1", "PPO", ("cartpole",), 475.0, 500_000, 240.0, 50_000),
    "acrobot": Task("Acrobot-v1", "PPO", ("acrobot",), -100.0, 1_000_000, 300.0, 24_000),
    "lunarlander": Task("LunarLander-v3", "PPO", ("lunarlander",), 200.0, 2_000_000, 180.0, 36_000),
    "pendulum-ppo": Task("Pendulum-v1", "PPO", ("pendulum-ppo",), -250.0, 1_000_000, 300.0, 24_000),
    "cartpole-dqn": Task("CartPole-v1", "DQN", ("cartpole-dqn",), 475.0, 300_000, 150.0, 8_000),
    "pendulum-sac": Task("Pendulum-v1", "SAC", ("pendulum",), -200.0, 60_000, 420.0, 1_500, window=20),
}


@dataclass
class Progress:
    """Counts, and says when a peer is done.

    :param task: what is learnt
    :param max_steps: env steps after which to give up
    :param max_seconds: seconds of training after which to give up
    :param goal: the mean return to reach; None: run until a limit (to measure steps per second)
    """

    task: Task
    max_steps: int
    max_seconds: float
    goal: float | None
    returns: deque[float] = field(init=False)
    episodes: int = 0
    steps: int = 0
    reached: bool = False
    marks: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.returns = deque(maxlen=self.task.window)
        self.begun = 0.0

    def start(self) -> None:
        """Starts the clock: call it right before the first env step, when all is built."""
        self.begun = time.perf_counter()
        self.marks.append((0, 0.0))

    def episode(self, value: float) -> None:
        """One finished episode and its (raw, undiscounted) return."""
        self.returns.append(float(value))
        self.episodes += 1

    @property
    def mean(self) -> float:
        """Mean return of the window; minus infinity before an episode has ended."""
        return sum(self.returns) / len(self.returns) if self.returns else float("-inf")

    def over(self, steps: int) -> bool:
        """Whether to stop, with `steps` env steps made so far in all."""
        seconds = time.perf_counter() - self.begun
        self.steps = steps
        if seconds - self.marks[-1][1] > 0.05:
            self.marks.append((steps, seconds))
        full = len(self.returns) == self.task.window
        self.reached = self.goal is not None and full and self.mean >= self.goal
        done = self.reached or steps >= self.max_steps or seconds >= self.max_seconds
        if done:
            self.marks.append((steps, seconds))
        return done

    def report(self, **more: Any) -> None:
        """Prints the one line that `speed.py` reads."""
        seconds = self.marks[-1][1]
        print(
            json.dumps(
                {
                    "reached": self.reached,
                    "steps": self.steps,
                    "train_s": round(seconds, 3),
                    "steps_per_s": round(self.steps / seconds, 1),
                    "steady_steps_per_s": round(steady(self.marks), 1),
                    "episodes": self.episodes,
                    "return_mean": round(self.mean, 2) if self.returns else None,
                    **more,
                }
            ),
            flush=True,
        )


def steady(marks: list[tuple[int, float]]) -> float:
    """Env steps per second after the first quarter of a run: without compiling and filling buffers."""
    steps, seconds = marks[-1]
    first = next(mark for mark in marks if mark[0] >= steps / 4)
    if seconds - first[1] <= 0:
        return steps / max(seconds, 1e-9)
    return (steps - first[0]) / (seconds - first[1])


@dataclass(frozen=True)
class Words:
    """A peer's command line, read.

    :param task: what is learnt
    :param seed: of everything random
    :param threads: of the tensor library; 0 leaves it to the library
    :param envs: environment copies; 0 takes the settings' own number
    :param settings: hyper-parameters handed over by `speed.py` (RLlib gets Rayfish's this way)
    """

    task_name: str
    task: Task
    seed: int
    threads: int
    envs: int
    settings: dict[str, Any]
    progress: Progress


def read_words(description: str) -> Words:
    """The command line that all peers share; sets the thread count before any library is imported."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--envs", type=int, default=0)
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--max-seconds", type=float, help="give up after so many seconds of training")
    parser.add_argument("--max-steps", type=int, help="give up after so many env steps")
    parser.add_argument("--only-steps", type=int, help="no goal: make so many env steps")
    words = parser.parse_args()
    task = TASKS[words.task]
    limit_threads(words.threads)
    progress = Progress(
        task,
        words.only_steps or words.max_steps or task.max_steps,
        words.max_seconds or task.max_seconds,
        None if words.only_steps else task.goal,
    )
    return Words(words.task, task, words.seed, words.threads, words.envs, words.settings, progress)


def limit_threads(threads: int) -> None:
    """Sets what OpenMP, MKL and XLA read when they are loaded; 0 changes nothing."""
    if not threads:
        return
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
