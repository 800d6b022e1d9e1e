"""What `rayfish train` costs on top of RLlib: CPU time per iteration, interleaved with RLlib by hand.

    python benchmarks/overhead.py           # prints and writes benchmarks/results/overhead.json

Two algorithms are built from the same `AlgorithmConfig` (the cartpole preset). In turn, one is driven
by hand (`algorithm.train()`), the other by Rayfish's whole loop (metrics, files, TensorBoard, run.json,
console; checkpoints at their usual frequency). The machine's noise hits both alike; medians of the CPU
time (user and system, all threads) per iteration are compared. Claim: about 1 ms per iteration, 3 to 4 % of
the cartpole preset's 36 ms.
"""

from __future__ import annotations

import json
import platform
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from rayfish.algorithm.build import build_algorithm
from rayfish.experiment import Experiment
from rayfish.run import preflight
from rayfish.run.directory import RunDirectory
from rayfish.run.engine import RayOptions
from rayfish.run.train import Run

ROOT = Path(__file__).resolve().parent
ITERATIONS = 40
WARM_UP = 5


def main() -> None:
    """Measures, prints and writes the result file."""
    experiment = Experiment.compose("cartpole", ["stop_conditions.episode_reward_mean=null"])
    info = preflight.require(experiment)
    by_hand, by_rayfish = [], []
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(experiment, folder, "overhead", "benchmarks/overhead.py")
        with Run(experiment, directory, RayOptions(), info, plain=True) as run:
            algorithm = build_algorithm(run.trainer.config.copy(copy_frozen=False), folder)
            for _ in range(ITERATIONS + WARM_UP):
                by_hand.append(cpu_seconds(algorithm.train))
                by_rayfish.append(cpu_seconds(run.iterate))
            algorithm.stop()
    hand, fish = (statistics.median(times[WARM_UP:]) for times in (by_hand, by_rayfish))
    percent = 100 * (fish / hand - 1)
    print(
        f"by hand {1000 * hand:.1f} ms, rayfish {1000 * fish:.1f} ms of CPU per iteration: {percent:+.2f} %"
    )
    result = {
        "command": "python benchmarks/overhead.py",
        "versions": {name: version(name) for name in ("ray", "torch", "rayfish")},
        "machine": f"{platform.machine()}, {platform.system()}",
        "iterations": ITERATIONS,
        "cpu_ms_by_hand": round(1000 * hand, 2),
        "cpu_ms_rayfish": round(1000 * fish, 2),
        "overhead_percent": round(percent, 2),
    }
    (ROOT / "results").mkdir(exist_ok=True)
    (ROOT / "results" / "overhead.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def cpu_seconds(function) -> float:
    """CPU time this process spends in a call."""
    begun = time.process_time()
    function()
    return time.process_time() - begun


if __name__ == "__main__":
    main()
