"""What workers report to the driver: heartbeats, and why they ended. Filled by `supervise.logs`."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from rayfish.supervise import error_messages

HEARTBEAT = "rayfish.heartbeat"
"""The logger by which a worker reports that it makes progress; shown nowhere."""

FAULT = "rayfish.fault"
"""The logger by which a worker reports what ended it."""

_EXIT = re.compile(r"Worker PID: (\d+)|pid=(\d+)|PID[ =](\d+)")
_APPLY = "Worker exception caught during"
_STEP = "Environment step failed"
_RESET = "Resetting the env resulted in an error"
_DIED = re.compile(r"A worker died or was killed|worker\(s\)? (was|were) killed due to|low on memory|OOM")


@dataclass
class WorkerMessages:
    """The newest of them, by worker name and by process.

    :param last_heartbeat: when a worker last reported progress, by the monotonic clock
    :param connected: whether any worker's output reaches this process (in a notebook it may not)
    """

    last_heartbeat: float = 0.0
    connected: bool = False
    by_name: dict[str, error_messages.Reason] = field(default_factory=dict)
    by_process: dict[int, error_messages.Reason] = field(default_factory=dict)
    env: str = ""

    def begin(self, env: str) -> None:
        """Forget everything: another run begins."""
        self.last_heartbeat, self.connected, self.env = 0.0, False, env
        self.by_name.clear()
        self.by_process.clear()

    def record(self, worker: str, logger: str, text: str) -> bool:
        """Process what a worker logged; True when it is not for the console."""
        self.connected = True
        if logger == HEARTBEAT:
            self.last_heartbeat = time.monotonic()
            return True
        if logger == FAULT:
            what, _, hint = text.partition("\n")
            self.by_name[worker] = error_messages.Reason(what, hint)
            return True
        return self.fault(worker, text)

    def fault(self, worker: str, text: str) -> bool:
        """Process a traceback that RLlib logged; True when it is a fault in user code."""
        if not (text.startswith((_APPLY, _RESET)) or _STEP in text[:80]):
            return False
        reason = error_messages.explain_text(text, self.env)
        if reason is not None:
            self.by_name[worker] = reason
        return True

    def printed(self, text: str) -> bool:
        """Process a line that Ray itself printed; True when it reports a worker's end."""
        if not _DIED.search(text):
            return False
        reason = error_messages.explain_exit(text)
        for match in _EXIT.finditer(text):
            pid = next(int(group) for group in match.groups() if group)
            self.by_process.setdefault(pid, reason)
        return True

    def why(self, worker: str, pid: int) -> error_messages.Reason | None:
        """Why a worker ended, if that is known; it is reported once."""
        reported, seen = self.by_name.pop(worker, None), self.by_process.pop(pid, None)
        return reported or seen


worker_messages = WorkerMessages()
"""Of this process; Ray's output is the process's, not one run's."""
