"""Runs one command in a session of its own, and ends every process of it when its owner is gone.

    python -I -S guardian.py CONTROL STATUS GRACE_S COMMAND...

CONTROL is the reading end of a pipe that the owner keeps open: a byte stops the command, and so does the
closed pipe when the owner is gone, however it ended. To STATUS it writes `started PID`, `refused ERRNO` and
`exit STATUS`, a line each. It imports the standard library only, to start in hundredths of a second.

The guardian detaches from its parent: Ray kills the children of a worker that it ends, and would kill the
one process that knows what else to end. It adopts the orphans of its command, also those that left the
command's process group.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

SET_PARENT_DEATH_SIGNAL, SET_CHILD_SUBREAPER = 1, 36  # of prctl(2)
ORPHAN_GRACE_S = 1.0
"""Between SIGTERM and SIGKILL when the owner is gone, or when only left-overs of the command run."""
_HOPELESS_S = 10.0
_LOOK_EVERY_S = 0.05
_OWN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Starts the command, waits until it ends or is stopped, and reports its exit status."""
    control, status, grace_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    if os.fork():
        os._exit(0)
    for handle in (control, status):
        os.set_inheritable(handle, False)
    for number in _OWN_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    _prctl(SET_CHILD_SUBREAPER, 1)
    wake = _wake_on_children()
    pid, refused = start(sys.argv[4:])
    if refused:
        tell(status, f"refused {refused}")
        return
    tell(status, f"started {pid}")
    tell(status, f"exit {watch(pid, control, wake, grace_s)}")


def start(command: "list[str]") -> "tuple[int, int]":
    """The command's process, leader of its own session; or 0 and the error number of why it cannot run."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            _prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
            # Python ignores some signals and Ray may have blocked others; the command starts afresh.
            for number in (*_OWN_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvp(command[0], command)
        except OSError as error:
            os.write(writing, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(writing)
    refused = os.read(reading, 16)
    os.close(reading)
    return (0, int(refused)) if refused else (pid, 0)


def watch(pid: int, control: int, wake: int, grace_s: float) -> int:
    """Waits until nothing of the command is left; returns the wait status of its first process."""
    status = None
    until = None  # when the processes that still run are killed
    listening = [control, wake]
    while True:
        status = _reaped(pid) if status is None else (_reaped(pid), status)[1]
        if status is not None and not _alive(pid):
            return status
        now = time.monotonic()
        if status is not None and until is None:  # it ended by itself, and left others behind
            until = now + ORPHAN_GRACE_S
            _send(pid, signal.SIGTERM)
        if until is not None and now >= until:
            _send(pid, signal.SIGKILL)
            if now > until + _HOPELESS_S:  # processes of another user, or stuck in the kernel
                return status if status is not None else signal.SIGKILL
        ready = select.select(listening, [], [], None if until is None else _LOOK_EVERY_S)[0]
        if wake in ready:
            os.read(wake, 4096)
        if control in ready:
            asked = os.read(control, 16)
            wanted = time.monotonic() + (grace_s if asked else min(grace_s, ORPHAN_GRACE_S))
            if until is None:
                _send(pid, signal.SIGTERM)
            until = wanted if until is None else min(until, wanted)
            if not asked:
                listening.remove(control)


def tell(status: int, line: str) -> None:
    """One line to the owner, if it is still there."""
    with suppress(OSError):
        os.write(status, f"{line}\n".encode())


def _reaped(pid: int) -> "int | None":
    """Reaps every child that has ended; returns the status of the first process if it is among them."""
    found = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if ended == 0:
            return found
        if ended == pid:
            found = status


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return bool(_children())
    except PermissionError:
        pass
    return True


def _send(group: int, number: int) -> None:
    """A signal to the whole group, and to those adopted from outside it."""
    with suppress(OSError):
        os.killpg(group, number)
    for child in _children():
        with suppress(OSError):
            if os.getpgid(child) != group:
                os.kill(child, number)


def _children() -> "list[int]":
    try:
        with open("/proc/self/task/%d/children" % os.getpid()) as file:  # noqa: PTH123, UP031
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _wake_on_children() -> int:
    """A handle that can be read whenever a child has ended."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def _prctl(option: int, value: int) -> None:
    with suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
