"""A thread that looks whether Ray is still there while a sweep goes on, and speaks for one that is stuck.

Without the cluster's head, calls of Ray do not return; a minute later Ray ends the process without a word.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from contextlib import suppress

from rayfish.compat import ray_node
from rayfish.errors import RayfishError
from rayfish.supervise.logs import to_terminal

_LOOK_EVERY_S, _ANSWER_S, _ASK_EVERY_S, _SILENCE_S = 1.0, 10.0, 3.0, 30.0


class Lifeline:
    """Whether the Ray this process uses is still there; asked again and again while a run lasts."""

    def __init__(self) -> None:
        self._silent_since: float | None = None
        self._asked = 0.0
        self._handles: dict[int, int] = {}

    def wait(self, seconds: float) -> None:
        """Sleeps for so long, or until a process of the local Ray ends."""
        for process in ray_node.local_processes():
            if process.pid not in self._handles and hasattr(os, "pidfd_open"):
                with suppress(OSError):
                    self._handles[process.pid] = os.pidfd_open(process.pid)
        ends = select.poll()
        for handle in self._handles.values():
            ends.register(handle, select.POLLIN)
        ended = {handle for handle, _ in ends.poll(seconds * 1000)}
        for pid, handle in list(self._handles.items()):
            if handle in ended:
                os.close(self._handles.pop(pid))

    def close(self) -> None:
        """Close the handles of Ray's processes."""
        while self._handles:
            os.close(self._handles.popitem()[1])

    def lost(self) -> str:
        """What has gone of Ray, in one sentence; "" while it is there."""
        node = ray_node.node()
        if node is None:
            return ""
        for kind, what in ray_node.PROCESSES.items():
            for started in node.all_processes.get(kind, ()):
                status = started.process.poll()
                if status is not None and started.process.pid not in ray_node.ended_here:
                    return f"{what} ({kind}, process {started.process.pid}) {_ended(status)}"
        return "" if node.head else self._cluster_lost(str(node.gcs_address))

    @property
    def silent(self) -> bool:
        """Whether the cluster did not answer when it was asked last."""
        return self._silent_since is not None

    def _cluster_lost(self, address: str) -> str:
        """A cluster's head may move or be restarted: it has some time before it counts as lost."""
        now = time.monotonic()
        if now - self._asked >= _ASK_EVERY_S:
            self._asked = now
            self._silent_since = None if _answers(address) else (self._silent_since or now)
        if self._silent_since is None or now - self._silent_since < _SILENCE_S:
            return ""
        return f"the Ray cluster at {address} has not answered for {_SILENCE_S:g} s"


class Lookout:
    """A context manager around everything that uses Ray; `begin` when Ray is there."""

    def __init__(self) -> None:
        self.hint = "rayfish doctor"
        self._lifeline = Lifeline()
        self._lost = ""
        self._over = threading.Event()

    def __enter__(self) -> Lookout:
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def begin(self, hint: str) -> None:
        """Looks from now on.

        :param hint: the next step for the user where Ray is gone
        """
        self.hint = hint
        threading.Thread(target=self._look, name="rayfish-lookout", daemon=True).start()

    @property
    def silent(self) -> bool:
        """Whether Ray does not answer now, so that calls of it may not return."""
        return self._lifeline.silent or bool(self._lost)

    def require_ray(self) -> None:
        """Ends what uses Ray when it is gone.

        :raises RayfishError: it is
        """
        if self._lost:
            raise RayfishError(f"{self._lost}; the work stopped with it", self.hint)

    def _look(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            self._lost = self._lifeline.lost()
            if self._lost and not self._over.wait(_ANSWER_S):
                to_terminal(f"error: {self._lost}\n  next step: {self.hint}\n")
                os._exit(1)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=3.0).close()
    except (OSError, ValueError):
        return False
    return True


def _ended(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status}"
    name = signal.Signals(-status).name
    return f"was killed ({name})" + (
        ": by hand, or by the system when memory runs out" if status == -9 else ""
    )
