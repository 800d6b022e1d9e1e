"""`rayfish.json`, the manifest of a checkpoint: what it is of, and the SHA-256 of every file in it.

The manifest has a seal over itself (see `run/signing.py`), so a checkpoint is signed as a whole. Every
reader checks the files that it reads; a resume checks all, and that there are no others.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import rayfish
from rayfish.errors import CheckpointError
from rayfish.files import Unreadable, atomic_write, read_keys
from rayfish.run import signing

LAYOUT = 3
"""2 had CRC-32 in place of SHA-256, and no seal."""

HEADER = "rayfish.json"
REPLAY = "replay.lz4"
_BESIDE_POLICY = ("algorithm", "processes", "config.yaml", REPLAY)
_BLOCK = 2**20
_RACY_S = 2.0
_NOT_OURS = (".nfs", ".DS_Store")  # what file systems and file managers leave anywhere
_known: dict[tuple[int, int, int, int, bool], str | int] = {}


def read_header(folder: Path) -> dict[str, Any]:
    """A checkpoint's `rayfish.json`, checked to be as it was written and readable by this installation.

    :raises CheckpointError: it is not there, damaged, or made by a newer Rayfish
    """
    path = folder / HEADER
    try:
        header = read_keys(path)
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} is not a Rayfish checkpoint: it has no rayfish.json",
            "rayfish runs list shows the runs here; name a run or a folder under its checkpoints/",
        ) from None
    except Unreadable as error:
        raise CheckpointError(f"{path} {error}", another(folder)) from error
    layout = header.get("layout", 0)
    if isinstance(layout, int) and layout > LAYOUT:
        made = (header.get("versions") or {}).get("rayfish", "?")
        raise CheckpointError(
            f"{folder} was made with Rayfish {made} (layout {layout}); "
            f"you have {rayfish.__version__} (layout {LAYOUT})",
            f"pip install 'rayfish>={made}'",
        )
    try:
        signing.json_is_own(HEADER, header)
        whole = signing.SEAL in header or (isinstance(layout, int) and layout < 3)
    except signing.SealBroken:
        whole = False
    if not whole:
        raise _damaged(folder, HEADER)
    return header


def is_own(folder: Path) -> bool:
    """Whether a checkpoint's manifest is signed with this user's key.

    :raises CheckpointError: it is damaged
    """
    return (folder / HEADER).is_file() and signing.json_is_own(HEADER, read_header(folder))


def write_header(folder: Path, values: Mapping[str, Any]) -> None:
    """Writes the manifest of all that is in `folder`, sealed."""
    files = {name: (path.stat().st_size, sha256(path)) for name, path in _listed(folder)}
    header = {"layout": LAYOUT} | dict(values) | {"layout": LAYOUT, "files": files}
    atomic_write(folder / HEADER, signing.sealed_json(HEADER, header))


def require_files(folder: Path, *names: str) -> None:
    """The files that are about to be read are as they were written; `part/` means all below it.

    A policy that was saved alone has no manifest to be compared with.

    :raises CheckpointError: with the file that is not
    """
    if not (folder / HEADER).is_file():
        if is_checkpoint(folder):
            raise _damaged(folder, HEADER, "is missing")
        return
    listed = read_header(folder).get("files") or {}
    if not listed:
        return
    there = [name for name, _ in _listed(folder)] if any(name.endswith("/") for name in names) else []
    for name in names:
        inside = name.endswith("/")
        if link := next((one for one in there if name.startswith(f"{one}/")), None):
            raise _damaged(folder, link)
        for wanted in [one for one in {*listed, *there} if one.startswith(name)] if inside else [name]:
            _require_file(folder, wanted, listed)


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder is, or was, a checkpoint: more than a policy that was given away alone."""
    numbered = folder.parent.name == "checkpoints" and folder.name.isdigit()
    return numbered or any((folder / name).exists() for name in (HEADER, *_BESIDE_POLICY))


def require_whole(folder: Path, header: dict[str, Any]) -> None:
    """Every file of a checkpoint is there and reads as it was written, and there are no others.

    :raises CheckpointError: it was cut short or changed since
    """
    listed = header.get("files") or {}
    for name in listed:
        if name != REPLAY or (folder / name).exists():  # it goes when a later checkpoint has one
            _require_file(folder, name, listed)
    extra = [name for name, _ in _listed(folder) if name not in listed] if listed else []
    if extra:
        raise _damaged(folder, extra[0], "was not there when it was written")


def numbered(checkpoints: Path) -> list[Path]:
    """The complete checkpoints in a folder, oldest first (an unfinished one has another name)."""
    return sorted(p for p in checkpoints.glob("[0-9]*") if p.name.isdigit() and p.is_dir())


def another(checkpoint: Path) -> str:
    """The next step where a checkpoint cannot be read: the others of its run."""
    others = sorted(p.name for p in checkpoint.parent.glob("[0-9]*") if p.name != checkpoint.name)
    if not others:
        return "it is the only checkpoint of its run: put back a copy of it, or train the run again"
    return f"use another checkpoint of the run: {checkpoint.parent / others[-1]}"


def _require_file(folder: Path, name: str, listed: Mapping[str, Any]) -> None:
    if name not in listed:
        raise _damaged(folder, name, "was not there when it was written")
    size, checksum = listed[name]
    path = folder / name
    try:
        sound = path.stat().st_size == size and _checksum(path, crc=isinstance(checksum, int)) == checksum
    except FileNotFoundError:
        raise _damaged(folder, name, "is missing") from None
    except OSError:
        sound = False
    if not sound:
        raise _damaged(folder, name)


def _damaged(folder: Path, name: str, how: str = "is not as it was written") -> CheckpointError:
    return CheckpointError(f"{folder} is damaged: {name} {how}", another(folder))


def _listed(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files in a checkpoint by name; a link to a folder is one entry, which no manifest has."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        folders.sort()
        for name in sorted([*files, *links]):
            path = Path(place) / name
            found = path.relative_to(folder).as_posix()
            if found != HEADER and not name.startswith(_NOT_OURS):
                yield found, path


def _checksum(path: Path, *, crc: bool) -> str | int:
    """Of a file; computed once per process, unless it was written so lately that its time says nothing."""
    about = path.stat()
    place = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, crc)
    if place not in _known:
        found = _crc(path) if crc else sha256(path)
        if time.time() - about.st_mtime < _RACY_S:
            return found
        _known[place] = found
    return _known[place]


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _crc(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            value = zlib.crc32(block, value)
    return value
