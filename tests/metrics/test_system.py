"""The machine's load."""

from __future__ import annotations

import time

from rayfish.metrics import names
from rayfish.metrics.system import SystemUsage


def test_load_and_memory_are_read_in_percent():
    line = SystemUsage().read()
    assert {names.CPU, names.RAM, names.PROCESS_RAM} <= set(line)
    assert 0.0 < line[names.RAM] < 100.0
    assert 0.01 < line[names.PROCESS_RAM] < 100.0
    assert all(names.is_known(name) for name in line)


def test_a_reading_takes_less_than_a_millisecond():
    usage = SystemUsage()
    usage.read()
    begun = time.process_time()
    for _ in range(50):
        usage.read()
    assert (time.process_time() - begun) / 50 < 0.001
