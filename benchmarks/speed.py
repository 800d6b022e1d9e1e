"""Rayfish against its peers, on this machine: steps per second and time to a goal.

    python benchmarks/speed.py                            # CartPole with PPO and DQN
    python benchmarks/speed.py --task all                 # every task
    python benchmarks/speed.py --task acrobot --peer rayfish sb3 --seeds 1
    python benchmarks/speed.py --quick                    # one seed, no search, nothing written to the tables
    python benchmarks/speed.py --only-steps               # steps per second alone, no goals
    python benchmarks/speed.py --equal                    # Rayfish and RLlib at equal network and batch

Peers run one after the other, each as a process of its own from the shell: Rayfish (`rayfish train`), RLlib
stock with Rayfish's hyper-parameters, Stable-Baselines3 and sbx with the RL Baselines3 Zoo's settings, and
CleanRL-style PPO with its defaults. Measured for each: env steps per second, seconds of training and
seconds of the whole command, to a true mean return of the last 100 finished episodes (20 on Pendulum with
SAC). Before that, each peer's best thread count and env count are searched for, on seeds that are not
measured.

Every run is added to `results/speed-runs.jsonl` as soon as it has ended, and is not made again: a benchmark
that was cut off goes on where it stopped. `--fresh` repeats the chosen tasks' and peers' runs (`--fresh
all` their search too). Tables: `results/speed.json` and `results/speed.md`.

Expected on 2 idle cores with all peers and 3 seeds (estimates): search of a task 2 to 4 minutes (CartPole,
where env counts are tried to the goal, 6), then CartPole 8 minutes, DQN 15, Acrobot 12, Pendulum 15 with PPO
and 20 with SAC, LunarLander 40 (3 minutes is the limit of one run). With the search in place the
default takes at most 25 minutes; `--equal` takes 3.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
from dataclasses import replace
from typing import Any

import speed_table
from speed_runs import PEERS, ROOT, TASKS, Ask, Choice, Log

DEFAULT = ["cartpole", "cartpole-dqn"]
SEARCH_SEEDS = (101, 102)
WORTH = 1.05  # how much faster another choice must be to replace a peer's own
PATIENCE = 1.5  # a choice that takes so much longer than the best one so far is given up


def main() -> None:
    """Reads the command line, makes the runs that are missing, writes the tables."""
    words = read_words()
    if words.equal:
        subprocess.run([sys.executable, str(ROOT / "peers" / "equal.py")], check=True)
        if not words.task:
            print(speed_table.write(Log(), "run"))
            return
    tasks = list(TASKS) if words.task == ["all"] else words.task or DEFAULT
    peers = words.peer or list(PEERS)
    kind = "quick" if words.quick else "steps" if words.only_steps else "run"
    log = Log()
    if words.fresh:
        log.forget({kind, "search"} if words.fresh == "all" else {kind}, tasks, peers)
    for task in tasks:
        for peer in peers:
            if task in PEERS[peer].tasks:
                choice = PEERS[peer].own(task) if words.quick else search(log, task, peer)
                seeds = 1 if words.quick else words.seeds
                measure(log, kind, Ask(task, peer, 1, choice), seeds)
    print()
    print(speed_table.write(log, kind))


def read_words() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", nargs="+", choices=[*TASKS, "all"], help="default: " + " ".join(DEFAULT))
    parser.add_argument("--peer", nargs="+", choices=list(PEERS), help="default: all")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 1 to N are measured")
    parser.add_argument("--quick", action="store_true", help="one seed, each peer's own choice, no search")
    parser.add_argument("--only-steps", action="store_true", help="short runs without a goal")
    parser.add_argument("--equal", action="store_true", help="equal network, batch, minibatch and epochs")
    parser.add_argument("--fresh", nargs="?", const="runs", choices=["runs", "all"], help="repeat these runs")
    return parser.parse_args()


def measure(log: Log, kind: str, ask: Ask, seeds: int) -> None:
    """The runs that count: seeds 1 to `seeds`."""
    steps = TASKS[ask.task].probe_steps if kind == "steps" else None
    for seed in range(1, seeds + 1):
        log.run(kind, replace(ask, seed=seed, only_steps=steps))


def search(log: Log, task: str, peer: str) -> Choice:
    """A peer's best choice: threads by steps per second, then the env count by what its settings call for.

    A peer's own choice is kept unless another one is clearly faster.
    """
    known = PEERS[peer]
    own = known.own(task)
    by_threads = {replace(own, threads=threads): 0.0 for threads in known.threads}
    best = _fastest(own, {choice: _probe(log, task, peer, choice) for choice in by_threads})
    others = [replace(other, threads=best.threads) for other in known.envs.get(task, ())]
    if not others:
        return best
    if known.by == "steps":
        return _fastest(best, {choice: _probe(log, task, peer, choice) for choice in [best, *others]})
    speeds: dict[Choice, float] = {}
    for choice in [best, *others]:
        limit = PATIENCE / max(speeds.values()) if speeds and max(speeds.values()) else None
        speeds[choice] = 1 / _seconds_to_goal(log, task, peer, choice, limit)
    return _fastest(best, speeds)


def _fastest(own: Choice, speeds: dict[Choice, float]) -> Choice:
    best = max(speeds, key=lambda choice: speeds[choice])
    return best if speeds[best] > WORTH * speeds.get(own, 0.0) else own


def _probe(log: Log, task: str, peer: str, choice: Choice) -> float:
    """Steady env steps per second of a short run; 0 when it fails."""
    steps = TASKS[task].probe_steps
    found: dict[str, Any] = log.run("search", Ask(task, peer, SEARCH_SEEDS[0], choice, only_steps=steps))
    return float(found.get("steady_steps_per_s", 0.0))


def _seconds_to_goal(log: Log, task: str, peer: str, choice: Choice, limit: float | None) -> float:
    """Mean training time to the goal over the search seeds; infinite when one misses it."""
    times = []
    for seed in SEARCH_SEEDS:
        found = log.run("search", Ask(task, peer, seed, choice, max_seconds=limit))
        times.append(found["train_s"] if found.get("reached") else math.inf)
        if math.isinf(times[-1]):
            return math.inf
    return statistics.mean(times)


if __name__ == "__main__":
    main()
