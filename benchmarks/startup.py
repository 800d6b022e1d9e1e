"""How fast the command line answers: help, `rayfish config check`, and the start of a training.

    python benchmarks/startup.py            # prints and writes benchmarks/results/startup.json

Wall time of fresh processes: median of 7 after one warm-up; of a training, seconds from the command
to its first iteration's line on the terminal and to its end, medians of 5 after one warm-up. Each
training waits some minutes for the machine to be idle; what others did all the same is written
beside its times. Claims: help under 0.3 s, config check under 1.5 s without
importing RLlib, the first training iteration within 6 s.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent
RAYFISH = str(Path(sys.executable).parent / "rayfish")
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "rayfish --help": [RAYFISH, "--help"],
    "rayfish config check cartpole": [RAYFISH, "config", "check", "cartpole"],
}
TRAINING = [
    *(RAYFISH, "train", "cartpole", "--plain"),
    *("stop_conditions.training_iteration=1", "checkpoint.checkpoint_at_end=false"),
]
IDLE_PERCENT = 10.0
TRAININGS = {
    "no remote runner": TRAINING,
    "2 remote runners": [*TRAINING, "rollouts.num_env_runners=2", "--ray-num-cpus", "4"],
}


def measure(command: list[str], repeats: int = 7) -> float:
    """Median seconds of a fresh process."""
    times = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begun)
    return statistics.median(times[1:])


def wait_for_idleness(patience_s: float = 180.0) -> None:
    """Returns when nothing else has run for a second, or when patience is at its end."""
    deadline = time.monotonic() + patience_s
    while psutil.cpu_percent(1.0) > IDLE_PERCENT and time.monotonic() < deadline:
        pass


def start_of_training(command: list[str]) -> dict[str, float]:
    """Seconds from the command to the first iteration's line and to the end, and what others did then."""
    wait_for_idleness()
    with tempfile.TemporaryDirectory() as folder:
        before, begun = _cpu_seconds(), time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        first, own, said = 0.0, {process.pid, os.getpid()}, []
        for line in process.stdout or ():
            said.append(line)
            if not first and " iteration 1 " in line:
                first = time.perf_counter() - begun
                own |= {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
        code = process.wait()
        whole = time.perf_counter() - begun
    if code or not first:
        raise SystemExit(f"{' '.join(command)} ended with {code}:\n{''.join(said)}")
    others = sum(now - before.get(pid, 0.0) for pid, now in _cpu_seconds().items() if pid not in own)
    return {"first iteration": first, "whole command": whole, "others' CPU": others}


def _cpu_seconds() -> dict[int, float]:
    """CPU time of every process so far."""
    found = {}
    for process in psutil.process_iter(["cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            found[process.pid] = times.user + times.system
    return found


def trainings(command: list[str], repeats: int = 5) -> dict[str, object]:
    """Medians over fresh processes, and every single one."""
    start_of_training(command)
    runs = [start_of_training(command) for _ in range(repeats)]
    medians = {key: round(statistics.median(run[key] for run in runs), 2) for key in runs[0]}
    return {"median seconds": medians, "runs": [{k: round(v, 2) for k, v in run.items()} for run in runs]}


def main() -> None:
    """Measures every command, prints a table and writes the result file."""
    load = [round(value, 2) for value in os.getloadavg()]
    seconds = {name: round(measure(command), 3) for name, command in COMMANDS.items()}
    started = {name: trainings(command) for name, command in TRAININGS.items()}
    for name, value in seconds.items():
        print(f"{name:32} {value:6.3f} s")
    for name, found in started.items():
        print(f"rayfish train cartpole, {name}: {found['median seconds']}")
    result = {
        "command": "python benchmarks/startup.py",
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "load before": load,
        "seconds": seconds,
        "start of a training": started,
    }
    (ROOT / "results").mkdir(exist_ok=True)
    (ROOT / "results" / "startup.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
