"""Writing that a crash cannot tear: beside, synced, renamed. What to say when it fails."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rayfish.text import size

_CURRENT_FOLDER, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LITTLE = 2**20
_DEEPEST_JSON = 200
_SPARE, _SPARE_BYTES = ".spare", 16 * 1024


def atomic_write(path: str | Path, content: str | bytes) -> None:
    """Put `content` into `path` so that a reader sees the old one or the new, never a part.

    A symbolic link at `path` is replaced, not followed.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        data = content.encode() if isinstance(content, str) else content
        _write(beside, data, os.O_CREAT | os.O_TRUNC)
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def parse_json(text: str | bytes) -> Any:
    """`json.loads` that raises a ValueError also where values are nested too deep to work with."""
    too_deep = ValueError(f"values are nested more than {_DEEPEST_JSON} deep")
    try:
        value = json.loads(text)
    except RecursionError:
        raise too_deep from None
    level = [value]
    for _ in range(_DEEPEST_JSON):
        nested = [one for one in level if isinstance(one, dict | list)]
        if not nested:
            return value
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
    raise too_deep


class Unreadable(ValueError):
    """A file that cannot be read; the text says why: "is cut short or damaged at line 3"."""


def read_keys(file: Path) -> dict[str, Any]:
    """The keys and values of a JSON file.

    :raises FileNotFoundError: it is not there
    :raises Unreadable: it cannot be read, or holds something else
    """
    try:
        data = parse_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        line = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise Unreadable(f"is cut short or damaged{line}") from error
    if not isinstance(data, dict):
        raise Unreadable(f"is damaged: it holds a {type(data).__name__}, not keys and values")
    return data


def set_aside(folder: Path) -> None:
    """Hold some space of the disk, in a hidden file, for the `last_write` in that folder."""
    try:  # Random bytes: a file system that compresses would keep no space for zeros.
        _write(folder / _SPARE, os.urandom(_SPARE_BYTES), os.O_CREAT | os.O_TRUNC)
    except OSError:
        with suppress(OSError):
            (folder / _SPARE).unlink(missing_ok=True)
        raise


def last_write(path: Path, text: str) -> None:
    """`atomic_write` that also succeeds on a full disk, by the space that `set_aside` holds, which it frees.

    In a folder where no file can be made any more, it writes over the old content.
    """
    spare = path.with_name(_SPARE)
    try:
        atomic_write(path, text)
    except PermissionError:
        _write(path, text.encode())
    except OSError as error:
        if not is_full(error):
            raise
        _write(spare, text.encode())
        spare.replace(path)
        sync_folder(path.parent)
    with suppress(OSError):
        spare.unlink(missing_ok=True)


def _write(path: Path, data: bytes, flags: int = 0) -> None:
    """Write and sync a file; without `O_TRUNC` over the bytes that are there, which takes no new space."""
    handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | flags, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
        os.ftruncate(handle, len(data))
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def folder_for(path: Path) -> Iterator[None]:
    """The folder of `path` is there; one that was made for it goes again when nothing was written."""
    made = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):  # something is in it
                path.parent.rmdir()
        raise


def atomic_link(link: str | Path, target: str) -> None:
    """Point the symbolic link `link` at `target` (relative to the link's folder), replacing what it was."""
    link = Path(link)
    beside = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    try:
        beside.replace(link)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(link.parent)


def is_full(error: BaseException | None) -> bool:
    """Whether a write failed because the disk or the user's share of it is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def why_unwritable(error: OSError, path: Path) -> tuple[str, str]:
    """Why `path` cannot be written, and what to do about it: each the part of a sentence.

    A full disk is named by its mount point and by what is free there.
    """
    reason = error.strerror or str(error)
    file = Path(error.filename) if isinstance(error.filename, str) else None
    if not is_full(error):
        place = file.parent if file is not None else path
        named = "" if place in (path, path.parent) else f" ({place})"
        return f"{reason}{named}", f"make {place} writable"
    mount, free = _full_disk(file or path, path, Path(os.environ.get("TMPDIR") or "/tmp"))
    if error.errno == errno.EDQUOT:
        return f"{reason}, on the file system at {mount}", f"free space of yours under {mount}"
    if free > _LITTLE and os.statvfs(mount).f_favail == 0:
        return f"{reason}: no file can be added at {mount}", f"remove files under {mount}"
    return f"{reason}: {size(free)} free at {mount}", f"free space under {mount}"


def _full_disk(*paths: Path) -> tuple[Path, int]:
    """Mount point and free bytes of the first of the paths whose disk is full, else of the first path."""
    found = []
    for path in paths:
        there = path.resolve()
        mount = next(p for p in (there, *there.parents) if p.is_mount())
        found.append((mount, shutil.disk_usage(mount).free))
    return next((disk for disk in found if disk[1] < _LITTLE), found[0])


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for a file or a folder's files, where the file system has that; else a copy."""

    def one(a: str, b: str) -> str:
        try:
            os.link(a, b)
        except OSError:
            shutil.copy2(a, b)
        return b

    remove(target)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=one)
    else:
        one(str(source), str(target))


def remove(path: Path) -> None:
    """A file or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def exchange(a: Path, b: Path) -> None:
    """Swaps two paths in one step where the system offers it, so that neither name is ever without a file."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None and rename(_CURRENT_FOLDER, bytes(a), _CURRENT_FOLDER, bytes(b), _EXCHANGE) == 0:
        return
    if rename is not None and ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(b))
    aside = b.with_name(f".aside-{b.name}-{os.getpid()}")
    b.rename(aside)
    a.rename(b)
    aside.rename(a)


def sync_folder(folder: Path) -> None:
    """Make a rename itself survive a power cut; some file systems do not offer it."""
    with suppress(OSError):
        sync(folder)


def sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
