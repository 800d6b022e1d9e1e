"""Text as people read it: numbers in words, foreign text without escape sequences. Imports nothing heavy."""

from __future__ import annotations

import math
import re

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SEQUENCE = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=\x1b))"  # OSC, DCS and the like, up to their end
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|\x1b[ -/]*[0-~]"  # two or three characters: a reset, a character set
    rf"|{_UNSAFE.pattern}"
)


def printable(text: str) -> str:
    """Text of environments, workers and files without escape sequences and control characters.

    They may move the cursor, change the window's title or hide what follows. Tabs and newlines stay.
    """
    return _SEQUENCE.sub("", text) if _UNSAFE.search(text) else text


def count(value: float) -> str:
    """A whole number with separators: 81,920."""
    return f"{int(value):,}"


def counted(value: float, what: str) -> str:
    """A number of things: `1 worker`, `2 workers`."""
    return f"{count(value)} {what}" + ("" if value == 1 else "s")


def number(value: float) -> str:
    """A measured number with about four figures: 312.4, 0.01234, 1,204,000."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.4g}"


def rate(value: float) -> str:
    """A rate: 950, 10.4k, 2.03M."""
    if value >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if value >= 1e4 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """A span of time: 0:12, 4:05, 1:02:03, 3 d 4 h."""
    seconds = round(max(0.0, seconds))
    if seconds >= 48 * 3600:
        return f"{seconds // 86400} d {seconds % 86400 // 3600} h"
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def size(count: float) -> str:
    """A number of bytes: 340 kB, 1.2 MB, 15 GB."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.2g} {name}" if count < 10 * unit else f"{count / unit:.0f} {name}"
    return f"{count / 1e3:.0f} kB"


def percent(share: float) -> str:
    """A share: 57 %."""
    return f"{100 * share:.0f} %"


def age(seconds: float) -> str:
    """How old something is, roughly: 40 s, 12 min, 3 h, 5 d."""
    for limit, unit, name in ((86400 * 2, 86400, "d"), (3600, 3600, "h"), (60, 60, "min")):
        if seconds >= limit:
            return f"{int(seconds // unit)} {name}"
    return f"{max(0, int(seconds))} s"
