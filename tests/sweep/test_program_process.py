"""A command as a process: nothing of it outlives its owner, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rayfish.errors import RayfishError
from rayfish.sweep.program.process import Process, ended, last_lines

FAMILY = """
import os, signal, subprocess, sys, time
pids = open(sys.argv[1], "a", buffering=1)
stubborn = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print(os.getpid(), flush=True); time.sleep(600)"
)
children = [subprocess.Popen([sys.executable, "-c", stubborn], stdout=pids)]
children.append(subprocess.Popen(["bash", "-c", "echo $$; sleep 600 & echo $!; wait"], stdout=pids))
runaway = subprocess.Popen([sys.executable, "-c", stubborn], stdout=pids, start_new_session=True)
print(os.getpid(), file=pids)
time.sleep(float(sys.argv[2]))
"""
OWNER = """
import os, sys, time
from pathlib import Path
from rayfish.sweep.program.process import Process
here = Path(sys.argv[1])
process = Process([sys.executable, "family.py", "pids", "600"], here, here / "log.txt", os.environ)
time.sleep(600)
"""
WAITS = "import time; print('here', flush=True); time.sleep(600)"


def start(tmp_path: Path, *command: str, grace_s: float = 5.0) -> Process:
    return Process(command, tmp_path, tmp_path / "log.txt", os.environ, grace_s)


def family(tmp_path: Path, members: int = 5, within_s: float = 20.0) -> list[int]:
    """The pids of everyone in the family, once they all run."""
    file = tmp_path / "pids"
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        pids = [int(word) for word in file.read_text().split()] if file.exists() else []
        if len(pids) >= members:
            return pids
        time.sleep(0.02)
    raise AssertionError(f"only {pids} of {members} started")


def alive(pids: list[int]) -> list[int]:
    """Those that still run; one that has ended and waits to be collected does not."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            pass
    return found


def gone_within(pids: list[int], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pids)


def wait_for(text: str, log: Path) -> None:
    until = time.monotonic() + 20
    while text not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < until, f"{text!r} never came"
        time.sleep(0.02)


def test_all_of_a_program_is_gone_two_seconds_after_its_owner_is_killed(tmp_path):
    (tmp_path / "family.py").write_text(FAMILY)
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)])
    pids = family(tmp_path)
    assert len(alive(pids)) == len(pids)
    owner.kill()
    owner.wait()
    assert gone_within(pids, 2.0), f"{alive(pids)} of {pids} still run"


def test_stopping_ends_children_that_ignore_sigterm_and_those_that_left_the_group(tmp_path):
    (tmp_path / "family.py").write_text(FAMILY)
    process = start(tmp_path, sys.executable, "family.py", "pids", "600", grace_s=0.3)
    pids = family(tmp_path)
    assert process.stop() == -signal.SIGTERM  # its first process does not ignore it
    assert not alive(pids)


def test_a_program_that_ignores_sigterm_is_killed_after_the_grace(tmp_path):
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS
    process = start(tmp_path, "python", "-c", stubborn, grace_s=0.5)
    wait_for("here", tmp_path / "log.txt")
    begun = time.monotonic()
    assert process.stop() == -signal.SIGKILL
    assert 0.4 < time.monotonic() - begun < 3.0


def test_a_program_may_use_its_grace_to_put_things_in_order(tmp_path):
    tidy = (
        "import signal, sys, time\n"
        "def end(*_):\n    time.sleep(0.3); print('saved', flush=True); sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, end); " + WAITS
    )
    process = start(tmp_path, "python", "-c", tidy)
    wait_for("here", tmp_path / "log.txt")
    assert process.stop() == 7
    assert process.last_lines() == ["here", "saved"]


def test_a_program_hears_sigterm_although_its_owner_blocks_it(tmp_path):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        process = start(tmp_path, "python", "-c", WAITS, grace_s=20.0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    wait_for("here", tmp_path / "log.txt")
    begun = time.monotonic()
    assert process.stop() == -signal.SIGTERM
    assert time.monotonic() - begun < 5.0


def test_what_a_program_leaves_behind_ends_with_it(tmp_path):
    (tmp_path / "family.py").write_text(FAMILY)
    process = start(tmp_path, sys.executable, "family.py", "pids", "0.5")
    pids = family(tmp_path)
    assert process.wait(20.0) == 0
    assert not alive(pids)


def test_a_program_ends_although_its_guardian_is_killed(tmp_path):
    process = start(tmp_path, "python", "-c", WAITS)
    wait_for("here", tmp_path / "log.txt")
    os.kill(psutil.Process(process.pid).ppid(), signal.SIGKILL)
    assert process.wait(5.0) == -signal.SIGKILL
    assert gone_within([process.pid], 2.0)


def test_dropping_a_process_ends_it(tmp_path):
    process = start(tmp_path, "python", "-c", WAITS)
    pid = process.pid
    wait_for("here", tmp_path / "log.txt")
    del process
    assert gone_within([pid], 2.0)


def test_exit_codes_and_signals_are_reported(tmp_path):
    assert start(tmp_path, "bash", "-c", "exit 3").wait(20) == 3
    assert start(tmp_path, "bash", "-c", "kill -SEGV $$").wait(20) == -signal.SIGSEGV
    assert ended(3) == "ended with exit code 3"
    assert ended(-11) == "was ended by SIGSEGV"
    assert "SIGKILL" in ended(137)


def test_commands_that_cannot_run_are_refused_with_the_next_step(tmp_path):
    with pytest.raises(RayfishError, match="no-such-program was not found"):
        start(tmp_path, "no-such-program")
    (tmp_path / "script").write_text("echo hi\n")
    with pytest.raises(RayfishError, match="no permission") as refused:
        start(tmp_path, "./script")
    assert "chmod +x ./script" in refused.value.hint
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    with pytest.raises(RayfishError, match="cannot be run: No such file"):
        start(tmp_path, "./broken")


def test_the_last_lines_are_what_a_person_would_see(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("old\n" + "\n".join(f"line {n}" for n in range(40)) + "\n 10%\r 99%\r100%\nend")
    assert last_lines(log, most=3) == ["line 39", "100%", "end"]
    assert last_lines(log, offset=4, most=100)[0] == "line 0"


@pytest.mark.parametrize("how", ["ray.kill", "kill -9"])
def test_a_program_ends_with_the_ray_worker_it_runs_in(tmp_path, ray_session, how):
    (tmp_path / "family.py").write_text(FAMILY)
    holder = ray_session.remote(num_cpus=0)(_Holder).remote()
    worker = ray_session.get(holder.begin.remote(str(tmp_path)))
    pids = family(tmp_path)
    if how == "ray.kill":
        ray_session.kill(holder)
    else:
        os.kill(worker, signal.SIGKILL)
    assert gone_within(pids, 3.0), f"{alive(pids)} of {pids} still run"


class _Holder:
    """An actor that holds a process."""

    def begin(self, folder: str) -> int:
        here = Path(folder)
        command = [sys.executable, "family.py", "pids", "600"]
        self.process = Process(command, here, here / "log.txt", os.environ)
        return os.getpid()
