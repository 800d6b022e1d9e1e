"""A newcomer's first command, and the wheel far from the clone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT, info_of, metrics_of, only_run

pytestmark = pytest.mark.slow


def bare_environment() -> dict[str, str]:
    """The environment of a login shell: nothing of this test run's interpreter leaks in."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR")
    env = {key: value for key, value in os.environ.items() if key in kept or key.startswith("PIP_")}
    venv = str(Path(sys.executable).parent)
    env["PATH"] = os.pathsep.join(part for part in env["PATH"].split(os.pathsep) if part != venv)
    return env


def test_make_train_on_a_fresh_clone_learns_to_fight_wildfires_and_shows_it(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    done = subprocess.run(
        ["make", "train"], cwd=clone, env=bare_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    run = only_run(clone)
    assert info_of(run)["status"] == "done"
    assert run.name in done.stdout
    assert (run / "view.gif").read_bytes().startswith(b"GIF89a") and "view.gif" in done.stdout

    (file,) = (run / "evaluations").glob("*.json")
    found = json.loads(file.read_text())
    agent = found["statistics"]["saved_share"]
    others = {name: one["statistics"]["saved_share"] for name, one in found["baselines"].items()}
    assert found["episodes"] == 64 and set(others) == {"nothing", "random", "line_ahead", "encircle"}
    assert agent["ci_low"] > max(others[name]["ci_high"] for name in ("nothing", "random"))
    assert agent["mean"] >= 0.9 * max(one["mean"] for one in others.values())
    for name in others:
        assert name in done.stdout

    shutil.rmtree(clone / "runs")
    done = subprocess.run(
        ["make", "train", "EXPERIMENT=cartpole"],
        cwd=clone, env=bare_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert metrics_of(only_run(clone))[-1]["rollout/return_mean"] >= 475
    assert "rayfish evaluate" in done.stdout

    again = subprocess.run(
        ["make", "--dry-run", "train"],
        cwd=clone,
        env=bare_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install" not in again.stdout, "a second call must reuse the environment"


def test_built_wheel_works_outside_the_clone_conf_and_all(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("rayfish-*.whl")
    venv = tmp_path / "venv"
    # Dependencies are the tested ones of this environment; Rayfish itself is only in the wheel.
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    site = next((venv / "lib").glob("python*")) / "site-packages"
    here = next(path for path in map(str, sys.path) if path.endswith("site-packages"))
    subprocess.run(
        [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], check=True
    )
    (site / "dependencies.pth").write_text(here + "\n")
    place = tmp_path / "elsewhere"
    place.mkdir()
    where = subprocess.run(
        [str(venv / "bin/python"), "-c", "import rayfish; print(rayfish.__file__)"],
        cwd=place, env=bare_environment(), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert str(venv) in where
    done = subprocess.run(
        [str(venv / "bin/rayfish"), "train", "cartpole", "stop_conditions.training_iteration=2"],
        cwd=place, env=bare_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert json.loads((only_run(place) / "run.json").read_text())["status"] == "done"


def test_constraints_pin_names_and_versions_only():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert not line or line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!_-]+", line), (
            line
        )
