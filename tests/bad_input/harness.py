"""One mistake at the command line: what was typed, what lay there, and the exact text the user saw."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.helpers import ROOT, rayfish

FINAL = ("done", "stopped", "failed")
LONGEST_S = 40
PLAIN = {"COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1", "CUDA_VISIBLE_DEVICES": ""}


def slug(name: str) -> str:
    """A case's name for test ids and files: no spaces, no signs that a shell reads."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-").lower()


@dataclass(frozen=True)
class Case:
    """One mistake.

    :param name: what it is, the name of its snapshot
    :param line: what the user typed after `rayfish`
    :param files: what lies in the current folder
    :param prepare: whatever else has to be there, done to the current folder
    :param trained: a finished run of CartPole lies under runs/cartpole
    :param process: in a process of its own; else the same entry point is called here, which is faster
    :param hint: the words that begin the next step
    """

    name: str
    line: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    prepare: Callable[[Path], None] | None = None
    trained: bool = False
    process: bool = False
    hint: str = "next step:"


@dataclass(frozen=True)
class Seen:
    """What the command left on the terminal."""

    code: int
    stdout: str
    stderr: str


def lay_out(case: Case, folder: Path, trained: Path | None) -> None:
    """Everything the case needs, in `folder`."""
    if trained is not None:
        shutil.copytree(trained, folder / "runs", symlinks=True)
    for name, content in case.files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    if case.prepare is not None:
        case.prepare(folder)


def run(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The command, typed in `folder`."""
    words = shlex.split(case.line)
    if case.process:
        done = rayfish(*words, cwd=folder, ok=False, **PLAIN)
        return Seen(done.returncode, done.stdout, done.stderr)
    return run_here(words, folder, monkeypatch)


def run_here(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The console script's own entry point, in this process."""
    from rayfish.cli.main import main

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["rayfish", *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, value in PLAIN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAYFISH_DEBUG", raising=False)
    for name in ("PYTHONPATH", "PYTHONHASHSEED"):  # what a run sets for its workers is not the next one's
        monkeypatch.setenv(name, os.environ.get(name, ""))
    known, code = set(sys.modules), 0
    out, err = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST_S)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        for name in set(sys.modules) - known:  # the user's modules of one case are not the next one's
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
                del sys.modules[name]
    return Seen(code, out.getvalue(), err.getvalue())


def _too_long(*_: object) -> None:
    raise SystemExit("the mistake was not noticed: training began")


def text_of(case: Case, seen: Seen, folder: Path) -> str:
    """The snapshot: the command, its exit code and its words; only what differs by machine is replaced."""
    parts = [f"$ rayfish {case.line}\nexit code {seen.code}\n"]
    for name in ("stdout", "stderr"):
        text = _normalised(getattr(seen, name), folder)
        if text.strip():
            parts.append(f"--- {name}\n{text.strip(chr(10))}\n")
    return "\n".join(parts)


def _normalised(text: str, folder: Path) -> str:
    text = re.sub("\x1b\\[[0-9;]*m", "", text)
    for path, name in ((folder.resolve(), "HERE"), (folder, "HERE"), (ROOT, "CLONE")):
        text = text.replace(str(path), name)
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{6}", "20260101-120000-abcdef", text)
    text = text.replace(f"on {platform.node()}", "on HOST")
    text = re.sub(r"[\d,]+ steps/s.*", "1,000 steps/s on one core", text)
    text = re.sub(r"process \d+", "process 4242", text)
    text = re.sub(r"\S*/lib/python3\.\d+/", "PYTHON/", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def half_written(runs: Iterable[Path]) -> list[str]:
    """Run folders that no later command could make sense of: no run.json, or one without a final status."""
    found = []
    for place in runs:
        file = place / "run.json"
        status = json.loads(file.read_text())["status"] if file.is_file() else "no run.json"
        if status not in FINAL:
            found.append(f"{place}: {status}")
    return found


def kept(folder: Path) -> list[str]:
    """Every file of the runs below `folder`, to be compared before and after."""
    return sorted(
        f"{p.relative_to(folder)} {p.stat().st_size}" for p in folder.glob("runs/**/*") if p.is_file()
    )
