"""Every command of the README works as written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT

BLOCK = re.compile(r"^```(?P<lang>sh|python)\n(?P<body>.*?)^```", re.M | re.S)


def tour() -> list[tuple[str, str]]:
    """The README's commands after the two `make` ones, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = [(m["lang"], m["body"]) for m in BLOCK.finditer(text)]
    return [(lang, body) for lang, body in blocks if "make " not in body and "activate" not in body]


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^make ([a-z-]+)", text, re.M))
    assert {"train", "test"} <= named
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert named <= targets


def test_pictures_and_links_of_the_readme_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    local = [t for t in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in t]
    assert local, "a README without a picture"
    for target in local:
        assert (ROOT / target).exists(), target


@pytest.mark.slow
def test_every_command_of_the_tour_works_as_written(tmp_path):
    blocks = tour()
    assert len(blocks) >= 5
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    folder = tmp_path
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TERM": "dumb",
    }
    place = tmp_path / "place.txt"
    for lang, body in blocks:
        shell = ["bash", "-euc", f'{body}\npwd > "{place}"']  # a `cd` of one block holds for the next
        command = [sys.executable, "-c", body] if lang == "python" else shell
        done = subprocess.run(
            command, cwd=folder, env=env, text=True, capture_output=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{body}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        folder = Path(place.read_text().strip())


def test_the_python_of_the_wildfire_guide_runs(tmp_path):
    text = (ROOT / "docs" / "wildfire.md").read_text(encoding="utf-8")
    blocks = [m["body"] for m in BLOCK.finditer(text) if m["lang"] == "python"]
    assert len(blocks) >= 5
    for place, body in enumerate(blocks):
        (tmp_path / f"block_{place}.py").write_text(body)
    script = "import runpy\n" + "".join(f"runpy.run_path('block_{n}.py')\n" for n in range(len(blocks)))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
