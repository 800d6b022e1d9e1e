"""Who trains a run: a lock on its folder, and a lease for machines that do not see each other's locks.

The process that trains a run touches the folder's `.lock` file every few seconds, from a thread of its own.
A process that can be seen from here is looked up directly. Any other counts as dead once its last
touch is older than the lease. The file holds its owner's mark: a process that was suspended for
longer than that finds another's mark when it wakes, and stops.
"""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from rayfish.errors import RayfishError, RunFailed

LOCK = ".lock"
LEASE_S = 45.0
"""How long a process on another machine may be silent before its run counts as lost."""

RENEW_S = 5.0
_LOOK_S = 0.5
_OLD_LEASE_S = 60.0
"""Of runs without a lease, written by older versions: by the age of `run.json`."""


class Taken(RunFailed):
    """Another process trains the run now; nothing may be written to it any more."""


def this_process() -> dict[str, Any]:
    """What identifies this process, for `run.json` and `sweep.json`."""
    return {
        "host": platform.node(),
        "pid": os.getpid(),
        "start": _start_of(os.getpid()),
        "kernel": _kernel(),
        "pid_namespace": _pid_namespace(),
        "lease_s": LEASE_S,
    }


def in_words(process: Mapping[str, Any]) -> str:
    """The process as a message names it."""
    return f"process {process.get('pid')} on {process.get('host')}"


def seen_from_here(process: Mapping[str, Any]) -> bool:
    """Whether `alive` can look for the process itself: same kernel, same numbering of processes."""
    if "kernel" not in process:  # written by an older version
        return process.get("host") == platform.node()
    return (process["kernel"], process.get("pid_namespace")) == (_kernel(), _pid_namespace())


def alive(process: Mapping[str, Any], folder: Path, record: str) -> bool:
    """Whether the process that trains in `folder` is there, as far as can be judged at once.

    :param record: the file with the process, such as `run.json`; its age counts where there is no lease
    """
    if seen_from_here(process):
        start = _start_of(int(process.get("pid") or 0))
        return start is not None and (process.get("start") is None or abs(start - process["start"]) < 2.0)
    if process.get("kernel") == _kernel():  # another container of this machine: locks are seen across them
        locked = _is_locked(folder)
        if locked is not None:
            return locked
    return _left_of_lease(process, folder, record) > 0


def take(
    folder: Path,
    record: str,
    what: str,
    process: Mapping[str, Any] | None = None,
    *,
    elsewhere: bool = True,
) -> Lease:
    """Holds `folder` for this process; what a living process trains is refused.

    Where that cannot be seen from here, this waits until the other's lease is over or renewed.

    :param what: what is held, for messages: "the run runs/x is in training"
    :param process: who trained it last, when that is not known to have ended
    :param elsewhere: whether that may be a process on another machine; False for one who knows better
    :raises OSError: the folder cannot be written
    :raises RayfishError: another process holds it
    """
    unseen = process is not None and not seen_from_here(process)
    # Before the lock file is opened: to close it again would drop a lock of this process.
    if process is not None and not unseen and alive(process, folder, record):
        raise _busy(what, in_words(process))
    lease = Lease(folder, what)
    decided = lease.exclusive and process is not None and process.get("kernel") == _kernel()
    if process is not None and unseen and elsewhere and not decided:
        try:
            _await_end(process, folder, record, what)
        except BaseException:
            lease.release()
            raise
    return lease.claim()


class Lease:
    """A folder held by this process, until `release` or its end; made by `take`.

    :param what: what is held, for messages
    :raises RayfishError: another process holds it
    """

    def __init__(self, folder: Path, what: str) -> None:
        self.exclusive = True
        """Whether the file system has locks, so that no other process of this machine holds the folder."""
        self._what = what
        self._path = folder / LOCK
        self._mark = f"process {os.getpid()} on {platform.node()}, {secrets.token_hex(8)}\n".encode()
        self._over = threading.Event()
        self._closing = threading.RLock()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            owner = self._owner()
            self.release()
            raise _busy(what, owner) from None
        except OSError:  # a file system without locks
            self.exclusive = False

    def claim(self) -> Lease:
        """Put this process's mark into the file, and renew the lease from now on."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, self._mark, 0)
        # Not a method: the thread must not keep an unreferenced lease alive.
        renewing = (self._file, self._mark, self._over, self._closing)
        threading.Thread(target=_renew, args=renewing, name="rayfish-lease", daemon=True).start()
        return self

    def require(self) -> None:
        """Refuses to go on when another process has taken the folder over.

        :raises Taken: it has
        """
        same = os.pread(self._file, len(self._mark), 0) == self._mark
        with suppress(FileNotFoundError):  # the run's folder was removed, which is another fault
            same = same and self._path.stat().st_ino == os.fstat(self._file).st_ino
        if not same:
            raise Taken(
                f"{self._what.partition(' is ')[0]} was taken over by {self._owner()}: this process was "
                f"suspended or cut off from the folder for longer than {LEASE_S:.0f} s",
                "that one goes on with it; this one has stopped and writes nothing more",
            )

    def release(self) -> None:
        """Lets others have the folder."""
        with self._closing:
            if not self._over.is_set():
                self._over.set()
                os.close(self._file)

    def __del__(self) -> None:
        """Release an unreferenced lease."""
        if hasattr(self, "_file"):
            with suppress(OSError):
                self.release()

    def _owner(self) -> str:
        """Whose mark is in the file at the path, which may be another file than the one held open."""
        text = b""
        with suppress(OSError):
            text = self._path.read_bytes()[:200]
        known = text.decode("utf-8", "replace").partition(",")[0].strip()
        return known if known and text != self._mark else "another process"


class HeldFolder:
    """The folder of a run or a sweep, which one process at a time may write.

    :param data: the content of its `RECORD`, `run.json` or `sweep.json`
    """

    RECORD: ClassVar[str]

    def __init__(self, path: Path, data: dict[str, Any]) -> None:
        self.path = path
        self.data = data
        self._lease: Lease | None = None

    @property
    def status(self) -> str:
        """The status now: `lost` where the process is gone, whatever the record says."""
        written = str(self.data.get("status", "failed"))
        process = self.data.get("process") or {}
        return "lost" if written == "running" and not alive(process, self.path, self.RECORD) else written

    def require_held(self) -> None:
        """Refuses to go on in a folder that another process has taken over.

        :raises Taken: this process was suspended for longer than its lease, say
        """
        if self._lease is not None:
            self._lease.require()

    def release(self) -> None:
        """Lets other processes have the folder."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None


def _renew(file: int, mark: bytes, over: threading.Event, closing: Any) -> None:
    while not over.wait(RENEW_S):
        with closing, suppress(OSError):  # a read-only file system: others see the lease run out
            if not over.is_set() and os.pread(file, len(mark), 0) == mark:
                os.utime(file)  # by the clock of the file server


def _busy(what: str, owner: str) -> RayfishError:
    return RayfishError(f"{what}: {owner}", "wait for it, or stop it with Ctrl-C (SIGINT) there; then resume")


def _await_end(process: Mapping[str, Any], folder: Path, record: str, what: str) -> None:
    """Until the lease of a process that cannot be seen from here is over; refuses when it is renewed."""
    left = _left_of_lease(process, folder, record)
    if left <= 0:
        return
    who = f"{what}, or was a moment ago: {in_words(process)}"
    print(f"note: {who}; waiting up to {left:.0f} s for a sign of it", file=sys.stderr, flush=True)
    file = _beat(process, folder, record)
    before, until = _touched(file), time.monotonic() + left
    while time.monotonic() < until:
        time.sleep(_LOOK_S)
        if _touched(file) != before:
            raise _busy(what, in_words(process))


def _left_of_lease(process: Mapping[str, Any], folder: Path, record: str) -> float:
    lease_s = float(process.get("lease_s") or _OLD_LEASE_S)
    return lease_s - (_clock_of(folder) - _touched(_beat(process, folder, record)))


def _beat(process: Mapping[str, Any], folder: Path, record: str) -> Path:
    return folder / (LOCK if process.get("lease_s") else record)


def _is_locked(folder: Path) -> bool | None:
    """Whether another process holds the lock; None where there are no locks, or no file."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(file)


def _touched(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _clock_of(folder: Path) -> float:
    """The time by the file server's clock, which also dates the touches of other machines."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".clock-", dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:  # read-only: this machine's clock has to do
        return time.time()


def _start_of(pid: int) -> float | None:
    """When the process began, which no later one with the same number shares; None when it has ended.

    One that has ended stays in the table of processes until its parent asks for it: in a container whose
    first process does not, for ever.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return None


def _kernel() -> str:
    """The same for all containers of a machine, until it is started again."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return platform.node()


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
