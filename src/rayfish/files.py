"""Writing that a crash cannot tear: beside, synced, renamed."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import threading
from pathlib import Path

_CURRENT_FOLDER, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def atomic_write(path: str | Path, text: str) -> None:
    """Put `text` into `path` so that a reader sees the old content or the new, never a part."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    with beside.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    _sync_folder(path.parent)


def atomic_link(link: str | Path, target: str) -> None:
    """Point the symbolic link `link` at `target` (relative to the link's folder), replacing what it was."""
    link = Path(link)
    beside = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(link)
    _sync_folder(link.parent)


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


def _sync_folder(folder: Path) -> None:
    """Make a rename itself survive a power cut; some file systems do not offer it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
