"""Ray's authentication token: who has it may run code in the Ray that asks for it."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_MODE, _TOKEN, _PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


def place() -> Path | None:
    """The file that Ray reads its token from; None where this user has no home folder."""
    try:
        return Path(os.environ.get(_PATH) or "~/.ray/auth_token").expanduser()
    except RuntimeError:
        return None


def bring() -> None:
    """For a cluster that was started with a token: Ray sends one only in token mode."""
    file = place()
    if _MODE not in os.environ and (_TOKEN in os.environ or (file is not None and file.is_file())):
        os.environ[_MODE] = "token"


def make() -> None:
    """For a local Ray: a token that this user alone can read, before Ray makes one that everyone can.

    One that is there is kept; it and its folder are closed to others, unless `RAY_AUTH_TOKEN_PATH` names it.
    Where the home folder cannot be written, it is kept in a temporary folder, for this process's lifetime.
    """
    if os.environ.get(_MODE, "token").lower() != "token" or _TOKEN in os.environ:
        return
    file = place()
    try:
        if file is None:
            raise OSError("no home folder")
        if not file.exists():
            _write(file)
        elif _PATH not in os.environ:
            _tighten(file)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="rayfish-token-"))  # mode 0700
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        file = folder / "auth_token"
        _write(file)
        os.environ[_PATH] = str(file)


def _write(file: Path) -> None:
    """Make the file in one step, so that two processes that start at once end up with one token."""
    if not file.parent.exists():
        file.parent.mkdir(mode=0o700, parents=True)
    handle, beside = tempfile.mkstemp(prefix=".auth_token-", dir=file.parent)  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(secrets.token_hex(32))
        with suppress(FileExistsError):
            os.link(beside, file)
    finally:
        Path(beside).unlink()


def _tighten(file: Path) -> None:
    for path, mode in ((file, 0o600), (file.parent, 0o700)):
        found = path.stat()
        if found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) & 0o077:
            with suppress(OSError):
                path.chmod(mode)
