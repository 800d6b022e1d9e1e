"""A signal is never lost, wherever in the code it arrives."""

from __future__ import annotations

import contextlib
import signal
import sys
import time

import pytest

from rayfish.run.signals import Interrupts


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


def test_a_second_signal_inside_a_finaliser_stops_at_once():
    with pytest.raises(KeyboardInterrupt), Interrupts(silent) as interrupts:
        interrupts.begin()
        signal.raise_signal(signal.SIGINT)
        Finaliser()
        time.sleep(5)
    assert interrupts.requested == "SIGINT"


def test_an_interrupt_that_somebody_caught_ends_the_run_before_its_first_iteration():
    with pytest.raises(KeyboardInterrupt), Interrupts(silent) as interrupts:
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        interrupts.begin()


def test_other_errors_in_finalisers_are_told_as_before(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_type))

    class Broken:
        def __del__(self):
            raise ValueError("broken")

    with Interrupts(silent):
        Broken()
    assert told == [ValueError]
