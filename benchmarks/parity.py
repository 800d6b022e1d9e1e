"""Learning parity: the batched path against RLlib's own runner, same experiment, same number of env steps.

    python benchmarks/parity.py                      # PPO, PPO with an LSTM, DQN and SAC; 5 seeds each
    python benchmarks/parity.py --task cartpole --seeds 2 --steps 40000

Writes `results/parity.json` and `results/parity.png`: the learning curve of every seed, and per task the
difference of the final returns (batched minus RLlib) with its 95 % interval (Welch's t). The final return of
a run is the mean return of its last finished episodes (100, for SAC 20). Claim: the whole interval lies
within 10 % of the way from a random policy to a solved task. Runs are kept in `results/parity-runs.jsonl`,
one line each, and are not repeated unless `--fresh` is given. All 50 runs take about an hour on 2 cores,
most of it RLlib's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results"
RUNS = RESULTS / "parity-runs.jsonl"
MARGIN = 0.1


@dataclass(frozen=True)
class Task:
    """What both paths learn.

    :param experiment: a preset, or a file of `conf/experiment`
    :param steps: env steps of a run: enough for both paths to be past the steep part of the curve
    :param random: mean return of a random policy
    :param solved: mean return that counts as solved (Gymnasium's threshold, or the preset's goal)
    :param words: further overrides
    """

    experiment: str
    steps: int
    random: float
    solved: float
    words: tuple[str, ...] = ()

    @property
    def allowed(self) -> float:
        """How far apart the final returns may be."""
        return MARGIN * (self.solved - self.random)


TASKS = {
    "cartpole": Task("cartpole", 400_000, 22, 475),
    "acrobot": Task("acrobot", 150_000, -500, -100),
    "repeat-lstm": Task("repeat-lstm", 40_000, 0, 100),
    "acrobot-dqn": Task("acrobot-dqn", 40_000, -500, -100),
    "pendulum-sac": Task(
        "pendulum", 22_000, -1230, -200, words=("reporting.metrics_num_episodes_for_smoothing=20",)
    ),
}
PATHS = {"batched": "batched", "rllib": "RLlib's runner"}
COLOURS = {"batched": "tab:blue", "rllib": "tab:orange"}


def main() -> None:
    """Makes the missing runs, prints the intervals, draws the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5, help="seeds 1 to N")
    parser.add_argument("--steps", type=int, help="env steps of every run")
    parser.add_argument("--fresh", action="store_true", help="repeat the runs of these tasks")
    words = parser.parse_args()
    if words.fresh:
        kept = [line for line in recorded() if line["task"] not in words.task]
        RUNS.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for task in words.task:
        steps = words.steps or TASKS[task].steps
        runs[task] = {
            path: [run(task, path, seed, steps) for seed in range(1, words.seeds + 1)] for path in PATHS
        }
    results = {task: compare(paths, TASKS[task].allowed) for task, paths in runs.items()}
    for task, result in results.items():
        print(
            f"{task}: batched {result['batched_mean']:.1f}, RLlib {result['rllib_mean']:.1f}, difference "
            f"{result['difference']:+.1f}, 95 % interval [{result['low']:.1f}, {result['high']:.1f}], "
            f"allowed +-{result['allowed']:.1f}: " + ("equal" if result["equal"] else "NOT SHOWN EQUAL")
        )
    file = RESULTS / "parity.json"
    known = json.loads(file.read_text("utf-8")) if file.exists() else {}
    file.write_text(json.dumps(known | results, indent=1) + "\n", encoding="utf-8")
    draw(runs, results)


def recorded() -> list[dict[str, Any]]:
    """All runs made so far."""
    return [json.loads(line) for line in RUNS.read_text("utf-8").splitlines()] if RUNS.exists() else []


def run(task: str, path: str, seed: int, steps: int) -> dict[str, Any]:
    """One run's curve of env steps and mean return; from the file if it was made before."""
    for line in recorded():
        if (line["task"], line["path"], line["seed"], line["asked_steps"]) == (task, path, seed, steps):
            return line
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).parent / "rayfish"), "train", TASKS[task].experiment]
        command += ["--config-dir", str(ROOT / "conf"), *TASKS[task].words]
        command += [f"rollouts.runner={path}", f"debugging.seed={seed}", f"runtime.local_dir={folder}/runs"]
        command += ["stop_conditions.episode_reward_mean=null", f"stop_conditions.timesteps_total={steps}"]
        done = subprocess.run(
            command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command[1:])}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
        place = next(Path(folder).glob("runs/*/*/run.json")).parent
        used = json.loads((place / "run.json").read_text("utf-8"))["runner"]["used"]
        if used != path:
            raise SystemExit(f"{task} was asked to run on {path}, run.json says {used}")
        metrics = [json.loads(line) for line in (place / "metrics.jsonl").read_text("utf-8").splitlines()]
    curve = [(m["run/env_steps"], m["rollout/return_mean"]) for m in metrics if "rollout/return_mean" in m]
    line = {"task": task, "path": path, "seed": seed, "asked_steps": steps, "curve": curve}
    with RUNS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(f"  {task} {path} seed {seed}: {curve[-1][1]:.1f} after {curve[-1][0]:,} steps", flush=True)
    return line


def compare(paths: dict[str, list[dict[str, Any]]], allowed: float) -> dict[str, Any]:
    """Difference of the mean final returns, with Welch's 95 % interval."""
    finals = {path: [line["curve"][-1][1] for line in lines] for path, lines in paths.items()}
    ours, theirs = finals["batched"], finals["rllib"]
    means = {path: sum(values) / len(values) for path, values in finals.items()}
    difference = means["batched"] - means["rllib"]
    low = high = difference
    if len(set(ours)) > 1 or len(set(theirs)) > 1:
        low, high = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return {
        "seeds": len(ours),
        "batched": ours,
        "rllib": theirs,
        "batched_mean": means["batched"],
        "rllib_mean": means["rllib"],
        "difference": difference,
        "low": float(low),
        "high": float(high),
        "allowed": allowed,
        "equal": bool(-allowed <= low and high <= allowed),
    }


def draw(runs: dict[str, dict[str, list[dict[str, Any]]]], results: dict[str, dict[str, Any]]) -> None:
    """Every seed's curve as a thin line, the mean over seeds as a thick one; one panel per task."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    figure, panels = plt.subplots(1, len(runs), figsize=(5 * len(runs), 4), squeeze=False)
    for panel, (task, paths) in zip(panels[0], runs.items(), strict=True):
        for path, lines in paths.items():
            curves = [np.array(line["curve"]) / (1000, 1) for line in lines]
            for curve in curves:
                panel.plot(curve[:, 0], curve[:, 1], color=COLOURS[path], alpha=0.3, linewidth=0.8)
            grid = np.linspace(max(c[0, 0] for c in curves), min(c[-1, 0] for c in curves), 100)
            mean = np.mean([np.interp(grid, c[:, 0], c[:, 1]) for c in curves], axis=0)
            panel.plot(grid, mean, color=COLOURS[path], linewidth=2, label=PATHS[path])
        result = results[task]
        panel.set_title(
            f"{task}: {result['difference']:+.1f} [{result['low']:.1f}, {result['high']:.1f}], "
            f"allowed +-{result['allowed']:.0f}"
        )
        panel.set_xlabel("thousand env steps")
        panel.set_ylabel("mean return of the last episodes")
        panel.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "parity.png", dpi=120)


if __name__ == "__main__":
    main()
