"""A sweep's folder: creating it, keeping `sweep.json` up to date, finding it again."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError, RunNotFound
from rayfish.files import Unreadable, atomic_write, last_write, read_keys, set_aside, why_unwritable
from rayfish.run import lease
from rayfish.run.directory import DEFAULT_ROOT, safe_name
from rayfish.run.lookup import SweepFolder, answering, newest_first, sweeps_at
from rayfish.run.signing import sealed_json

LAYOUT = 1
RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"
_LITTLE = 64 * 2**20


class SweepDirectory(SweepFolder):
    """One sweep's folder; `data` is the content of `sweep.json`."""

    def __init__(self, path: Path, data: dict[str, Any]) -> None:
        super().__init__(path, data)
        self.trials, self.table_file, self.log_file = path / "trials", path / "trials.jsonl", path / "log.txt"

    @classmethod
    def create(cls, root: str | Path, name: str, about: Mapping[str, Any]) -> SweepDirectory:
        """A new sweep.

        :param about: fields of `sweep.json`: everything that a resume needs
        """
        from rayfish.run import provenance

        sweep_id = secrets.token_hex(3)
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        path = (Path(root) / safe_name(name, "sweep") / f"{stamp}-{sweep_id}").absolute()
        try:
            (path / "trials").mkdir(parents=True)
            sweep = cls(path, {})
            sweep.table_file.touch()  # a missing one is damage
            sweep.lock()
            sweep.update(
                layout=LAYOUT,
                id=sweep_id,
                name=name,
                status=RUNNING,
                process=lease.this_process(),
                created=datetime.now(UTC).isoformat(timespec="milliseconds"),
                seconds=0.0,
                provenance=provenance.collect(),
                **about,
            )
        except OSError as error:
            reason, remedy = why_unwritable(error, path)
            raise RayfishError(
                f"the sweep folder {path} cannot be made: {reason}",
                f"{remedy}, or set runtime.local_dir to a folder on another disk",
            ) from None
        return sweep

    @classmethod
    def open(cls, path: str | Path) -> SweepDirectory:
        """The sweep at `path`."""
        path = Path(path).absolute()
        try:
            data = read_keys(path / cls.RECORD)
        except FileNotFoundError:
            raise RunNotFound(
                f"{path} is not a sweep: it has no sweep.json", "rayfish tune begins one"
            ) from None
        except Unreadable as error:
            raise RunNotFound(
                f"{path}/sweep.json {error}",
                "begin a new sweep; the folders of its trials are kept, and search.start_from takes runs",
            ) from None
        if data.get("layout", 0) > LAYOUT:
            raise RayfishError(
                f"the sweep {path} has layout {data['layout']}, this Rayfish reads layouts up to {LAYOUT}",
                "pip install --upgrade rayfish",
            )
        return cls(path, data)

    def require_table(self) -> None:
        """Raises a `RunNotFound` for a sweep whose table is missing."""
        if not self.table_file.is_file():
            raise RunNotFound(
                f"the sweep {self.path} is damaged: {self.table_file.name} is missing",
                f"restore it, or begin a new sweep; its trials are kept: {self.trials}",
            )

    def update(self, **fields: Any) -> None:
        """Sets fields of `sweep.json`, on disk as well.

        :raises lease.Taken: another process has taken the sweep over
        """
        self.require_held()
        self.data |= fields
        atomic_write(self.path / self.RECORD, sealed_json(self.RECORD, self.data))

    def finish(self, status: str, **fields: Any) -> None:
        """Writes the end of the sweep, also on a disk that is full."""
        self.require_held()
        self.data |= {"status": status, **fields}
        last_write(self.path / self.RECORD, sealed_json(self.RECORD, self.data))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Reports a full disk, or any other reason why the sweep cannot be written, in one message."""
        try:
            yield
        except (ConnectionError, TimeoutError):
            raise
        except OSError as error:
            reason, remedy = why_unwritable(error, self.path)
            raise RayfishError(
                f"{self.path} cannot be written: {reason}",
                f"{remedy}, then rayfish tune --resume {self.path}",
            ) from error

    def is_full(self) -> bool:
        """Whether hardly anything more can be written here; tries it, since quotas show in no other way."""
        try:
            (self.path / ".space").write_bytes(bytes(_LITTLE))
        except OSError:
            return True
        finally:
            (self.path / ".space").unlink(missing_ok=True)
        return False

    def lock(self) -> None:
        """Lets no other process write here, until `release` or the end of this one."""
        process = self.data.get("process") if self.data.get("status") == RUNNING else None
        with self.writing():
            self._lease = lease.take(self.path, self.RECORD, f"the sweep {self.path} is running", process)
            set_aside(self.path)


def find_sweep(text: str | Path, root: str | Path = DEFAULT_ROOT) -> Path:
    """The sweep by its path, its name (the newest), its id or the beginning of that, or `last`."""
    path = Path(text)
    if path.exists():
        for folder in (path.absolute(), *path.absolute().parents):
            if (folder / "sweep.json").is_file():
                return folder
        inside = sorted(path.glob("*/sweep.json"))
        if inside:
            return inside[-1].parent
    none_yet = "rayfish tune begins one; or give the path of a sweep"
    found = newest_first(sweeps_at(Path(root), "*/*/sweep.json"))
    return answering(str(text), found, root, "sweep", none_yet).absolute()
