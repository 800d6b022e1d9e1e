"""Every mistake gets a message: what happened, the values, the next step; and leaves nothing half done."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.bad_input.cases import CASES
from tests.bad_input.harness import Case, half_written, kept, lay_out, run, slug, text_of
from tests.helpers import small_disk

NAMED = {case.name: case for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: slug(case.name))
def test_the_message_of(case, tmp_path, monkeypatch, request, snapshot):
    lay_out(case, tmp_path, request.getfixturevalue("trained_runs") if case.trained else None)
    runs, files = set(tmp_path.glob("runs/*/*")), kept(tmp_path)
    seen = run(case, tmp_path, monkeypatch)
    text = seen.stdout + seen.stderr
    assert seen.code != 0, text
    assert "Traceback" not in text
    assert case.hint in text, text
    assert not half_written(set(tmp_path.glob("runs/*/*")) - runs)
    assert set(files) <= set(kept(tmp_path)), "what was finished is kept"
    assert text_of(case, seen, tmp_path) == snapshot


def test_there_is_a_case_for_each_kind_of_mistake():
    assert len(CASES) == len(NAMED) > 100


@pytest.mark.parametrize("name", ["verb that does not exist", "typo in a file", "weights cut short"])
def test_a_process_of_its_own_says_the_same(name, tmp_path, monkeypatch, request):
    case = NAMED[name]
    lay_out(case, tmp_path, request.getfixturevalue("trained_runs") if case.trained else None)
    here = text_of(case, run(case, tmp_path, monkeypatch), tmp_path)
    there = text_of(case, run(replace(case, process=True), tmp_path, monkeypatch), tmp_path)
    assert here == there


def test_two_processes_that_resume_one_run_at_once(tmp_path, monkeypatch, trained_runs, snapshot):
    case = Case("at once", "train --resume last stop_conditions.training_iteration=2", trained=True)
    lay_out(case, tmp_path, trained_runs)
    code = (
        "from rayfish.run.directory import RunDirectory, find_run\n"
        "run = RunDirectory.open(find_run('last'))\n"
        "run.require_idle()\n"
        "print('held', flush=True)\n"
        "input()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdin=pipe, stdout=pipe) as other:
        assert other.stdout.readline() == b"held\n"
        seen = run(case, tmp_path, monkeypatch)
        other.communicate(b"\n")
    assert seen.code != 0
    assert text_of(case, seen, tmp_path) == snapshot


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir(mode=0o555)
    seen = run(Case("locked", "train cartpole runtime.local_dir=locked/runs"), tmp_path, monkeypatch)
    assert seen.code == 2
    assert "you may not write to" in seen.stderr
    assert "next step: set runtime.local_dir" in seen.stderr


@pytest.fixture
def tiny_disk(tmp_path):
    with small_disk(tmp_path / "disk", "16k") as disk:
        yield disk


def test_a_full_disk_leaves_no_half_written_run(tiny_disk, tmp_path, monkeypatch, snapshot):
    case = Case("full disk", "train cartpole runtime.local_dir=disk/runs")
    (tiny_disk / "filler").write_bytes(b"x" * 12_000)
    seen = run(case, tmp_path, monkeypatch)
    assert seen.code != 0
    assert [path.name for path in tiny_disk.iterdir()] == ["filler"]
    assert text_of(case, seen, tmp_path) == snapshot
