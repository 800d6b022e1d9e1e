"""A command as a process of its own: output in a file, nothing of it left when its owner is gone."""

from __future__ import annotations

import errno
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rayfish.errors import RayfishError
from rayfish.run import signing

GUARDIAN = Path(__file__).with_name("guardian.py")
LAST_LINES, LONGEST_LINE = 15, 400
PYTHONS = ("python", "python3")
_START_WITHIN_S = 30.0


class Process:
    """One command that runs under a guardian (see `guardian.py`).

    :param command: its words; `python` is the Python that Rayfish runs with
    :param log: the file that its output is appended to
    :param grace_s: between SIGTERM and SIGKILL when it is stopped
    :raises RayfishError: the command cannot be run
    """

    def __init__(
        self, command: Sequence[str], folder: Path, log: Path, env: Mapping[str, str], grace_s: float = 5.0
    ) -> None:
        self.command, self.log, self.grace_s = list(command), log, grace_s
        self.begun, self.ended = time.monotonic(), 0.0
        self.pid = 0
        self.code: int | None = None
        self._text = b""
        words = [executable(command[0], folder, env), *command[1:]]
        guardian = [sys.executable, "-I", "-S", str(GUARDIAN)]
        control, self._control = os.pipe()
        self._status, status = os.pipe()
        try:
            with log.open("ab") as output:
                self.log_offset = log.stat().st_size
                subprocess.run(
                    [*guardian, str(control), str(status), str(grace_s), *words],
                    pass_fds=(control, status),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env=dict(env),
                    start_new_session=True,
                    check=True,
                )
        except (OSError, subprocess.CalledProcessError) as error:
            self._close()
            raise RayfishError(f"{shlex.join(self.command)} cannot be started: {error}") from error
        finally:
            os.close(control)
            os.close(status)
        self._await_start()

    def poll(self) -> int | None:
        """Its exit code if everything of it has ended, a signal's number negated; else None."""
        return self.wait(0)

    def wait(self, seconds: float) -> int | None:
        """Waits for its end at most so long; returns what `poll` returns."""
        until = time.monotonic() + seconds
        while self.code is None:
            line = self._line(max(0.0, until - time.monotonic()))
            if line is None:
                return None
            if line.startswith("exit "):
                self._over(os.waitstatus_to_exitcode(int(line[5:])))
            elif not line:  # the guardian itself was killed, and with it the command's first process
                with suppress(OSError):
                    os.killpg(self.pid, signal.SIGKILL)
                self._over(-signal.SIGKILL)
        return self.code

    def stop(self) -> int | None:
        """Ends it and everything it started: SIGTERM, after the grace SIGKILL; returns its exit code."""
        self.request_stop()
        return self.wait(self.grace_s + 15.0)

    def request_stop(self) -> None:
        """Starts to end it without waiting; may be called from any thread."""
        with suppress(OSError, KeyError):  # it has ended
            os.write(self.__dict__["_control"], b"!")

    def last_lines(self) -> list[str]:
        """The end of its output, one text per line; of a progress bar its last state."""
        return last_lines(self.log, self.log_offset)

    def owned(self, paths: Iterable[Path]) -> set[Path]:
        """The files that are surely its own: it has them open, or its process id is in their names."""
        open_now = self.open_files()
        mark = f".{self.pid}."  # of torch's event files: events.out.tfevents.TIME.HOST.PID.NUMBER
        return {
            path
            for path in paths
            if path.resolve() in open_now or ("tfevents" in path.name and mark in path.name)
        }

    def open_files(self) -> set[Path]:
        """The files that it, and what it started in its session, has open now."""
        found: set[Path] = set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                stat = (process / "stat").read_bytes()
                if int(stat.rpartition(b")")[2].split()[3]) != self.pid:
                    continue
                found |= {handle.readlink() for handle in (process / "fd").iterdir()}
            except (OSError, IndexError, ValueError):
                continue
        return found

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return (self.ended or time.monotonic()) - self.begun

    def __del__(self) -> None:
        self._close()

    def _await_start(self) -> None:
        line = self._line(_START_WITHIN_S)
        word, _, number = (line or "").partition(" ")
        if word == "started":
            self.pid = int(number)
            return
        self._over(127)
        why = os.strerror(int(number)) if word == "refused" else "its guardian process did not start"
        hint = ""
        if word == "refused" and int(number) in (errno.EACCES, errno.ENOEXEC):
            hint = f"make {self.command[0]} executable, or name its interpreter: bash {self.command[0]}"
        raise RayfishError(f"{shlex.join(self.command)} cannot be run: {why}", hint)

    def _line(self, seconds: float) -> str | None:
        """The guardian's next line; "" when it is gone, None when there is none yet."""
        until = time.monotonic() + seconds
        while b"\n" not in self._text:
            if not select.select([self._status], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            more = os.read(self._status, 4096)
            if not more:
                return ""
            self._text += more
        line, _, self._text = self._text.partition(b"\n")
        return line.decode()

    def _over(self, code: int) -> None:
        self.code, self.ended = code, time.monotonic()
        self._close()

    def _close(self) -> None:
        for name in ("_control", "_status"):
            handle = self.__dict__.pop(name, None)
            if handle is not None:
                os.close(handle)


def environment(cpus: float, own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that holds so many CPUs: this process's, and its own on top."""
    given = {"PYTHONUNBUFFERED": "1", **signing.child_environment()}
    if cpus >= 1:
        given["OMP_NUM_THREADS"] = str(int(cpus))
    return {**os.environ, **given, **own}


def executable(word: str, folder: Path, env: Mapping[str, str]) -> str:
    """The file that a command's first word means.

    :raises RayfishError: there is none, or it may not be run
    """
    if word in PYTHONS:
        return sys.executable
    if "/" in word:
        file = folder / word
        if not file.is_file():
            raise RayfishError(f"the command {word} was not found", f"looked for {file}")
        if not os.access(file, os.X_OK):
            hint = f"chmod +x {word}, or name its interpreter: bash {word}"
            raise RayfishError(f"the command {word} may not be run: no permission", hint)
        return str(file.absolute())
    found = shutil.which(word, path=env.get("PATH"))
    if found is None:
        raise RayfishError(
            f"the command {word} was not found", "give its full path, or put its folder into PATH"
        )
    return found


def ended(code: int) -> str:
    """How a process ended, from its exit code: the end of a sentence."""
    if code == 0:
        return "ended well"
    if code > 128 and code - 128 in set(signal.Signals):
        name = signal.Signals(code - 128).name
        return f"ended with exit code {code}, as shells say {name}"
    if code >= 0:
        return f"ended with exit code {code}"
    known = -code in set(signal.Signals)
    return f"was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"


def hint_for(code: int) -> str:
    """What to do about an exit code, where there is something to say."""
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "Rayfish did not send it: the machine may be out of memory (see dmesg); run fewer at a time"
    if code == 126:
        return "exit code 126: a command in it may not be run"
    if code == 127:
        return "exit code 127: a command in it was not found"
    return ""


def last_lines(log: Path, offset: int = 0, most: int = LAST_LINES) -> list[str]:
    """The last lines of a log, from `offset` on."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset, size - most * LONGEST_LINE * 2))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    lines = [line.rstrip().rpartition("\r")[2].rstrip() for line in text.split("\n")]
    return [line[:LONGEST_LINE] for line in lines if line][-most:]


def shown(lines: Sequence[str], log: Path) -> str:
    """The last lines as part of a message."""
    if not lines:
        return f"it printed nothing ({log} is empty)"
    return "\n".join([f"its last lines ({log}):", *(f"  | {line}" for line in lines)])
