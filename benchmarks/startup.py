"""How fast the command line answers: `rayfish --help`, `rayfish config check`, `rayfish.load`.

    python benchmarks/startup.py            # prints and writes benchmarks/results/startup.json

Wall time of fresh processes, median of 7 after one warm-up. Claims: help under 0.3 s, config check
under 1.5 s without importing RLlib.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "rayfish --help": [str(Path(sys.executable).parent / "rayfish"), "--help"],
    "rayfish config check cartpole": [
        str(Path(sys.executable).parent / "rayfish"),
        "config",
        "check",
        "cartpole",
    ],
}


def measure(command: list[str], repeats: int = 7) -> float:
    """Median seconds of a fresh process."""
    times = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begun)
    return statistics.median(times[1:])


def main() -> None:
    """Measures every command, prints a table and writes the result file."""
    seconds = {name: round(measure(command), 3) for name, command in COMMANDS.items()}
    for name, value in seconds.items():
        print(f"{name:32} {value:6.3f} s")
    result = {
        "command": "python benchmarks/startup.py",
        "python": platform.python_version(),
        "seconds": seconds,
    }
    (ROOT / "results").mkdir(exist_ok=True)
    (ROOT / "results" / "startup.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
