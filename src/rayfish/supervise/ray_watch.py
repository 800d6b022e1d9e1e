"""A thread that looks whether Ray is still there while a sweep goes on, and speaks for one that is stuck.

Without the cluster's head, calls of Ray do not return; a minute later Ray ends the process without a word.
"""

from __future__ import annotations

import os
import threading

from rayfish.errors import RayfishError
from rayfish.run.engine import Lifeline
from rayfish.supervise.logs import to_terminal

_LOOK_EVERY_S, _ANSWER_S = 1.0, 10.0


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
