"""Small things several tests need: running the command, reading a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rayfish.sweep.records import read_events

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


def events_of(cwd: Path) -> list[dict]:
    """What has happened so far in the one sweep below `cwd`/runs."""
    tables = list((cwd / "runs").glob("*/*/trials.jsonl"))
    return list(read_events(tables[0])) if tables else []


def wait_for(cwd: Path, process: subprocess.Popen, kind: str, count: int) -> None:
    """Until so many events of a kind are in a sweep's table."""
    until = time.monotonic() + 120
    while sum(event["event"] == kind for event in events_of(cwd)) < count:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.05)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of that size at `folder`, where the tests may mount one."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)  # a worker may be about to end


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
