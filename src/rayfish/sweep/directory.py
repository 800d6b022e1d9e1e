"""A sweep's folder: making it, keeping `sweep.json` true, finding it again."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from rayfish.errors import RayfishError, RunNotFound
from rayfish.files import atomic_write
from rayfish.run.directory import DEFAULT_ROOT
from rayfish.run.named import answering
from rayfish.sweep.records import Table

LAYOUT = 1
RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"
_LITTLE = 64 * 2**20


class SweepDirectory:
    """One sweep's folder; `data` is the content of `sweep.json`."""

    def __init__(self, path: Path, data: dict[str, Any]) -> None:
        self.path = path
        self.data = data
        self._held: IO[str] | None = None

    @classmethod
    def create(cls, root: str | Path, name: str, about: Mapping[str, Any]) -> SweepDirectory:
        """A new sweep.

        :param about: what it is made from; all that a resume needs
        """
        from rayfish.run import provenance

        sweep_id = secrets.token_hex(3)
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        safe = "".join(c if c.isalnum() or c in "-_.+=" else "-" for c in name).strip(".-") or "sweep"
        path = (Path(root) / safe / f"{stamp}-{sweep_id}").absolute()
        try:
            (path / "trials").mkdir(parents=True)
            sweep = cls(path, {})
            sweep.lock()
            sweep.update(
                layout=LAYOUT,
                id=sweep_id,
                name=name,
                status=RUNNING,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                seconds=0.0,
                provenance=provenance.collect(),
                **about,
            )
        except OSError as error:
            raise RayfishError(
                f"the sweep folder {path} cannot be made: {error.strerror}",
                "set runtime.local_dir to a folder you may write, with space in it",
            ) from None
        return sweep

    @classmethod
    def open(cls, path: str | Path) -> SweepDirectory:
        """The sweep that lies at `path`."""
        path = Path(path).absolute()
        try:
            data = json.loads((path / "sweep.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunNotFound(
                f"{path} is not a sweep: it has no sweep.json", "rayfish tune begins one"
            ) from None
        except (OSError, ValueError) as error:
            raise RunNotFound(
                f"{path}/sweep.json cannot be read: {error}",
                "begin a new sweep; the folders of its trials are kept, and search.start_from takes runs",
            ) from None
        if data.get("layout", 0) > LAYOUT:
            raise RayfishError(
                f"the sweep {path} has layout {data['layout']}, this Rayfish reads layouts up to {LAYOUT}",
                "pip install --upgrade rayfish",
            )
        return cls(path, data)

    @property
    def table_file(self) -> Path:
        """`trials.jsonl`."""
        return self.path / "trials.jsonl"

    @property
    def trials(self) -> Path:
        """The folder of the trials' folders."""
        return self.path / "trials"

    @property
    def log_file(self) -> Path:
        """`log.txt`."""
        return self.path / "log.txt"

    def open_table(self) -> Table:
        """The table, to write to."""
        return Table(self.table_file)

    def update(self, **fields: Any) -> None:
        """Sets fields of `sweep.json`, on disk as well."""
        self.data |= fields
        atomic_write(self.path / "sweep.json", json.dumps(self.data, indent=2, default=str) + "\n")

    def is_full(self) -> bool:
        """Whether hardly anything more can be written here; tried, because quotas show in no other way."""
        try:
            (self.path / ".space").write_bytes(bytes(_LITTLE))
        except OSError:
            return True
        finally:
            (self.path / ".space").unlink(missing_ok=True)
        return False

    def lock(self) -> None:
        """One process at a time; the lock goes with the process, however that ends."""
        held = (self.path / ".lock").open("a+", encoding="utf-8")
        try:
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            held.seek(0)
            owner = held.read().strip() or "another process"
            held.close()
            raise RayfishError(
                f"the sweep {self.path} is running: {owner}", "wait for it, or stop it there; then resume"
            ) from None
        except OSError:  # a file system without locks
            pass
        held.truncate(0)
        held.write(f"process {os.getpid()} on {platform.node()}")
        held.flush()
        self._held = held

    def release(self) -> None:
        """Lets others resume it."""
        if self._held is not None:
            self._held.close()
            self._held = None


def list_sweeps(root: str | Path = DEFAULT_ROOT) -> list[SweepDirectory]:
    """Every sweep under `root`, newest first."""
    found = []
    for file in Path(root).glob("*/*/sweep.json"):
        try:
            found.append(SweepDirectory.open(file.parent))
        except RayfishError:
            continue
    return sorted(found, key=lambda s: (str(s.data.get("created")), s.path.name), reverse=True)


def find_sweep(text: str | Path, root: str | Path = DEFAULT_ROOT) -> Path:
    """The sweep that `text` means: a path, a name (its newest), an id or its beginning, or `last`."""
    path = Path(text)
    if path.exists():
        for folder in (path.absolute(), *path.absolute().parents):
            if (folder / "sweep.json").is_file():
                return folder
        inside = sorted(path.glob("*/sweep.json"))
        if inside:
            return inside[-1].parent
    none_yet = "rayfish tune begins one; or give the path of a sweep"
    return answering(str(text), list_sweeps(root), root, "sweep", none_yet)
