"""Stand-ins for stdout and stderr: one that may go away, one that prints no escape sequences."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO

from rayfish.text import printable

_GONE = (errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO)


class StreamProxy:
    """A text stream in front of `wrapped`, the real one; subclasses change how text is written."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def write(self, text: str) -> int:
        """Write text."""
        raise NotImplementedError

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def close(self) -> None:
        """Flush; the real stream stays open."""
        self.flush()


class SteadyStream(StreamProxy):
    """A closed pipe or terminal costs its output, never the work: what cannot be written is dropped.

    The log says so once.
    """

    def __init__(self, wrapped: TextIO) -> None:
        super().__init__(wrapped)
        self._gone = False

    def write(self, text: str) -> int:
        """Write what can be written; the whole text counts as written."""
        try:
            return self.wrapped.write(text)
        except OSError as error:
            self._failed(error)
            return len(text)

    def flush(self) -> None:
        """Flush the real stream."""
        try:
            self.wrapped.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        if self._gone or error.errno not in _GONE:  # a full disk may have room again
            return
        self._gone = True
        with suppress(OSError):  # what it has buffered, and what writes past it, must not fail either
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.wrapped.fileno())
            os.close(nowhere)
        import logging

        name = getattr(self.wrapped, "name", "the console")
        line = f"{name} is gone ({error.strerror}): continuing without it"
        # From another thread: this one may hold the lock of a display.
        threading.Thread(target=logging.getLogger(__name__).warning, args=(line,), daemon=True).start()


def steady(stream: TextIO | None) -> TextIO:
    """The stream as one that never fails; a missing one (`>&-`) takes everything and shows nothing."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    return stream if isinstance(stream, SteadyStream) else SteadyStream(stream)  # type: ignore[return-value]


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


class PrintableStream(StreamProxy):
    """A stream that writes printable text; Rich's consoles, which style text themselves, bypass it."""

    @property
    def rich_proxied_file(self) -> Any:
        """By this attribute Rich finds the real stream."""
        return self.wrapped

    def write(self, text: str) -> int:
        """Write what is printable of a text; a line may end with a carriage return (a progress bar)."""
        return int(self.wrapped.write("\r".join(map(printable, text.split("\r")))))


@contextmanager
def printable_output() -> Iterator[None]:
    """While entered, what is printed to stdout and stderr loses its escape sequences."""
    with redirect_stdout(PrintableStream(sys.stdout)), redirect_stderr(PrintableStream(sys.stderr)):
        yield
