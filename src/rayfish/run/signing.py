"""Signatures: which runs, checkpoints and sweeps this user wrote.

A seal is the SHA-256 of a file's content and an HMAC-SHA256 of that with the user's key. The key is
64 hex digits, taken from the first of

    RAYFISH_SIGNING_KEY          the key itself: a cluster's secret
    RAYFISH_SIGNING_KEY_FILE     a file that holds it
    <user config folder>/rayfish/signing.key     made by the first run, mode 0600

Ownership of a file proves nothing: an unpacked archive belongs to whoever unpacked it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError
from rayfish.files import parse_json

VARIABLE = "RAYFISH_SIGNING_KEY"
FILE_VARIABLE = "RAYFISH_SIGNING_KEY_FILE"
SEAL = "seal"
"""The field of a sealed JSON file, and the last line of a sealed text."""

_DIGITS = 64
_LINE = f"# {SEAL}: "
_handed_over: str | None = None
_for_now: list[str] = []


class SealBroken(ValueError):
    """The content is not what was sealed."""


def key(*, make: bool = False) -> bytes | None:
    """The signing key; None where there is none.

    :param make: make the user's key file where there is no key yet; where it cannot be written, a key
        for this process and those that it hands it to
    :raises RayfishError: a variable names a key that is none
    """
    if _handed_over is not None:
        return bytes.fromhex(_handed_over)
    if os.environ.get(VARIABLE):
        return _parsed(os.environ[VARIABLE], VARIABLE)
    if os.environ.get(FILE_VARIABLE):
        file = Path(os.environ[FILE_VARIABLE]).expanduser()
        try:
            return _from_file(file, FILE_VARIABLE)
        except OSError as error:
            what = f"the signing key {file} ({FILE_VARIABLE}) cannot be read: {error.strerror or error}"
            raise RayfishError(what, "mount it there, or unset the variable") from error
    file = key_file()
    try:
        if make and not file.exists():
            make_secret(file)
        if file.exists():
            return _from_file(file, str(file))
    except OSError:
        pass
    if make:
        _for_now.append(secrets.token_hex(_DIGITS // 2))
        use(_for_now[0])
    return bytes.fromhex(_for_now[0]) if make else None


def key_file() -> Path:
    """Where the user's own key is."""
    import platformdirs

    return platformdirs.user_config_path("rayfish") / "signing.key"


def hand_over() -> str:
    """The key for another process of this user's, which takes it with `use`. A secret: print it nowhere."""
    return _own_key().hex()


def use(handed_over: str) -> None:
    """From now on this process signs with the key of the process that started it."""
    global _handed_over
    _handed_over = handed_over


def child_environment() -> dict[str, str]:
    """What a program started here needs in its environment to sign with the same key; often nothing."""
    found = key()
    if found is None or os.environ.get(VARIABLE) or os.environ.get(FILE_VARIABLE):
        return {}
    with suppress(OSError, RayfishError):
        if _from_file(key_file(), "") == found:
            return {}
    return {VARIABLE: found.hex()}


def note() -> str:
    """One line for the user where runs cannot be signed; else ""."""
    if is_lasting():
        return ""
    return (
        f"{key_file()} cannot be written, so this run is signed for this process only: to resume it needs "
        f"--trust (a key elsewhere: {FILE_VARIABLE})"
    )


def is_lasting() -> bool:
    """Whether later processes will know the signatures that this one makes."""
    return key(make=True) is not None and not _for_now


def seal(kind: str, content: bytes) -> dict[str, Any]:
    """The seal of a content.

    :param kind: the file's name: the seal of one file is no seal of another
    """
    secret = _own_key()
    digest = _digest(kind, _name(secret), content)
    return {"sha256": digest, "signed_by": _name(secret), "hmac": _hmac(secret, digest)}


def is_own(kind: str, content: bytes, found: Any) -> bool:
    """Whether a seal was made with this user's key.

    :raises SealBroken: the content, or the seal, has changed since
    """
    if not isinstance(found, Mapping) or set(found) != {"sha256", "signed_by", "hmac"}:
        raise SealBroken(kind)
    if found["sha256"] != _digest(kind, found["signed_by"], content):
        raise SealBroken(kind)
    secret = key()
    if secret is None or found["signed_by"] != _name(secret):
        return False
    if not hmac.compare_digest(str(found["hmac"]), _hmac(secret, found["sha256"])):
        raise SealBroken(kind)
    return True


def sealed_json(kind: str, data: Mapping[str, Any]) -> str:
    """JSON with its seal in it, as text."""
    rest = {name: value for name, value in data.items() if name != SEAL}
    plain = json.loads(json.dumps(rest, default=str))
    return json.dumps(plain | {SEAL: seal(kind, _canonical(plain))}, indent=2) + "\n"


def json_is_own(kind: str, data: Mapping[str, Any]) -> bool:
    """Whether JSON that was read has a seal of this user's.

    :raises SealBroken: it has a seal that does not fit
    """
    rest = {name: value for name, value in data.items() if name != SEAL}
    return SEAL in data and is_own(kind, _canonical(rest), data[SEAL])


def sealed_text(kind: str, text: str) -> str:
    """Text with its seal as a comment in its last line."""
    body = text.partition(_LINE)[0]
    return f"{body}{_LINE}{json.dumps(seal(kind, body.encode()))}\n"


def text_is_own(kind: str, text: str) -> bool:
    """Whether text has a seal of this user's that fits it."""
    body, line, found = text.partition(_LINE)
    try:
        alone = len(found.splitlines()) == 1  # what follows it would be read, too
        return bool(line) and alone and is_own(kind, body.encode(), parse_json(found))
    except ValueError:
        return False


def is_changed(kind: str, text: str) -> bool:
    """Whether text has a seal of this user's that no longer fits it."""
    secret, seal_line = key(), text.partition(_LINE)[2]
    return secret is not None and _name(secret) in seal_line and not text_is_own(kind, text)


def _own_key() -> bytes:
    found = key(make=True)
    assert found is not None
    return found


def _canonical(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def _digest(kind: str, signed_by: Any, content: bytes) -> str:
    """Covers who signed, too: a flipped bit there must not make a file look like a stranger's."""
    return hashlib.sha256(f"{kind}\n{signed_by}\n".encode() + content).hexdigest()


def _hmac(secret: bytes, digest: str) -> str:
    return hmac.new(secret, f"rayfish seal\n{digest}".encode(), hashlib.sha256).hexdigest()


def _name(secret: bytes) -> str:
    """A name for the key that says nothing of it."""
    return hmac.new(secret, b"rayfish key name", hashlib.sha256).hexdigest()[:16]


def _from_file(file: Path, where: str) -> bytes:
    try:
        return _parsed(file.read_text(encoding="utf-8"), where)
    except UnicodeDecodeError:
        return _parsed("", where)


def _parsed(text: str, where: str) -> bytes:
    text = text.strip()
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(text) != _DIGITS or len(found) * 2 != _DIGITS:
        raise RayfishError(
            f"{where} holds no signing key: {len(text)} characters in place of {_DIGITS} hex digits",
            "make one: python -c 'import secrets; print(secrets.token_hex(32))'",
        )
    return found


def make_secret(file: Path) -> None:
    """A new file of 64 hex digits, for this user alone; of several processes, the first one's is kept."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, draft = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(secrets.token_hex(_DIGITS // 2))
            out.flush()
            os.fsync(out.fileno())
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        Path(draft).unlink()
