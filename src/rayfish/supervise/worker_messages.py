"""What was heard of the workers: signs of life, and why they ended. Filled by `run.logs`."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from rayfish.supervise import error_messages, pulse

_EXIT = re.compile(r"Worker PID: (\d+)|pid=(\d+)|PID[ =](\d+)")
_APPLY = "Worker exception caught during"
_STEP = "Environment step failed"
_RESET = "Resetting the env resulted in an error"
_DIED = re.compile(r"A worker died or was killed|worker\(s\)? (was|were) killed due to|low on memory|OOM")


@dataclass
class Heard:
    """The newest of it, by worker name and by process.

    :param last_beat: when a worker last let hear that it gets on, by the monotonic clock
    :param voices: whether any worker can be heard at all (a notebook's Ray may be silent)
    """

    last_beat: float = 0.0
    voices: bool = False
    by_name: dict[str, error_messages.Reason] = field(default_factory=dict)
    by_process: dict[int, error_messages.Reason] = field(default_factory=dict)
    env: str = ""

    def begin(self, env: str) -> None:
        """Forget everything: another run begins."""
        self.last_beat, self.voices, self.env = 0.0, False, env
        self.by_name.clear()
        self.by_process.clear()

    def record(self, worker: str, logger: str, text: str) -> bool:
        """Take in what a worker logged; True when it is for us alone and not for the user's eyes."""
        self.voices = True
        if logger == pulse.BEAT:
            self.last_beat = time.monotonic()
            return True
        if logger == pulse.FAULT:
            what, _, hint = text.partition("\n")
            self.by_name[worker] = error_messages.Reason(what, hint)
            return True
        return self.fault(worker, text)

    def fault(self, worker: str, text: str) -> bool:
        """Take in a traceback that RLlib logged; True when it tells of a fault in user code."""
        if not (text.startswith((_APPLY, _RESET)) or _STEP in text[:80]):
            return False
        reason = error_messages.explain_text(text, self.env)
        if reason is not None:
            self.by_name[worker] = reason
        return True

    def printed(self, text: str) -> bool:
        """Take in a line that Ray itself printed; True when it tells of a worker's end."""
        if not _DIED.search(text):
            return False
        reason = error_messages.explain_exit(text)
        for match in _EXIT.finditer(text):
            pid = next(int(group) for group in match.groups() if group)
            self.by_process.setdefault(pid, reason)
        return True

    def why(self, worker: str, pid: int) -> error_messages.Reason | None:
        """Why a worker ended, if that is known; it is told once."""
        said, seen = self.by_name.pop(worker, None), self.by_process.pop(pid, None)
        return said or seen


heard = Heard()
"""Of this process; Ray's output is the process's, not one run's."""
