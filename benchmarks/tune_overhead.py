"""What a sweep costs besides its trials: Rayfish and Ray Tune on the same function, in turn.

    python benchmarks/tune_overhead.py            # prints and writes benchmarks/results/tune-overhead.json
    python benchmarks/tune_overhead.py --sleeps   # also the 25-point grid of 10 s sleeps (about 5 minutes)

Trivial functions: seconds per trial of a function that returns at once, 100 points, two CPUs, one CPU each;
each library in a process of its own, from `tune()` to its return (Ray is started before the clock). Ray
Tune twice: as it comes, and with `reuse_actors=True`. Medians of three rounds, interleaved.

Sleeps: the grid of the notes on learning Ray (x, y in five values each, a function of 10 s), with half a CPU
each, so four at a time on two CPUs: 25 / 4 = 7 rounds, ideally 70 s. Claim: at most 1.15 times that, Ray's
start included.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent
POINTS, ROUNDS, CPUS = 100, 3, 2
SLEEP_S, SHARE = 10.0, 0.5

RAYFISH = """
import time, ray, rayfish
def trivial(config):
    return config["x"]
if __name__ == "__main__":
    ray.init(num_cpus={cpus}, include_dashboard=False, log_to_driver=False)
    started = time.perf_counter()
    result = rayfish.tune(trivial, {{"x": {{"grid_search": list(range({points}))}}}}, plain=True)
    assert result.best_config == {{"x": {points} - 1}}
    print("SECONDS", time.perf_counter() - started)
"""
TUNE = """
import os, time, ray
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
from ray import tune
def trivial(config):
    tune.report({{"score": config["x"]}})
if __name__ == "__main__":
    ray.init(num_cpus={cpus}, include_dashboard=False, log_to_driver=False)
    started = time.perf_counter()
    tuner = tune.Tuner(
        tune.with_resources(trivial, {{"cpu": 1}}),
        param_space={{"x": tune.grid_search(list(range({points})))}},
        tune_config=tune.TuneConfig(metric="score", mode="max", reuse_actors={reuse}),
        run_config=tune.RunConfig(storage_path=os.getcwd(), verbose=0),
    )
    assert tuner.fit().get_best_result().config == {{"x": {points} - 1}}
    print("SECONDS", time.perf_counter() - started)
"""
SLEEPS = """
import math, time, rayfish
from rayfish.run.engine import RayOptions
def training_function(config):
    x, y = config["x"], config["y"]
    time.sleep({sleep})
    return math.sqrt((x**2 + y**2) / 2)
if __name__ == "__main__":
    started = time.perf_counter()
    values = {{"grid_search": [-1, -0.5, 0, 0.5, 1]}}
    result = rayfish.tune(
        training_function, {{"x": values, "y": values}}, mode="min", plain=True,
        resources={{"cpu": {share}}}, ray_options=RayOptions(num_cpus={cpus}),
    )
    assert result.best_config == {{"x": 0, "y": 0}}
    print("SECONDS", time.perf_counter() - started)
"""


def main() -> None:
    """Measures, prints and writes the result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sleeps", action="store_true", help="the grid of sleeps, too")
    given = parser.parse_args()
    ways = {
        "Rayfish": RAYFISH.format(cpus=CPUS, points=POINTS),
        "Ray Tune": TUNE.format(cpus=CPUS, points=POINTS, reuse=False),
        "Ray Tune, reuse_actors": TUNE.format(cpus=CPUS, points=POINTS, reuse=True),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        for name, script in ways.items():
            times[name].append(seconds(script))
            each = 1000 * times[name][-1] / POINTS
            print(f"round {number + 1}: {name:<24} {each:8.1f} ms per trial", flush=True)
    result = {
        "command": "python benchmarks/tune_overhead.py" + (" --sleeps" if given.sleeps else ""),
        "versions": {name: version(name) for name in ("ray", "rayfish")},
        "machine": f"{platform.machine()}, {platform.system()}, {CPUS} CPUs for Ray",
        "points": POINTS,
        "ms_per_trial": {n: round(1000 * statistics.median(t) / POINTS, 1) for n, t in times.items()},
        "all_seconds": {name: [round(t, 2) for t in taken] for name, taken in times.items()},
    }
    own = result["ms_per_trial"]["Rayfish"]
    others = {name: ms for name, ms in result["ms_per_trial"].items() if name != "Rayfish"}
    result["times_faster"] = {name: round(ms / own, 1) for name, ms in others.items()}
    if given.sleeps:
        ideal = math.ceil(25 / (CPUS / SHARE)) * SLEEP_S
        taken = seconds(SLEEPS.format(sleep=SLEEP_S, share=SHARE, cpus=CPUS))
        result["sleeps"] = {"ideal_s": ideal, "taken_s": round(taken, 1), "ratio": round(taken / ideal, 3)}
    print(json.dumps({key: result[key] for key in ("ms_per_trial", "times_faster")}, indent=2))
    print(result.get("sleeps", ""))
    (ROOT / "results" / "tune-overhead.json").write_text(json.dumps(result, indent=2) + "\n")


def seconds(script: str) -> float:
    """What a script in a process and folder of its own says it took."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measured.py"
        file.write_text(script)
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(file)], cwd=folder, capture_output=True, text=True, check=False, timeout=900
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("SECONDS")]
        if not lines:
            took = time.monotonic() - started
            raise SystemExit(f"failed after {took:.0f} s:\n{done.stdout}\n{done.stderr}")
        return float(lines[-1].split()[1])


if __name__ == "__main__":
    main()
