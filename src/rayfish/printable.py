"""Text of environments, workers and foreign files, without escape sequences. Imports nothing heavy.

Such text may move the cursor, change the window's title or hide what follows it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SEQUENCE = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=\x1b))"  # OSC, DCS and the like, up to their end
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|\x1b[ -/]*[0-~]"  # two or three characters: a reset, a character set
    rf"|{_UNSAFE.pattern}"
)


def printable(text: str) -> str:
    """The text without escape sequences and control characters; tabs and newlines stay."""
    return _SEQUENCE.sub("", text) if _UNSAFE.search(text) else text


class PrintableStream:
    """A stream that writes printable text; Rich's consoles, which style text themselves, bypass it."""

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write what is printable of a text; a line may end with a carriage return (a progress bar)."""
        return int(self.rich_proxied_file.write("\r".join(map(printable, text.split("\r")))))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def printable_output() -> Iterator[None]:
    """While entered, what is printed to stdout and stderr loses its escape sequences."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(PrintableStream, streams)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
