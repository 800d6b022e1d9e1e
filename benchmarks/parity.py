"""Learning parity: the batched path against RLlib's own runner, same experiment, same number of env steps.

    python benchmarks/parity.py                      # CartPole and Acrobot, 5 seeds each
    python benchmarks/parity.py --preset cartpole --seeds 2 --steps 40000

Takes presets; gives `results/parity.json` and `results/parity.png`: the learning curves of every seed, and
per preset the difference of the final returns (batched minus stock) with its 95 % interval (Welch's t). The
final return of a run is the mean return of its last 100 finished episodes. Claim: the batched path is not
worse, that is, the interval's upper end is not below zero. Runs are kept in `results/parity-runs.jsonl`, one
line each, and are not made again unless `--fresh` is given. All 20 runs take about 10 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
RUNS = RESULTS / "parity-runs.jsonl"
# Long enough for both paths to be past the steep part of the curve.
STEPS = {"cartpole": 250_000, "acrobot": 150_000}
PATHS = {"batched": "batched", "rllib": "RLlib's runner"}
COLOURS = {"batched": "tab:blue", "rllib": "tab:orange"}
# The 97.5 % point of Student's t, by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262,
           10: 2.228, 12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042}  # fmt: skip


def main() -> None:
    """Makes the runs that are missing, prints the intervals, draws the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--seeds", type=int, default=5, help="seeds 1 to N")
    parser.add_argument("--steps", type=int, help="env steps of every run")
    parser.add_argument("--fresh", action="store_true", help="make the runs anew")
    words = parser.parse_args()
    if words.fresh:
        RUNS.unlink(missing_ok=True)
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for preset in words.preset:
        steps = words.steps or STEPS[preset]
        runs[preset] = {
            path: [run(preset, path, seed, steps) for seed in range(1, words.seeds + 1)] for path in PATHS
        }
    found = {preset: compare(paths) for preset, paths in runs.items()}
    for preset, result in found.items():
        print(
            f"{preset}: batched {result['batched_mean']:.1f}, stock {result['rllib_mean']:.1f}, difference "
            f"{result['difference']:+.1f}, 95 % interval [{result['low']:.1f}, {result['high']:.1f}]: "
            + ("not worse" if result["not_worse"] else "WORSE")
        )
    (RESULTS / "parity.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draw(runs, found)


def run(preset: str, path: str, seed: int, steps: int) -> dict[str, Any]:
    """One run's curve: env steps and mean return of the last 100 episodes; from the file if made before."""
    known = [json.loads(line) for line in RUNS.read_text("utf-8").splitlines()] if RUNS.exists() else []
    for line in known:
        if (line["preset"], line["path"], line["seed"], line["asked_steps"]) == (preset, path, seed, steps):
            return line
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).parent / "rayfish"), "train", preset]
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
            raise SystemExit(f"{preset} was asked to run on {path}, run.json says {used}")
        metrics = [json.loads(line) for line in (place / "metrics.jsonl").read_text("utf-8").splitlines()]
    curve = [(m["run/env_steps"], m["rollout/return_mean"]) for m in metrics if "rollout/return_mean" in m]
    line = {"preset": preset, "path": path, "seed": seed, "asked_steps": steps, "curve": curve}
    RESULTS.mkdir(exist_ok=True)
    with RUNS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(f"  {preset} {path} seed {seed}: {curve[-1][1]:.1f} after {curve[-1][0]:,} steps", flush=True)
    return line


def compare(paths: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Difference of the mean final returns, with Welch's 95 % interval."""
    finals = {path: [line["curve"][-1][1] for line in lines] for path, lines in paths.items()}
    ours, theirs = finals["batched"], finals["rllib"]
    difference = statistics.mean(ours) - statistics.mean(theirs)
    parts = [statistics.variance(values) / len(values) for values in (ours, theirs)]
    error = math.sqrt(sum(parts))
    spread = sum(part**2 / (len(v) - 1) for part, v in zip(parts, (ours, theirs), strict=True))
    freedom = sum(parts) ** 2 / spread if spread else len(ours) + len(theirs) - 2
    half = student(freedom) * error
    return {
        "seeds": len(ours),
        "batched": ours,
        "rllib": theirs,
        "batched_mean": statistics.mean(ours),
        "rllib_mean": statistics.mean(theirs),
        "difference": difference,
        "low": difference - half,
        "high": difference + half,
        "not_worse": difference + half >= 0,
    }


def student(freedom: float) -> float:
    """The two-sided 95 % point of Student's t; between the table's rows, the wider one."""
    return STUDENT[max((row for row in STUDENT if row <= freedom), default=1)]


def draw(runs: dict[str, dict[str, list[dict[str, Any]]]], found: dict[str, dict[str, Any]]) -> None:
    """Every seed's curve as a thin line, the mean over seeds as a thick one; one panel per preset."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    figure, panels = plt.subplots(1, len(runs), figsize=(6 * len(runs), 4), squeeze=False)
    for panel, (preset, paths) in zip(panels[0], runs.items(), strict=True):
        for path, lines in paths.items():
            curves = [np.array(line["curve"]) for line in lines]
            for curve in curves:
                panel.plot(curve[:, 0], curve[:, 1], color=COLOURS[path], alpha=0.3, linewidth=0.8)
            grid = np.linspace(max(c[0, 0] for c in curves), min(c[-1, 0] for c in curves), 100)
            mean = np.mean([np.interp(grid, c[:, 0], c[:, 1]) for c in curves], axis=0)
            panel.plot(grid, mean, color=COLOURS[path], linewidth=2, label=PATHS[path])
        result = found[preset]
        panel.set_title(
            f"{preset}: difference {result['difference']:+.1f} [{result['low']:.1f}, {result['high']:.1f}]"
        )
        panel.set_xlabel("env steps")
        panel.set_ylabel("mean return of the last 100 episodes")
        panel.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "parity.png", dpi=120)


if __name__ == "__main__":
    main()
