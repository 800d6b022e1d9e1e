"""A console that may go away: a closed pipe or terminal costs its output, never the work."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import threading
from contextlib import suppress
from typing import Any, TextIO

_GONE = (errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO)
_logger = logging.getLogger(__name__)


class SteadyStream(io.TextIOBase):
    """Stands in for stdout or stderr; what cannot be written there is dropped, and reported once in the log.

    :param wrapped: the real stream
    """

    def __init__(self, wrapped: TextIO) -> None:
        self._wrapped = wrapped
        self._gone = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The real stream's encoding."""
        return self._wrapped.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """What the real stream does with characters that it cannot encode."""
        return self._wrapped.errors

    def write(self, text: str) -> int:
        """Write what can be written; the whole text counts as written."""
        try:
            return self._wrapped.write(text)
        except OSError as error:
            self._failed(error)
            return len(text)

    def flush(self) -> None:
        """Flush the real stream."""
        try:
            self._wrapped.flush()
        except OSError as error:
            self._failed(error)

    def fileno(self) -> int:
        """The real stream's descriptor."""
        return self._wrapped.fileno()

    def isatty(self) -> bool:
        """Whether the real stream is a terminal."""
        return self._wrapped.isatty()

    def writable(self) -> bool:
        """Always."""
        return True

    def _failed(self, error: OSError) -> None:
        if self._gone or error.errno not in _GONE:  # a full disk may have room again
            return
        self._gone = True
        with suppress(OSError):  # what it has buffered, and what writes past it, must not fail either
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._wrapped.fileno())
            os.close(nowhere)
        line = (
            f"{getattr(self._wrapped, 'name', 'the console')} is gone ({error.strerror}): going on without it"
        )
        # From another thread: this one may hold the lock of a display.
        threading.Thread(target=_logger.warning, args=(line,), daemon=True).start()


def open_closed() -> None:
    """Open /dev/null on each closed standard stream, or the next file opened would get its descriptor."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def steady(stream: TextIO | None) -> TextIO:
    """The stream as one that never fails; a missing one (`>&-`) takes everything and shows nothing."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    return stream if isinstance(stream, SteadyStream) else SteadyStream(stream)  # type: ignore[return-value]
