"""Small things several tests need: running the command, reading a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

RAYFISH = str(Path(sys.executable).parent / "rayfish")
ROOT = Path(__file__).resolve().parent.parent


def rayfish(
    *words: str, cwd: Path, ok: bool = True, timeout: float = 300, **env: str
) -> subprocess.CompletedProcess:
    """Runs the command as a user would, in `cwd`; with `ok`, a failing exit code fails the test."""
    done = subprocess.run(
        [RAYFISH, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "COLUMNS": "120", "TERM": "dumb", **env},
        check=False,
    )
    if ok:
        assert done.returncode == 0, (
            f"rayfish {' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done


def start_tune(cwd: Path, *words: str, **env: str) -> subprocess.Popen:
    """Starts a sweep as a user would, to be killed or waited for."""
    return subprocess.Popen(
        [RAYFISH, "tune", *words, "--plain"],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TERM": "dumb", "COLUMNS": "120", **env},
    )


def only_run(root: Path) -> Path:
    """The one run folder below `root`/runs."""
    (found,) = [path.parent for path in (root / "runs").glob("*/*/run.json")]
    return found


def metrics_of(run: Path) -> list[dict[str, float]]:
    """The run's `metrics.jsonl`, one dict per iteration."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def info_of(run: Path) -> dict:
    """The run's `run.json`."""
    return json.loads((run / "run.json").read_text())


def comparable(line: dict[str, float]) -> dict[str, float]:
    """A line of metrics without what depends on the clock and the machine."""
    return {
        name: value
        for name, value in line.items()
        if not name.startswith(("time/", "system/")) and name != "rollout/env_steps_per_s"
    }
