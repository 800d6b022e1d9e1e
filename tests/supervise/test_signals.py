"""A signal is never lost, wherever in the code it arrives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from rayfish.supervise import signals
from rayfish.supervise.signals import Interrupts
from tests.helpers import RAYFISH, ROOT, info_of, only_run


class Finaliser:
    """Python drops whatever is raised while an object goes away."""

    def __del__(self):
        signal.raise_signal(signal.SIGTERM)


def silent(line: str) -> None:
    pass


def test_a_signal_inside_a_finaliser_ends_the_run_and_prints_no_traceback(capsys):
    with pytest.raises(KeyboardInterrupt), Interrupts(silent) as interrupts:
        Finaliser()
        time.sleep(5)
    assert interrupts.reason == "SIGTERM, before it began"
    assert "Traceback" not in capsys.readouterr().err


def test_a_signal_that_ray_took_inside_a_finaliser_ends_the_run(capsys):
    with pytest.raises(KeyboardInterrupt), Interrupts(silent) as interrupts:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # as ray.init does
        Finaliser()
        time.sleep(5)
    assert interrupts.reason == "SIGTERM, before it began"
    assert "SystemExit" not in capsys.readouterr().err


SLOW_IMPORT = """
import glob, os, signal, sys, time

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "ray.internal":
            while not glob.glob("runs/*/*/run.json"):
                time.sleep(0.02)
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(3)

sys.meta_path.insert(0, Finder())
"""


def test_a_signal_while_ray_is_imported_ends_the_run_without_a_traceback(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT)
    done = subprocess.run(
        [RAYFISH, "train", "cartpole"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 143
    assert "Traceback" not in done.stdout + done.stderr
    assert info_of(only_run(tmp_path))["reason"] == "SIGTERM, before it began"


@pytest.fixture
def first(monkeypatch):
    """As if no signal had come in an earlier test."""
    monkeypatch.setattr(signals, "_received", 0)


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_each_signal_asks_for_the_end_and_has_its_exit_code(first, number, code):
    with Interrupts(silent) as interrupts:
        interrupts.begin()
        signal.raise_signal(getattr(signal, number))
        assert interrupts.requested == number
    assert signals.exit_code() == code


def test_a_closed_terminal_may_send_sighup_more_than_once(first):
    with Interrupts(silent) as interrupts:
        interrupts.begin()
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
        interrupts.close()
        signal.raise_signal(signal.SIGHUP)
    assert (interrupts.requested, interrupts.reason) == ("SIGHUP", "")


def test_sighup_stays_ignored_under_nohup(first):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts(silent) as interrupts:
            interrupts.begin()
            signal.raise_signal(signal.SIGHUP)
            assert not interrupts.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_inside_a_finaliser_stops_at_once():
    with pytest.raises(KeyboardInterrupt), Interrupts(silent) as interrupts:
        interrupts.begin()
        signal.raise_signal(signal.SIGINT)
        Finaliser()
        time.sleep(5)
    assert interrupts.requested == "SIGINT"


def test_an_interrupt_that_was_caught_ends_the_run_before_its_first_iteration():
    with pytest.raises(KeyboardInterrupt), Interrupts(silent) as interrupts:
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        interrupts.begin()


def test_other_errors_in_finalisers_are_reported_as_before(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_type))

    class Broken:
        def __del__(self):
            raise ValueError("broken")

    with Interrupts(silent):
        Broken()
    assert told == [ValueError]
