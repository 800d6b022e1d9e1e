"""Files with one record per line, however long: read from the end, sampled, rolled back, repaired.

A run's files may hold millions of lines. Nothing here keeps them in memory, and only repairing a damaged
file writes more than it removes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from rayfish.files import link_or_copy, sync_folder

BLOCK = 2**20
EXACT = 32 * 2**20
"""Up to this size every line is parsed at a resume (half a second); in a larger file only suspicious ones."""

Number = Callable[[bytes], float | None]
Check = Callable[[bytes], bool]


def blocks_backwards(path: Path) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines with their offsets, the last one first."""
    with path.open("rb") as file:
        end, carry = file.seek(0, os.SEEK_END), b""
        while end > 0:
            start = max(0, end - BLOCK)
            file.seek(start)
            data = file.read(end - start) + carry
            whole = data.find(b"\n") + 1 if start else 0
            if start and not whole:
                carry = data
            else:
                carry, data = data[:whole], data[whole:]
                if data:
                    yield start + whole, data
            end = start


def lines_backwards(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines with their offsets, the last one first; each with its newline, if it has one."""
    for start, block in blocks_backwards(path):
        offset = start + len(block)
        for line in reversed(_split(block)):
            offset -= len(line)
            yield offset, line


def sampled(path: Path, most: int) -> list[bytes]:
    """About `most` whole lines, evenly spaced over the file, in order."""
    found: list[bytes] = []
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        for index in range(most):
            file.seek(size * index // most)
            if index:
                file.readline()
            line = file.readline()
            if not found or line != found[-1]:
                found.append(line)
    return found


def roll_back(
    path: Path, at: float | None, number: Number, *, sound: Check, quick: Check, begun: Check
) -> list[str]:
    """Removes the lines after a checkpoint, and damaged ones before it; returns a message about those.

    The original of a file with damaged lines is kept next to it.

    :param at: the last line's number to keep; None keeps all
    :param number: a line's number; None where it is unknown
    :param quick: the same at a glance; False where that is not certain
    :param begun: whether the end of the file may be a line that a crash cut short
    """
    size = path.stat().st_size
    end = _end_of_kept(path, size, at, number)
    exact = end <= EXACT
    damaged = [
        count
        for count, line in _lines_until(path, end)
        if not (line.endswith(b"\n") and ((not exact and quick(line)) or sound(line)))
    ]
    _, last = next(lines_backwards(path), (0, b"\n"))
    strange = end < size and not last.endswith(b"\n") and not begun(last)
    if not damaged and not strange:
        if end < size:
            os.truncate(path, end)
        return []
    original, left_out = set_aside(path), set(damaged)
    replace_lines(path, (line for count, line in _lines_until(original, end) if count not in left_out))
    found = [_which(damaged)] if damaged else []
    found += [f"{len(last)} bytes at its end are no line and were"] if strange else []
    return [f"{path.name}: {what} left out; the original is kept as {original.name}" for what in found]


def _which(damaged: list[int]) -> str:
    which = ", ".join(map(str, damaged[:5])) + (f" and {len(damaged) - 5} more" if len(damaged) > 5 else "")
    return f"line {which} is damaged and was" if len(damaged) == 1 else f"lines {which} are damaged and were"


def note_if_gone(path: Path, resume_at: int | None) -> list[str]:
    """A message where the file of an earlier session is missing."""
    gone = resume_at and not path.exists()
    return [f"{path.name} is gone: it starts again after iteration {resume_at}"] if gone else []


def set_aside(path: Path) -> Path:
    """Links a file that is about to be replaced under a second name; returns that name."""
    kept, count = path.with_name(f"{path.name}.damaged"), 1
    while kept.exists():
        count += 1
        kept = path.with_name(f"{path.name}.damaged-{count}")
    link_or_copy(path, kept)
    return kept


def replace_lines(path: Path, lines: Iterator[bytes]) -> None:
    """Puts other lines into a file so that a reader sees the old content or the new, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def _end_of_kept(path: Path, size: int, at: float | None, number: Number) -> int:
    """Where the first line after `at` begins. Only the end of the file is read: its lines are in order."""
    if at == 0:
        return 0
    end, torn = size, size
    for offset, line in lines_backwards(path):
        if offset + len(line) == size and not line.endswith(b"\n"):
            torn = offset  # a crash cut it short while it was written
            if at is None:
                return torn
            continue
        found = number(line)
        if at is None or (found is not None and found <= at):
            # Where the line of the checkpoint itself is the torn one, it is damage.
            return min(end, torn) if at is None or found == at else end
        if found is not None:
            end = offset
    return end


def _lines_until(path: Path, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines before the offset `end`, counted from 1."""
    offset = 0
    with path.open("rb") as file:
        for count, line in enumerate(file, 1):
            offset += len(line)
            if offset > end:
                return
            yield count, line


def _split(block: bytes) -> list[bytes]:
    """Lines as iterating over a file yields them: a carriage return ends none."""
    lines = [line + b"\n" for line in block.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
